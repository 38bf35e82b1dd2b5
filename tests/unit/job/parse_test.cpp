#include "job/parse.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "job/estimate.h"
#include "models/llava/config.h"

namespace oometer {
namespace {

Job must_parse(const std::string& text) {
  Result<Job> job = parse_job(text);
  INFO(text);
  if (!job) FAIL(job.error().pointer << ": " << job.error().message);
  return *job;
}

/// A job of `preset` with more members.
std::string preset_job(const std::string& preset, const std::string& members = "") {
  return R"({"model": {"preset": ")" + preset + "\"}" + (members.empty() ? "" : ", ") + members + "}";
}

TEST_CASE("A job that names only its model gets every default", "[job]") {
  const Job job = must_parse(preset_job("llava-1.5-7b"));
  CHECK(job.model.name == "LLaVA-1.5 7B");
  CHECK(job.data == DataConfig{{336, 336, 576}, 1, 2048, 0, 1});
  CHECK(job.training == TrainingConfig{});
  CHECK(job.training.optimizer.implementation == OptimizerImplementation::fused);
  CHECK(job.training.optimizer.param_groups == 2);
  CHECK(job.parallel == ParallelConfig{});
  CHECK(job.gpu.id == "h100-80gb");
  CHECK_FALSE(job.gpu.allocator_limit);
  CHECK(job.runtime == Runtime{});
  CHECK(job.unmodelled.empty());
  CHECK(to_json(job) == R"({"model":{"preset":"llava-1.5-7b"},"version":1})");
}

TEST_CASE("The default sequence is the model's usual", "[job]") {
  CHECK(must_parse(preset_job("llama-3-8b")).data.sequence_length == 8192);
  CHECK(must_parse(preset_job("llama-3-8b")).data.images_per_sample == 0);
  CHECK(must_parse(preset_job("clip-vit-l-14")).data == DataConfig{{224, 224}, 1, 77, 0, 1});
  CHECK(must_parse(R"({"model": {"config": {"model_type": "llama"}}})").data.sequence_length == 2048);
  const Job tower = must_parse(R"({"model": {"config": {"model_type": "clip_vision_model"}},
                                   "training": {"loss": "pooler_output"}})");
  CHECK(tower.data == DataConfig{{224, 224}, 1, 0, 0, 1});
}

TEST_CASE("A config overrides its preset's fields, nested", "[job]") {
  const Job job = must_parse(
      R"({"model": {"preset": "llava-1.5-7b", "name": "short", "config": {"text_config": {"num_hidden_layers": 2}}}})");
  const auto& config = job.model.config.config().as<LlavaConfig>();
  CHECK(config.text.num_hidden_layers == 2);
  CHECK(config.text.vocab_size == 32064);
  CHECK(config.vision.num_hidden_layers == 24);
  CHECK(job.model.name == "short");
}

TEST_CASE("Liger's cross_entropy reaches no loss of MistralForCausalLM, which the answer says", "[job]") {
  const auto read = [](const std::string& model_type) {
    return must_parse(R"({"model": {"config": {"model_type": ")" + model_type + R"("}},
                          "training": {"liger": {"cross_entropy": true, "fused_linear_cross_entropy": false}}})");
  };
  const Job llama = read("llama"), mistral = read("mistral");
  CHECK(llama.training.liger.cross_entropy);
  CHECK_FALSE(mistral.training.liger.cross_entropy);
  CHECK(mistral.assumptions.size() == llama.assumptions.size() + 1);
  CHECK(mistral.assumptions.front().starts_with("Liger's cross_entropy does nothing"));
}

TEST_CASE("Liger's switches are those of the model's own function, with its defaults", "[job]") {
  const auto job = [](const std::string& model_type, const std::string& liger) {
    return R"({"model": {"config": {"model_type": ")" + model_type + R"("}}, "training": {"liger": )" + liger + "}}";
  };
  CHECK_FALSE(must_parse(job("glm4", "true")).training.liger.rope);
  CHECK(parse_job(job("glm4", R"({"rope": true})")).error().code == "inconsistent");
  const LigerConfig granite = must_parse(job("granite", "{}")).training.liger;
  CHECK(granite.cross_entropy);
  CHECK_FALSE(granite.fused_linear_cross_entropy);
  CHECK(must_parse(job("gemma", "true")).training.liger.swiglu);  // geglu, of gelu_pytorch_tanh
  CHECK_FALSE(must_parse(job("gpt_oss", "true")).training.liger.swiglu);
  CHECK_FALSE(must_parse(job("deepseek_v3", "true")).training.liger.rope);
}

TEST_CASE("A trainer that asks Liger for a model that it does not know runs without it, which the answer says",
          "[job]") {
  const auto gpt2 = [](const std::string& training) {
    return R"({"model": {"config": {"model_type": "gpt2"}}, "training": {)" + training + "}}";
  };
  const auto trainer = [](const std::string& args) {
    return R"("loop": {"name": "transformers.Trainer", "args": {)" + args + "}}";
  };
  const Job asked = must_parse(gpt2(trainer(R"("use_liger_kernel": true)")));
  CHECK(asked.training.liger == LigerConfig{});
  CHECK(asked.assumptions.front() == "use_liger_kernel changes nothing: Liger has no kernels for GPT2LMHeadModel");
  CHECK(parse_job(gpt2(R"("liger": true)")).error().code == "inconsistent");
  CHECK(must_parse(gpt2(trainer(""))).assumptions != asked.assumptions);
}

TEST_CASE("A stage becomes lists of components", "[job]") {
  const auto components = [](const std::string& preset, const std::string& stage, const std::string& runtime = "") {
    return must_parse(preset_job(preset, R"("training": {"stage": ")" + stage + "\"}" + runtime)).training.components;
  };
  CHECK(components("llava-1.5-7b", "pretrain") == Components{{}, {"multi_modal_projector"}, {"vision_tower"}});
  CHECK(components("llava-1.5-7b", "finetune") == Components{{"vision_tower"}, {}, {"vision_tower"}});
  CHECK(components("llava-1.5-7b", "full") == Components{});
  CHECK(components("llama-2-7b", "finetune") == Components{});
  CHECK(components("llava-1.5-7b", "pretrain", R"(, "runtime": {"framework": "llava"})").train_only ==
        std::vector<std::string>{"mm_projector"});
  const Job custom =
      must_parse(preset_job("llava-1.5-7b", R"("training": {"stage": "custom", "freeze": ["lm_head"]})"));
  CHECK(custom.training.components == Components{{"lm_head"}, {}, {}});
}

TEST_CASE("DeepSpeed's auto is resolved as transformers does", "[job]") {
  const auto deepspeed = [](const std::string& members) {
    return must_parse(
               preset_job("llava-1.5-7b", R"("parallel": {"strategy": "deepspeed", "data": 2, )" + members + "}"))
        .parallel.deepspeed;
  };
  // LLaVA's zero2.json is what zero_stage alone means.
  const DeepSpeedConfig zero2 = deepspeed(R"("zero_stage": 2)");
  CHECK(zero2.reduce_bucket_size == 4096 * 4096);
  CHECK(zero2.overlap_comm);
  CHECK(deepspeed(R"("ds_config": {"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto",
      "zero_optimization": {"stage": 2, "overlap_comm": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto"}})") ==
        zero2);
  // Without a key DeepSpeed's own default holds.
  const DeepSpeedConfig bare = deepspeed(R"("ds_config": {"zero_optimization": {"stage": 2}})");
  CHECK(bare.reduce_bucket_size == 500'000'000);
  CHECK_FALSE(bare.overlap_comm);
  // Stage 3: LLaVA's zero3.json, and what DeepSpeed makes of a bare one.
  const DeepSpeedConfig zero3 = deepspeed(R"("zero_stage": 3)");
  CHECK(zero3.prefetch_bucket_size == 4096 * 4096 * 9 / 10);
  CHECK(zero3.param_persistence_threshold == 40960);
  CHECK(deepspeed(R"("ds_config": {"zero_optimization": {"stage": 3, "overlap_comm": true,
      "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
      "stage3_gather_16bit_weights_on_model_save": true}})") == zero3);
  const DeepSpeedConfig bare3 = deepspeed(R"("ds_config": {"zero_optimization": {"stage": 3}})");
  CHECK(bare3.prefetch_bucket_size == 50'000'000);
  CHECK(bare3.param_persistence_threshold == 100'000);
  CHECK(bare3.overlap_comm);
  // Its optimizer is the one that is taken, of all parameters in one group.
  const auto optimizer = [&](const std::string& ds) {
    return parse_job(R"({"model": {"preset": "llama-2-7b"}, "training": {"optimizer": {"name": "sgd"}},
                         "parallel": {"strategy": "deepspeed", "ds_config": {"optimizer": )" +
                     ds + R"(, "zero_optimization": {"stage": 2}}}})")
        ->training.optimizer;
  };
  OptimizerConfig fused;
  fused.implementation = OptimizerImplementation::deepspeed_fused;
  fused.param_groups = 1;
  CHECK(optimizer(R"({"type": "AdamW", "params": {"lr": "auto", "weight_decay": 0.1}})") == fused);
  CHECK(optimizer(R"({"type": "Adam"})") == fused);
  fused.name = OptimizerName::adam;
  CHECK(optimizer(R"({"type": "Adam", "params": {"adam_w_mode": false}})") == fused);
  fused.implementation = OptimizerImplementation::foreach_;
  CHECK(optimizer(R"({"type": "Adam", "params": {"adam_w_mode": false, "torch_adam": true}})") == fused);
}

TEST_CASE("A GPU that the job describes gives its bytes to the allocator alone", "[job]") {
  const Job job =
      must_parse(preset_job("llama-2-7b", R"("gpu": {"usable_bytes": 84825604096, "compute_capability": "8.9"})"));
  CHECK(job.gpu.allocator_limit);
  CHECK(job.gpu.usable_bytes == 84825604096);
  CHECK(job.gpu.architecture == "ada");
  CHECK(job.gpu.major == 8);
  CHECK(job.gpu.minor == 9);
}

TEST_CASE("The original LLaVA code brings its own versions", "[job]") {
  const Job job = must_parse(preset_job("llava-1.5-7b", R"("runtime": {"framework": "llava"})"));
  CHECK(to_string(job.runtime.transformers) == "4.37.2");
  CHECK(to_string(job.runtime.torch) == "2.1.2");
  CHECK_FALSE(job.assumptions.empty());
}

TEST_CASE("A written job reads back equal", "[job]") {
  const std::string members = GENERATE(
      R"("data": {"micro_batch_size": 8, "sequence_length": 1024, "images_per_sample": 1})",
      R"("data": {"sequence_length": 2048, "images_per_sample": 0})",
      R"("training": {"stage": "custom", "train_only": ["a", "b"], "no_grad": ["c"], "precision": "amp-fp16"})",
      R"("training": {"optimizer": {"name": "sgd", "momentum": 0.9, "implementation": "for-loop", "param_groups": 1}})",
      R"("training": {"activation_checkpointing": {"mode": "reentrant", "every": 3}, "max_grad_norm": 0.5})",
      R"("training": {"attention": "sdpa-efficient", "gradient_accumulation_steps": 4})",
      R"("parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 8, "rank": 7}, "gpu": {"count": 8})",
      R"("parallel": {"strategy": "deepspeed", "ds_config": {"zero_optimization": {"stage": 2}, "gradient_clipping": 1.0}})",
      R"("gpu": {"usable_bytes": 17179869184, "compute_capability": "7.5"})",
      R"("gpu": {"name": "a100-80gb"}, "runtime": {"torch": "2.14", "cudnn": false, "expandable_segments": true})",
      R"("runtime": {"framework": "llava", "deepspeed": "0.14.4"})");
  const Job job = must_parse(preset_job("llava-1.5-7b", members));
  CHECK(must_parse(to_json(job)) == job);
  CHECK(to_json(must_parse(to_json(job))) == to_json(job));
}

TEST_CASE("A config's unknown keys are kept and reported", "[job]") {
  const Job job = must_parse(
      R"({"model": {"preset": "llama-2-7b", "config": {"sliding_window": 4096, "bos_token_id": 1, "output_attentions": false}}})");
  REQUIRE(job.unmodelled.size() == 1);
  CHECK(job.unmodelled[0].text == "/model/config/sliding_window: 4096 is not modelled");
  CHECK_FALSE(job.unmodelled[0].may_need_more());
}

TEST_CASE("What a file asks for and the answer leaves out says what it could change", "[job]") {
  const auto of_ds_config = [](const std::string& keys) {
    return preset_job("llama-3-8b", R"("parallel": {"strategy": "deepspeed", "data": 8, "ds_config": {)" + keys + "}}");
  };
  const auto the_one = [](const std::string& text) {
    const Job job = must_parse(text);
    REQUIRE(job.unmodelled.size() == 1);
    return job.unmodelled[0];
  };
  const std::string stage_3 = R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 3)";
  CHECK(the_one(of_ds_config(stage_3 + R"(}, "tensor_parallel": {"autotp_size": 2})")).effect == Effect::less);
  CHECK(the_one(of_ds_config(stage_3 + R"(}, "compression_training": {})")).effect == Effect::more);
  const Unmodelled nvme =
      the_one(of_ds_config(stage_3 + R"(, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}})"));
  CHECK(nvme.text.starts_with("/parallel/ds_config/zero_optimization/offload_optimizer/device: "));
  CHECK(nvme.may_need_more());
  const Unmodelled fp8 =
      the_one(R"({"model": {"preset": "llama-3-8b", "config": {"quantization_config": {"quant_method": "fp8"}}}})");
  CHECK(fp8.text.starts_with("/model/config/quantization_config: "));
  CHECK(fp8.effect == Effect::less);
}

TEST_CASE("A verdict is no better than tight where what is not modelled may need more", "[job]") {
  const auto verdict = [](const char* key) {
    const Result<Estimate> answer = estimate(preset_job(
        "qwen3-0.6b", std::string(R"("parallel": {"strategy": "deepspeed", "data": 2, "ds_config": {"bf16": )") +
                          R"({"enabled": true}, "zero_optimization": {"stage": 2})" + key + "}}"));
    REQUIRE(answer);
    return answer->report.verdict;
  };
  CHECK(verdict("") == Verdict::fits);
  CHECK(verdict(R"(, "tensor_parallel": {"autotp_size": 2})") == Verdict::fits);
  CHECK(verdict(R"(, "compile": {})") == Verdict::tight);
}

struct Bad {
  std::string text;
  std::string code;
  std::string pointer;
};

Bad member(const std::string& members, const std::string& code, const std::string& pointer,
           const std::string& preset = "llama-2-7b") {
  return {preset_job(preset, members), code, pointer};
}

Bad config(const std::string& fields, const std::string& code, const std::string& pointer,
           const std::string& preset = "llama-2-7b") {
  return {R"({"model": {"preset": ")" + preset + R"(", "config": )" + fields + "}}", code, "/model/config" + pointer};
}

const std::string kDeepseek = R"({"model_type": "deepseek_v2", "num_experts_per_tok": 6)";

/// A config of LLaVA with SigLIP's tower, or of nanoVLM.
Bad own(const std::string& config, const std::string& members, const std::string& code, const std::string& pointer) {
  return {R"({"model": {"config": )" + config + "}" + members + "}", code, pointer};
}

std::vector<Bad> bad_jobs() {
  const std::string siglip = R"({"model_type": "llava", "vision_config": {"model_type": "siglip_vision_model"}})",
                    nanovlm = R"({"model_type": "nanovlm"})";
  const std::string zero2 = R"("parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 4)";
  const auto ds = [](const std::string& text) {
    return R"("parallel": {"strategy": "deepspeed", "ds_config": )" + text + "}";
  };
  return {
      {"", "not-json", ""},
      {"nope", "not-json", ""},
      {R"({"model":)", "not-json", ""},
      {R"({"model": {"preset": "llama-2-7b"}, "data": {"micro_batch_size": NaN}})", "not-json", ""},
      {R"({"model": {"preset": "llama-2-7b"}, "data": {"micro_batch_size": 1e999}})", "not-json", ""},
      {"{\"model\": \"\xff\"}", "not-json", ""},
      {R"({"model": 1, "model": 2})", "duplicate-key", ""},
      {std::string(100'000, '['), "too-deep", ""},
      {"[]", "wrong-type", ""},
      {"null", "wrong-type", ""},
      {"{}", "missing", "/model"},
      {R"({"model": "llama-2-7b"})", "wrong-type", "/model"},
      {R"({"model": {}})", "missing", "/model"},
      {R"({"model": {"preset": "llama-2-7"}})", "unknown-preset", "/model/preset"},
      {R"({"model": {"preset": 7}})", "wrong-type", "/model/preset"},
      {R"({"model": {"config": []}})", "wrong-type", "/model/config"},
      {R"({"model": {"config": {}}})", "missing", "/model/config/model_type"},
      {R"({"model": {"config": {"model_type": "internlm2"}}})", "unsupported-model", "/model/config/model_type"},
      // Other files than a transformers model's config.json.
      {R"({"model": {"config": {"_class_name": "UNet2DConditionModel", "sample_size": 64}}})", "unsupported-model",
       "/model/config/_class_name"},
      {R"({"model": {"config": {"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30.0"}}})",
       "unsupported-model", "/model/config/_diffusers_version"},
      {R"({"model": {"config": {"general.architecture": "llama", "llama.block_count": 32}}})", "unsupported-model",
       "/model/config/general.architecture"},
      {R"({"model": {"config": {"metadata": {"general.architecture": "llama"}, "tensors": {}}}})", "unsupported-model",
       "/model/config/metadata"},
      {R"({"model": {"config": {"metadata": {}, "weight_map": {}}}})", "unsupported-model", "/model/config/weight_map"},
      {R"({"model": {"config": {"peft_type": "LORA", "r": 8}}})", "unsupported-model", "/model/config/peft_type"},
      {R"({"model": {"config": {"model_type": "clip_vision_model"}}})", "missing", "/training/loss"},
      {R"({"model": {"config": {"model_type": "llava", "mm_vision_tower": "openai/clip-vit-large-patch14"}}})",
       "inconsistent", "/runtime"},
      member(R"("modle": {})", "unknown-key", "/modle"),
      member(R"("version": 2)", "out-of-range", "/version"),
      member(R"("inference": {"new_tokens": 5})", "inconsistent", "/inference"),
      member(R"("task": "inference", "training": {"quantization": {"load_in_4bit": false}})", "missing",
             "/training/quantization/load_in_4bit"),
      member(R"("task": "inference", "training": {"quantization": {"load_in_4bit": true,
                "prepare_model_for_kbit_training": true}})",
             "inconsistent", "/training/quantization/prepare_model_for_kbit_training"),
      member(R"("task": "inference", "training": {"quantization": {"load_in_4bit": true}},
                "inference": {"cache": {"implementation": "paged"}})",
             "not-modelled", "/training/quantization"),
      member(R"("task": "inference", "training": {"lora": {"target_modules": "all-linear"}})", "inconsistent",
             "/training/lora"),
      member(R"("task": "inference", "inference": {"new_tokens": 0})", "out-of-range", "/inference/new_tokens"),
      member(R"("task": "inference", "inference": {"turns": 2, "turn_images": -1})", "out-of-range",
             "/inference/turn_images"),
      member(R"("task": "inference", "inference": {"turns": 2, "turn_images": 1, "turn_tokens": 575})", "inconsistent",
             "/inference/turn_images"),
      member(R"("task": "inference", "inference": {"logits": "first"})", "unknown-value", "/inference/logits"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "sink"}})", "unknown-value",
             "/inference/cache/implementation"),
      member(R"("task": "inference", "inference": {"cache": {"max_cache_len": 9}})", "inconsistent",
             "/inference/cache/max_cache_len"),
      member(R"("task": "inference", "inference": {"cache": {"nbits": 2}})", "inconsistent", "/inference/cache/nbits"),
      member(R"("task": "inference", "inference": {"cache": {"backend": "fp8"}})", "inconsistent",
             "/inference/cache/backend"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "backend": "awq"}})",
             "unknown-value", "/inference/cache/backend"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "nbits": 8}})",
             "inconsistent", "/inference/cache/nbits"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "axis_value": 1}})",
             "inconsistent", "/inference/cache/axis_value"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "backend": "fp8",
                                                             "q_group_size": 64}})",
             "inconsistent", "/inference/cache/q_group_size"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "backend": "hqq",
                                                             "axis_key": -1}})",
             "inconsistent", "/inference/cache/axis_key"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "backend": "hqq",
                                                             "nbits": 6}})",
             "inconsistent", "/inference/cache/nbits"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "backend": "hqq",
                                                             "nbits": 3, "axis_value": 1}})",
             "inconsistent", "/inference/cache/nbits"),
      // Of four rows no byte is full.
      member(R"("task": "inference", "inference": {"cache": {"implementation": "quantized", "backend": "hqq",
                                                             "nbits": 1, "q_group_size": 4}})",
             "inconsistent", "/inference/cache/q_group_size"),
      // The prompt's groups are whole, those of the first 128 tokens of the answer too, 129 later they are not.
      member(R"("task": "inference", "data": {"sequence_length": 64},
                "inference": {"cache": {"implementation": "quantized", "axis_key": -1, "residual_length": 129,
                                        "q_group_size": 2048}})",
             "inconsistent", "/inference/cache/q_group_size"),
      {R"({"model": {"config": {"model_type": "mistral"}}, "task": "inference",
           "inference": {"cache": {"implementation": "quantized"}}})",
       "inconsistent", "/inference/cache/implementation"},
      member(R"("task": "inference", "inference": {"cache": {"block_size": 32}})", "inconsistent",
             "/inference/cache/block_size"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "paged", "shared_prefix": 99999}})",
             "inconsistent", "/inference/cache/shared_prefix"),
      member(R"("task": "inference", "inference": {"logits": "all", "cache": {"implementation": "paged"}})",
             "inconsistent", "/inference/logits"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "headinfer"}},
                "training": {"attention": "eager"})",
             "inconsistent", "/training/attention"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "headinfer"}},
                "training": {"precision": "fp32"})",
             "inconsistent", "/training/attention"),
      {R"({"model": {"preset": "llama-2-7b", "config": {"attention_bias": true}}, "task": "inference",
           "inference": {"cache": {"implementation": "headinfer"}}})",
       "inconsistent", "/inference/cache/implementation"},
      member(R"("task": "inference", "inference": {"cache": {"implementation": "headinfer"}})", "inconsistent",
             "/inference/cache/implementation", "qwen3-0.6b"),
      member(R"("task": "inference", "inference": {"prefill_chunk_size": 0})", "out-of-range",
             "/inference/prefill_chunk_size"),
      member(R"("task": "inference", "inference": {"prefill_chunk_size": 9, "cache": {"implementation": "paged"}})",
             "inconsistent", "/inference/prefill_chunk_size"),
      member(R"("task": "inference", "inference": {"prefill_chunk_size": 9, "cache": {"implementation": "static"}})",
             "not-modelled", "/inference/prefill_chunk_size"),
      member(R"("task": "inference", "inference": {"prefill_chunk_size": 9})", "not-modelled",
             "/inference/prefill_chunk_size", "llava-1.5-7b"),
      own(kDeepseek + "}", R"(, "runtime": {"experts": "batched_mm"})", "not-modelled", "/runtime/experts"),
      own(R"({"model_type": "ernie4_5_moe"})", R"(, "parallel": {"strategy": "fsdp2", "data": 2})", "not-modelled",
          "/parallel/strategy"),
      own(kDeepseek + "}", R"(, "training": {"attention": "sdpa-flash"})", "inconsistent", "/training/attention"),
      own(R"({"model_type": "mistral", "sliding_window": 64})",
          R"(, "data": {"sequence_length": 64}, "training": {"attention": "sdpa-flash"})", "inconsistent",
          "/training/attention"),
      member(R"("training": {"attention": "sdpa-efficient"}, "gpu": {"name": "t4"})", "inconsistent",
             "/training/attention"),
      own(R"({"model_type": "clip"})", R"(, "parallel": {"strategy": "fsdp1", "data": 2})", "inconsistent",
          "/parallel/strategy"),
      own(R"({"model_type": "clip"})", R"(, "parallel": {"strategy": "fsdp2", "data": 2})", "inconsistent",
          "/parallel/strategy"),
      own(R"({"model_type": "clip"})", R"(, "parallel": {"strategy": "deepspeed", "data": 2, "zero_stage": 2})",
          "inconsistent", "/parallel/zero_stage"),
      own(R"({"model_type": "smolvlm", "scale_factor": 2, "vision_config": {"image_size": 128, "patch_size": 16}})",
          R"(, "training": {"precision": "fp32"},
             "parallel": {"strategy": "fsdp1", "data": 2, "fsdp": {"mp": true, "use_orig_params": false}})",
          "inconsistent", "/parallel/fsdp/use_orig_params"),
      own(kDeepseek + "}", R"(, "runtime": {"transformers": "5.0"})", "not-modelled", "/runtime/transformers"),
      own(kDeepseek + "}", R"(, "task": "inference", "inference": {"cache": {"implementation": "headinfer"}})",
          "inconsistent", "/inference/cache/implementation"),
      own(kDeepseek + "}", R"(, "task": "inference", "inference": {"turns": 2, "cache": {"implementation": "mtla"}})",
          "inconsistent", "/inference/turns"),
      own(kDeepseek + "}",
          R"(, "task": "inference", "inference": {"prefill_chunk_size": 8, "cache": {"implementation": "mtla"}})",
          "inconsistent", "/inference/prefill_chunk_size"),
      own(kDeepseek + "}", R"(, "task": "inference", "inference": {"cache": {"implementation": "mtla", "stride": 1}})",
          "out-of-range", "/inference/cache/stride"),
      own(kDeepseek + "}", R"(, "task": "inference", "inference": {"cache": {"stride": 4}})", "inconsistent",
          "/inference/cache/stride"),
      member(R"("task": "inference", "inference": {"cache": {"implementation": "mtla"}})", "inconsistent",
             "/inference/cache/implementation"),
      own(kDeepseek + R"(, "topk_method": "noaux_tc"})", "", "unknown-value", "/model/config/topk_method"),
      own(kDeepseek + R"(, "num_key_value_heads": 2})", "", "inconsistent", "/model/config/num_key_value_heads"),
      own(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 65})", "", "inconsistent",
          "/model/config/num_experts_per_tok"),
      own(R"({"model_type": "deepseek_v2"})", "", "inconsistent", "/model/config/num_experts_per_tok"),
      own(kDeepseek + R"(, "qk_rope_head_dim": 7})", "", "inconsistent", "/model/config/qk_rope_head_dim"),
      own(R"({"model_type": "deepseek_v3", "n_group": 7})", "", "inconsistent", "/model/config/n_group"),
      own(R"({"model_type": "deepseek_v3", "topk_group": 9})", "", "inconsistent", "/model/config/topk_group"),
      member(R"("task": "inference", "inference": {"turns": 2})", "inconsistent", "/inference/turns", "clip-vit-l-14"),
      member(R"("task": "inference", "training": {"optimizer": {"name": "sgd"}})", "inconsistent",
             "/training/optimizer"),
      member(R"("task": "inference", "training": {"lora": {"rank": 8}})", "inconsistent", "/training/lora"),
      member(R"("task": "inference", "training": {"precision": "amp-bf16"})", "not-modelled", "/training/precision"),
      member(R"("task": "inference", "parallel": {"strategy": "ddp", "data": 2})", "not-modelled",
             "/parallel/strategy"),
      member(R"("task": "inference", "runtime": {"transformers": "4.57"})", "not-modelled", "/runtime/transformers"),
      member(R"("task": "dance")", "unknown-value", "/task"),
      member(R"("data": {"micro_batch_size": 0})", "out-of-range", "/data/micro_batch_size"),
      member(R"("data": {"micro_batch_size": -8})", "out-of-range", "/data/micro_batch_size"),
      member(R"("data": {"micro_batch_size": 1.5})", "out-of-range", "/data/micro_batch_size"),
      member(R"("data": {"micro_batch_size": "8"})", "wrong-type", "/data/micro_batch_size"),
      member(R"("data": {"micro_batch_size": 1000000000000000000})", "out-of-range", "/data/micro_batch_size"),
      member(R"("data": {"micro_batch_size": null})", "wrong-type", "/data/micro_batch_size"),
      member(R"("data": {"images_per_sample": 1})", "inconsistent", "/data/images_per_sample"),
      member(R"("data": {"image_size": [336, 336]})", "inconsistent", "/data/image_size"),
      member(R"("data": {"tiles": 4})", "inconsistent", "/data/tiles"),
      member(R"("data": {"micro_batch_size": 1048576, "sequence_length": 16777216})", "out-of-range", "/data"),
      member(R"("data": {"sequence_length": 575})", "inconsistent", "/data/sequence_length", "llava-1.5-7b"),
      member(R"("data": {"images_per_sample": 5})", "inconsistent", "/data/images_per_sample", "llava-1.5-7b"),
      member(R"("data": {"image_size": [224, 224]})", "inconsistent", "/data/image_size", "llava-1.5-7b"),
      member(R"("data": {"sequence_length": 78})", "inconsistent", "/data/sequence_length", "clip-vit-l-14"),
      member(R"("data": {"images_per_sample": 2})", "inconsistent", "/data/images_per_sample", "clip-vit-l-14"),
      member(R"("training": {"stage": "pretrain"})", "inconsistent", "/training/stage"),
      member(R"("training": {"stage": "finetune"})", "inconsistent", "/training/stage", "clip-vit-l-14"),
      member(R"("training": {"stage": "pretrain"}, "data": {"images_per_sample": 0})", "inconsistent",
             "/training/stage", "llava-1.5-7b"),
      member(R"("training": {"freeze": ["lm_head"]})", "inconsistent", "/training/freeze"),
      member(R"("training": {"stage": "custom", "freeze": [""]})", "wrong-type", "/training/freeze/0"),
      member(R"("training": {"precision": "fp8"})", "unknown-value", "/training/precision"),
      member(R"("training": {"optimizer": 5})", "wrong-type", "/training/optimizer"),
      member(R"("training": {"optimizer": {"momentum": 0.9}})", "inconsistent", "/training/optimizer/momentum"),
      member(R"("training": {"optimizer": {"nesterov": true}})", "unknown-key", "/training/optimizer/nesterov"),
      member(R"("training": {"attention": "sdpa-flash", "precision": "fp32"})", "inconsistent", "/training/attention"),
      member(R"("training": {"attention": "sdpa-flash"}, "gpu": {"name": "t4"})", "inconsistent",
             "/training/attention"),
      member(R"("training": {"activation_checkpointing": {"mode": "reentrant", "evry": 2}})", "unknown-key",
             "/training/activation_checkpointing/evry"),
      member(R"("training": {"max_grad_norm": -1})", "out-of-range", "/training/max_grad_norm"),
      member(R"("training": {"loss": "logits"})", "not-modelled", "/training/loss"),
      member(R"("training": {"lora": {"rank": 0}})", "out-of-range", "/training/lora/rank"),
      member(R"("training": {"lora": 8})", "wrong-type", "/training/lora"),
      member(R"("training": {"liger": {"cross_entropy": true}})", "inconsistent", "/training/liger/cross_entropy"),
      member(R"("training": {"activation_checkpointing": {"mode": "none", "offload": true}})", "inconsistent",
             "/training/activation_checkpointing/offload"),
      member(R"("training": {"activation_checkpointing": {"offload": true}}, "runtime": {"transformers": "5.0"})",
             "not-modelled", "/training/activation_checkpointing/offload"),
      member(R"("training": {"save_on_cpu": true})", "wrong-type", "/training/save_on_cpu"),
      member(R"("training": {"chunked_cross_entropy": 0})", "out-of-range", "/training/chunked_cross_entropy"),
      member(R"("training": {"chunked_cross_entropy": "8"})", "wrong-type", "/training/chunked_cross_entropy"),
      member(R"("training": {"chunked_cross_entropy": 8, "liger": true})", "inconsistent",
             "/training/chunked_cross_entropy"),
      member(R"("training": {"chunked_cross_entropy": 8}, "runtime": {"transformers": "4.51.3"})", "not-modelled",
             "/training/chunked_cross_entropy"),
      member(R"("training": {"chunked_cross_entropy": 8})", "inconsistent", "/training/chunked_cross_entropy",
             "clip-vit-l-14"),
      member(R"("training": {"liger": true})", "inconsistent", "/training/liger", "clip-vit-l-14"),
      member(R"("training": {"liger": true})", "inconsistent", "/training/liger", "qwen2.5-vl-7b"),
      member(R"("training": {"liger": {"rms": true}})", "unknown-key", "/training/liger/rms"),
      member(R"("training": {"liger": 1})", "wrong-type", "/training/liger"),
      member(R"("training": {"liger": {"fused_linear_cross_entropy": false, "accum_dtype": "fp32"}})", "inconsistent",
             "/training/liger/accum_dtype"),
      member(R"("training": {"liger": true}, "runtime": {"transformers": "4.51.3"})", "not-modelled",
             "/training/liger"),
      member(R"("training": {"optimizer": {"paged": true}})", "inconsistent", "/training/optimizer/paged"),
      member(R"("training": {"optimizer": {"name": "sgd", "implementation": "bnb-8bit"}})", "inconsistent",
             "/training/optimizer/implementation"),
      member(R"("training": {"optimizer": {"implementation": "bnb-8bit"}},
                "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 2})",
             "not-modelled", "/parallel/strategy"),
      member(R"("training": {"quantization": {"load_in_4bit": true}})", "inconsistent", "/training/quantization"),
      member(R"("training": {"quantization": {"load_in_4bit": true, "load_in_8bit": true}})", "inconsistent",
             "/training/quantization/load_in_4bit"),
      member(R"("training": {"lora": {"target_modules": "all-linear"}, "quantization": {}})", "missing",
             "/training/quantization/load_in_4bit"),
      member(R"("training": {"lora": {"target_modules": "all-linear", "use_dora": true},
                             "quantization": {"load_in_4bit": true}})",
             "not-modelled", "/training/quantization"),
      member(R"("training": {"lora": {"target_modules": "all-linear"},
                             "quantization": {"load_in_4bit": true, "llm_int8_skip_modules": ["lm_.*"]}})",
             "not-modelled", "/training/quantization/llm_int8_skip_modules"),
      member(R"("parallel": {"data": 8})", "inconsistent", "/parallel/data"),
      member(R"("parallel": {"strategy": "ddp", "ddp": {"gradient_as_bucket_views": true}})", "unknown-key",
             "/parallel/ddp/gradient_as_bucket_views"),
      member(R"("parallel": {"strategy": "ddp", "ddp": {"bucket_cap_mb": 0}})", "out-of-range",
             "/parallel/ddp/bucket_cap_mb"),
      member(R"("parallel": {"strategy": "ddp", "ddp": {"find_unused_parameters": true}},
                "training": {"activation_checkpointing": "reentrant"})",
             "inconsistent", "/parallel/ddp/find_unused_parameters"),
      member(R"("parallel": {"strategy": "ddp", "ddp": {"lazy_bucket_allocation": true}}, "runtime": {"torch": "2.8"})",
             "inconsistent", "/parallel/ddp/lazy_bucket_allocation"),
      member(R"("parallel": {"strategy": "fsdp2", "fsdp": {"mp": true}})", "inconsistent", "/parallel/fsdp/mp"),
      member(R"("parallel": {"strategy": "fsdp2", "fsdp": {"wrap": ["LlamaMLP"]}})", "unknown-value",
             "/parallel/fsdp/wrap"),
      member(R"("parallel": {"strategy": "fsdp2", "fsdp": {"reshard": true}})", "unknown-key",
             "/parallel/fsdp/reshard"),
      member(R"("parallel": {"strategy": "fsdp1", "fsdp": {"cpu_offload": true, "sharding": "NO_SHARD"}})",
             "not-modelled", "/parallel/fsdp/cpu_offload"),
      member(R"("parallel": {"strategy": "ddp", "fsdp": {}})", "inconsistent", "/parallel/fsdp"),
      member(R"("parallel": {"strategy": "fsdp1", "fsdp": {"reshard_after_forward": false}})", "inconsistent",
             "/parallel/fsdp/reshard_after_forward"),
      member(R"("parallel": {"strategy": "fsdp2", "fsdp": {"sharding": "SHARD_GRAD_OP"}})", "inconsistent",
             "/parallel/fsdp/sharding"),
      member(R"("parallel": {"strategy": "fsdp1", "fsdp": {"sharding": "HYBRID_SHARD"}})", "not-modelled",
             "/parallel/fsdp/sharding"),
      member(R"("parallel": {"strategy": "fsdp1", "fsdp": {"sharding": "SHARD"}})", "unknown-value",
             "/parallel/fsdp/sharding"),
      member(R"("parallel": {"strategy": "fsdp1", "fsdp": {"keep_low_precision_grads": true}})", "inconsistent",
             "/parallel/fsdp/keep_low_precision_grads"),
      member(R"("parallel": {"strategy": "fsdp1", "fsdp": {"param_dtype": "bf16"}})", "inconsistent",
             "/parallel/fsdp/param_dtype"),
      member(R"("parallel": {"strategy": "fsdp1"}, "training": {"precision": "amp-fp16"})", "not-modelled",
             "/parallel/fsdp"),
      member(R"("parallel": {"strategy": "deepspeed", "zero_stage": 2, "ddp": {}})", "inconsistent", "/parallel/ddp"),
      member(R"("parallel": {"strategy": "deepspeed"})", "missing", "/parallel/zero_stage"),
      member(R"("parallel": {"strategy": "deepspeed", "zero_stage": 0})", "not-modelled", "/parallel/zero_stage"),
      member(R"("parallel": {"zero_stage": 2})", "inconsistent", "/parallel/zero_stage"),
      member(zero2 + R"(, "rank": 4})", "out-of-range", "/parallel/rank"),
      member(zero2 + R"(}, "gpu": {"count": 8})", "inconsistent", "/gpu/count"),
      member(zero2 + R"(}, "training": {"precision": "amp-bf16"})", "inconsistent", "/parallel/strategy"),
      member(ds("{}"), "missing", "/parallel/ds_config/zero_optimization"),
      member(ds(R"({"zero_optimization": {"stage": 0}})"), "not-modelled",
             "/parallel/ds_config/zero_optimization/stage"),
      member(ds(R"({"zero_optimization": {"stage": 2, "reduce_buckt_size": 1}})"), "unknown-key",
             "/parallel/ds_config/zero_optimization/reduce_buckt_size"),
      member(ds(R"({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4})"), "inconsistent",
             "/parallel/ds_config/train_micro_batch_size_per_gpu"),
      member(ds(R"({"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}})"), "inconsistent",
             "/parallel/ds_config/fp16/enabled"),
      member(ds(R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "Lamb"}})"), "inconsistent",
             "/parallel/ds_config/optimizer/type"),
      member(
          ds(R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}})"),
          "not-modelled", "/parallel/ds_config/optimizer/params/max_grad_norm"),
      member(R"("training": {"optimizer": {"implementation": "deepspeed-fused"}})", "inconsistent",
             "/parallel/strategy"),
      member(ds(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}})"), "not-modelled",
             "/parallel/ds_config/zero_optimization/zero_hpz_partition_size"),
      member(ds(R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true}})"), "not-modelled",
             "/parallel/ds_config/zero_optimization/zero_quantized_weights"),
      member(ds(R"({"zero_optimization": {"stage": 2}, "prescale_gradients": true})"), "inconsistent",
             "/parallel/ds_config/prescale_gradients"),
      member(ds(R"({"zero_optimization": {"stage": 3}, "gradient_predivide_factor": 2.0})"), "inconsistent",
             "/parallel/ds_config/gradient_predivide_factor"),
      member(ds(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"), "inconsistent",
             "/parallel/ds_config/zero_optimization/offload_param/device"),
      member(ds(R"({"zero_optimization": {"stage": 3}})") +
                 R"(, "training": {"activation_checkpointing": {"segments": {"layers": [0]}}})",
             "not-modelled", "/parallel/ds_config"),
      member(ds(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pinned": true}}})"),
             "unknown-key", "/parallel/ds_config/zero_optimization/offload_optimizer/pinned"),
      member(ds(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})") +
                 R"(, "runtime": {"deepspeed": "0.14.4"})",
             "not-modelled", "/parallel/ds_config/zero_optimization/offload_optimizer/device"),
      member(R"("gpu": {"name": "h101-80gb"})", "unknown-gpu", "/gpu/name"),
      member(R"("gpu": {"name": "h100-80gb", "usable_bytes": 17179869184})", "inconsistent", "/gpu/name"),
      member(R"("gpu": {"usable_bytes": 17179869184, "compute_capability": "99"})", "out-of-range",
             "/gpu/compute_capability"),
      member(R"("gpu": {"usable_bytes": 0})", "out-of-range", "/gpu/usable_bytes"),
      member(R"("runtime": {"torch": "2.16"})", "out-of-range", "/runtime/torch"),
      {preset_job("qwen2.5-7b", R"("runtime": {"transformers": "4.45"})"), "not-modelled", "/runtime/transformers"},
      member(R"("runtime": {"torch": 2.15})", "wrong-type", "/runtime/torch"),
      member(R"("runtime": {"transformers": "four"})", "out-of-range", "/runtime/transformers"),
      member(R"("runtime": {"framework": "llava"})", "inconsistent", "/runtime/framework"),
      member(R"("runtime": {"cudnn": 1})", "wrong-type", "/runtime/cudnn"),
      config(R"({"num_hidden_layers": 10001})", "out-of-range", "/num_hidden_layers"),
      config(R"({"num_hidden_layers": 1000000000000000000})", "out-of-range", "/num_hidden_layers"),
      config(R"({"num_hidden_layers": 0})", "out-of-range", "/num_hidden_layers"),
      config(R"({"num_hidden_layers": "many"})", "wrong-type", "/num_hidden_layers"),
      config(R"({"num_hidden_layers": [1]})", "wrong-type", "/num_hidden_layers"),
      config(R"({"hidden_size": "nan"})", "wrong-type", "/hidden_size"),
      config(R"({"hidden_size": "-4096"})", "out-of-range", "/hidden_size"),
      config(R"({"hidden_size": 4095})", "inconsistent", "/hidden_size"),
      config(R"({"head_dim": 63})", "inconsistent", "/head_dim"),
      config(R"({"num_key_value_heads": 5})", "inconsistent", "/num_key_value_heads"),
      config(R"({"hidden_act": "geglu"})", "unknown-value", "/hidden_act"),
      config(R"({"pad_token_id": 32000})", "out-of-range", "/pad_token_id"),
      config(R"({"attention_dropout": 1.5})", "out-of-range", "/attention_dropout"),
      config(R"({"architectures": ["LlamaForMultipleChoice"]})", "unsupported-model", "/architectures"),
      config(R"({"text_config": []})", "wrong-type", "/text_config", "llava-1.5-7b"),
      config(R"({"text_config": {"model_type": "gemma"}})", "unknown-value", "/text_config/model_type", "llava-1.5-7b"),
      config(R"({"model_type": "qwen2", "architectures": null, "num_hidden_layers": 1,
                 "layer_types": ["sliding_attention"]})",
             "inconsistent", "/layer_types"),
      config(R"({"model_type": "qwen2", "architectures": null, "layer_types": ["full_attention"]})", "inconsistent",
             "/layer_types"),
      config(R"({"model_type": "qwen2", "architectures": null, "num_hidden_layers": 1,
                 "layer_types": ["chunked_attention"]})",
             "not-modelled", "/layer_types"),
      config(R"({"vision_feature_layer": 25})", "out-of-range", "/vision_feature_layer", "llava-1.5-7b"),
      config(R"({"vision_feature_layer": [-2, -26]})", "out-of-range", "/vision_feature_layer/1", "llava-1.5-7b"),
      config(R"({"vision_feature_layer": []})", "out-of-range", "/vision_feature_layer", "llava-1.5-7b"),
      config(R"({"vision_feature_select_strategy": "some"})", "unknown-value", "/vision_feature_select_strategy",
             "llava-1.5-7b"),
      own(siglip, R"(, "parallel": {"strategy": "fsdp2", "data": 2})", "not-modelled", "/parallel/strategy"),
      own(siglip, R"(, "training": {"liger": true})", "not-modelled", "/training/liger"),
      own(siglip, R"(, "runtime": {"framework": "llava"})", "inconsistent", "/runtime/framework"),
      own(siglip, R"(, "runtime": {"transformers": "4.57"})", "not-modelled", "/runtime/transformers"),
      own(R"({"model_type": "llava_next", "vision_config": {"model_type": "siglip_vision_model"}})", "", "inconsistent",
          "/model/config/vision_feature_select_strategy"),
      own(R"({"model_type": "nanovlm", "mp_pixel_shuffle_factor": 4})", "", "inconsistent",
          "/model/config/mp_image_token_length"),
      own(R"({"model_type": "nanovlm", "mp_pixel_shuffle_factor": 3})", "", "inconsistent",
          "/model/config/mp_pixel_shuffle_factor"),
      own(R"({"model_type": "nanovlm", "lm_dropout": 0.1})", "", "not-modelled", "/model/config/lm_dropout"),
      own(nanovlm, R"(, "training": {"precision": "bf16"})", "inconsistent", "/training/precision"),
      own(nanovlm, R"(, "training": {"activation_checkpointing": "reentrant"})", "not-modelled",
          "/training/activation_checkpointing"),
      own(nanovlm, R"(, "data": {"images_per_sample": 2})", "inconsistent", "/data/images_per_sample"),
      own(nanovlm, R"(, "parallel": {"strategy": "fsdp2", "data": 2})", "not-modelled", "/parallel/strategy"),
      own(nanovlm, R"(, "task": "inference", "training": {"precision": "bf16"})", "inconsistent",
          "/training/precision"),
      own(nanovlm, R"(, "task": "inference", "training": {"attention": "eager"})", "not-modelled",
          "/training/attention"),
      own(nanovlm, R"(, "task": "inference", "inference": {"turns": 2})", "inconsistent", "/inference/turns"),
      own(nanovlm, R"(, "task": "inference", "inference": {"logits": "all"})", "inconsistent", "/inference/logits"),
      own(nanovlm, R"(, "task": "inference", "inference": {"cache": {"implementation": "static"}})", "inconsistent",
          "/inference/cache"),
      config(R"({"vision_config": {"patch_size": 337}})", "inconsistent", "/vision_config/patch_size", "llava-1.5-7b"),
      config(R"({"vision_config": {"image_size": [336, 336]}})", "wrong-type", "/vision_config/image_size",
             "llava-1.5-7b"),
  };
}

TEST_CASE("What is wrong is named by its pointer, with what was found and what would be right", "[job]") {
  for (const Bad& bad : bad_jobs()) {
    const Result<Job> job = parse_job(bad.text);
    INFO(bad.text.substr(0, 300));
    REQUIRE_FALSE(job.has_value());
    INFO(job.error().message);
    CHECK(job.error().code == bad.code);
    CHECK(job.error().pointer == bad.pointer);
    CHECK_FALSE(job.error().message.empty());
  }
}

TEST_CASE("A near miss is suggested", "[job]") {
  const auto message = [](const std::string& text) { return parse_job(text).error().message; };
  CHECK(message(preset_job("llava-1.5-7")).ends_with("did you mean \"llava-1.5-7b\"?"));
  CHECK(message(preset_job("Qwen/Qwen2.5-VL-7B-Instruct")).ends_with("did you mean \"qwen2.5-vl-7b\"?"));
  CHECK(message(preset_job("llama-2-7b", R"("gpu": {"name": "a100-80g"})")).ends_with("did you mean \"a100-80gb\"?"));
  CHECK(message(preset_job("llama-2-7b", R"("trainig": {})")) ==
        "found the unknown key \"trainig\"; did you mean \"training\"?");
}

TEST_CASE("What a job is answered without is said, and the verdict is tight at best", "[job]") {
  for (const char* member : {R"("torch_compile": true)", R"("fp8": true)",
                             R"("lora": {"target_modules": "all-linear"}, "quantization": {"load_in_8bit": true})"}) {
    const Result<Job> job =
        parse_job(std::string(R"({"model": {"preset": "llama-3-8b"}, "training": {)") + member + "}}");
    REQUIRE(job);
    REQUIRE(job->unmodelled.size() == 1);
    CHECK(job->unmodelled.front().may_need_more());
  }
}

}  // namespace
}  // namespace oometer
