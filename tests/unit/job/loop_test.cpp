#include <catch2/catch_test_macros.hpp>
#include <string>

#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"

namespace oometer {
namespace {

std::string looped(const std::string& loop, const std::string& more = "") {
  return R"({"version": 1, "model": {"preset": "llama-3-8b"}, "training": {"loop": )" + loop + more + "}}";
}

Error error_in(const std::string& job) {
  const Result<Job> result = parse_job(job);
  return result ? Error{"none", "", ""} : result.error();
}

TEST_CASE("A trainer has its own defaults", "[job]") {
  const Result<Job> job = parse_job(looped(R"("transformers.Trainer")"));
  REQUIRE(job);
  CHECK(job->data.micro_batch_size == 8);
  CHECK(job->training.max_grad_norm == 1.0);
  CHECK(job->training.loop.loads_on_host);
  CHECK(job->training.precision == Precision::bf16);
  CHECK(parse_job(looped(R"("step")"))->data.micro_batch_size == 1);
}

TEST_CASE("A trainer's arguments say what plain keys say", "[job]") {
  const Result<Job> job = parse_job(looped(
      R"({"name": "transformers.Trainer", "load": "device", "args": {"per_device_train_batch_size": 2, "bf16": true,
          "gradient_checkpointing": true, "gradient_accumulation_steps": 4, "optim": "adamw_torch", "max_grad_norm": 0,
          "learning_rate": 2e-5, "label_smoothing_factor": 0.1}})",
      R"(, "precision": "fp32")"));
  REQUIRE(job);
  CHECK(job->data.micro_batch_size == 2);
  CHECK(job->training.precision == Precision::amp_bf16);
  CHECK(job->training.checkpointing.mode == CheckpointMode::non_reentrant);
  CHECK(job->training.gradient_accumulation_steps == 4);
  CHECK(job->training.optimizer.implementation == OptimizerImplementation::foreach_);
  CHECK(job->training.max_grad_norm == 0.0);
  CHECK(job->training.loop.label_smoothing_factor == 0.1);
  CHECK_FALSE(job->training.loop.loads_on_host);
}

TEST_CASE("Weights and autocast have types of their own", "[job]") {
  const auto precision = [](const std::string& said) {
    const Result<Job> job = parse_job(looped(R"("step")", R"(, "precision": )" + said));
    REQUIRE(job);
    return job->training.precision;
  };
  CHECK(precision(R"({"weights": "bf16", "autocast": "bf16"})") == Precision::bf16_in_autocast);
  CHECK(precision(R"({"weights": "fp32", "autocast": "fp16"})") == Precision::amp_fp16);
  CHECK(precision(R"({"weights": "fp16", "autocast": null})") == Precision::fp16);
  CHECK(error_in(looped(R"("step")", R"(, "precision": {"weights": "bf16", "autocast": "fp16"})")).code ==
        "not-modelled");
  CHECK(error_in(looped(R"("step")", R"(, "precision": {"autocast": "fp32"})")).code == "inconsistent");
}

TEST_CASE("What a trainer's arguments have wrong is said in its own terms", "[job]") {
  const auto trainer = [](const std::string& args, const std::string& more = "") {
    return error_in(looped(R"({"name": "transformers.Trainer", "args": )" + args + "}", more));
  };
  Error error = trainer(R"({"max_grad_norm": 2})", R"(, "max_grad_norm": 1)");
  CHECK(error.pointer == "/training/loop/args/max_grad_norm");
  CHECK(error.message == "found 2; the job's /training/max_grad_norm is 1: leave one of them out");
  error = trainer(R"({"bf16": true})", R"(, "precision": "amp-fp16")");
  CHECK(error.pointer == "/training/loop/args/bf16");
  error = trainer(R"({"fp16": true, "bf16": true})");
  CHECK(error.pointer == "/training/loop/args/fp16");
  error = trainer(R"({"max_length": 1024})");
  CHECK(error.pointer == "/training/loop/args/max_length");
  CHECK(error.message ==
        "found 1024; it is an argument of trl's SFTConfig, DPOConfig, KTOConfig, RewardConfig and ORPOConfig, and "
        "TrainingArguments has none of that name: leave it out");
  CHECK(trainer(R"({"pref_ftx": 0.1})").message ==
        "found 0.1; it is an argument of LLaMA-Factory's FinetuningArguments, and TrainingArguments has none of that "
        "name: leave it out");
  CHECK(trainer(R"({"ld_alpha": 0.1})").message ==
        "found 0.1; it is an argument of trl's DPOConfig and LLaMA-Factory's FinetuningArguments, and "
        "TrainingArguments has none of that name: leave it out");
  error = trainer(R"({"optim": "galore_adamw"})");
  CHECK(error.code == "inconsistent");
  error = trainer(R"({"use_cpu": true})");
  CHECK(error.message == "found true; not supported yet: leave it out");
  error = trainer("[]");
  CHECK(error.code == "wrong-type");
  const char* const grouped =
      R"({"name": "transformers.Trainer", "args": {"train_sampling_strategy": "group_by_length"}})";
  CHECK(parse_job(looped(grouped)));
  CHECK(error_in(looped(R"("trl.GRPOTrainer")")).pointer == "/training/loop");
  CHECK(
      error_in(R"({"version": 1, "model": {"preset": "t5gemma-2b-2b"}, "training": {"loop": "transformers.Trainer"}})")
          .code == "not-modelled");
  error = error_in(
      looped(R"({"name": "transformers.Trainer", "compute_metrics": true, "args": {"eval_strategy": "steps"}})"));
  CHECK(error.pointer == "/training/loop/compute_metrics");
}

TEST_CASE("LLaVATrainer's arguments say what its train.py does", "[job][llava]") {
  const auto job = [](const std::string& args, const std::string& framework = "llava", const std::string& more = "") {
    return R"({"version": 1, "model": {"preset": "llava-1.5-7b"}, "data": {"micro_batch_size": 2, "sequence_length": 2048},
               "training": {"loop": {"name": "llava.LLaVATrainer", "args": )" +
           args + "}" + more + R"(}, "runtime": {"framework": ")" + framework + R"("}})";
  };
  const Job tuned = *parse_job(
      job(R"({"bf16": true, "gradient_checkpointing": true, "lora_enable": true, "mm_projector_lr": 2e-5})"));
  CHECK(tuned.training.stage == Stage::finetune);
  CHECK(tuned.training.precision == Precision::bf16_in_autocast);
  CHECK(tuned.training.float32_modules == std::vector<std::string>{"mm_projector"});
  CHECK(tuned.training.checkpointing.mode == CheckpointMode::reentrant);
  CHECK(tuned.training.optimizer.param_groups == 4);
  CHECK(tuned.training.optimizer.implementation == OptimizerImplementation::foreach_);
  CHECK(tuned.training.lora->also_train == std::vector<std::string>{"mm_projector"});
  CHECK(error_in(job("{}")).pointer == "/training/loop/args");
  CHECK(error_in(job(R"({"bf16": true, "bits": 4})")).pointer == "/training/loop/args/bits");
  CHECK(error_in(job(R"({"bf16": true})", "transformers")).pointer == "/training/loop");
  CHECK(error_in(job(R"({"bf16": true})", "llava", R"(, "stage": "full")")).pointer == "/training/stage");
  CHECK(error_in(job(R"({"bf16": true, "neftune_noise_alpha": 5})")).code == "not-modelled");
  CHECK(error_in(job(R"({"bf16": true, "loss_type": "nll"})")).code == "inconsistent");
}

TEST_CASE("Samples of like length come together where the trainer sorts them", "[job]") {
  const auto grouped = [](const std::string& data, const std::string& trainer = "transformers.Trainer",
                          const std::string& more = "", const std::string& strategy = "group_by_length") {
    return R"({"version": 1, "model": {"preset": "llama-3-8b"}, "data": )" + data +
           R"(, "training": {"loop": {"name": ")" + trainer + R"(", "args": {"train_sampling_strategy": ")" + strategy +
           "\"" + more + "}}}}";
  };
  const std::string lengths = R"({"lengths": {"histogram": [[100, 30], [500, 9]]}, "micro_batch_size": 2})";
  Result<Job> job = parse_job(grouped(lengths, "transformers.Trainer", R"(, "gradient_accumulation_steps": 3)"));
  REQUIRE(job);
  CHECK(job->samples.by_length == LengthGroups{6, 1});
  // Batches are a data set then, of which another order is made.
  job = parse_job(grouped(R"({"lengths": {"batches": [[100, 200], [300, 100], [200, 100]]}})", "trl.SFTTrainer"));
  REQUIRE(job);
  CHECK(job->samples.batches.empty());
  CHECK(job->samples.histogram == std::vector<std::array<std::int64_t, 2>>{{100, 3}, {200, 2}, {300, 1}});
  CHECK(job->samples.steps == 3);
  CHECK(job->data.micro_batch_size == 2);
  job = parse_job(grouped(R"({"lengths": {"batches": [[200, 200], [200, 200]]}})"));
  REQUIRE(job);
  CHECK(job->samples.batches.size() == 2);
  CHECK(error_in(grouped(lengths, "trl.DPOTrainer")).code == "inconsistent");
  CHECK(error_in(grouped(lengths, "trl.SFTTrainer", R"(, "packing": true)")).code == "not-modelled");
  CHECK(error_in(grouped(lengths, "transformers.Trainer", "", "batch_rebalance")).code == "not-modelled");
  CHECK(error_in(grouped(lengths, "transformers.Trainer", "", "by_length")).code == "unknown-choice");
}

TEST_CASE("What older TRL cannot is said", "[job]") {
  const auto older = [](const char* version, const std::string& args, const std::string& trainer = "trl.SFTTrainer",
                        const std::string& more = "") {
    return R"({"version": 1, "model": {"preset": "llama-3-8b"}, "runtime": {"trl": ")" + std::string(version) +
           R"("}, "training": {"loop": {"name": ")" + trainer + R"(", "args": {)" + args + "}}}" + more + "}";
  };
  const Result<Job> job = parse_job(older("1.8", ""));
  REQUIRE(job);
  CHECK(job->training.loop.chunks_loss());
  CHECK_FALSE(job->training.loop.has_fused_head());
  CHECK(parse_job(older("1.8", R"("loss_type": "nll")"))->training.loop.trl.metrics == SftMetrics::of_one_view);
  CHECK(parse_job(older("1.16", ""))->training.loop.has_fused_head());
  CHECK(error_in(older("1.2", R"("loss_type": "chunked_nll")")).code == "unknown-choice");
  CHECK(error_in(older("1.8", R"("loss_type": "dft")")).code == "not-modelled");
  CHECK(error_in(older("1.14", R"("loss_type": "nll")")).code == "not-modelled");
  CHECK(error_in(older("1.8", R"("use_liger_kernel": true)")).code == "not-modelled");
  CHECK(error_in(older("1.8", R"("packing": true)")).code == "not-modelled");
  CHECK(error_in(older("1.8", "", "trl.DPOTrainer")).code == "not-modelled");
  CHECK(error_in(older("1.8", "", "trl.SFTTrainer", R"(, "parallel": {"strategy": "ddp", "data": 2})")).code ==
        "not-modelled");
  CHECK(error_in(older("0.9", "")).pointer == "/runtime/trl");
}

std::string sft(const std::string& args, const std::string& data = "{}", const std::string& more = "") {
  return R"({"version": 1, "model": {"preset": "llama-3-8b"}, "data": )" + data +
         R"(, "training": {"loop": {"name": "trl.SFTTrainer", "args": )" + args + "}" + more + "}}";
}

TEST_CASE("A trainer looks for unused parameters under DDP where Trainer does", "[job]") {
  const auto ddp_of = [](const std::string& args, const std::string& more = "") {
    const Result<Job> job = parse_job(
        R"({"version": 1, "model": {"preset": "llama-3-8b"}, "training": {"loop": {"name": "transformers.Trainer", "args": )" +
        args + "}" + more + R"(}, "parallel": {"strategy": "ddp", "data": 4}})");
    REQUIRE(job);
    return job->parallel.ddp;
  };
  CHECK(ddp_of("{}").find_unused_parameters);
  CHECK_FALSE(ddp_of(R"({"gradient_checkpointing": true})").find_unused_parameters);
  CHECK_FALSE(ddp_of("{}", R"(, "activation_checkpointing": "reentrant")").find_unused_parameters);
  CHECK(ddp_of(R"({"gradient_checkpointing": true})", R"(, "lora": {"rank": 8, "target_modules": ["q_proj"]})")
            .find_unused_parameters);
  const DdpConfig own = ddp_of(R"({"ddp_find_unused_parameters": false, "ddp_bucket_cap_mb": 64,
                                   "ddp_broadcast_buffers": false, "ddp_static_graph": true})");
  CHECK(own == DdpConfig{.bucket_cap_mb = 64, .broadcast_buffers = false, .static_graph = true});
  const Error error = error_in(
      R"({"version": 1, "model": {"preset": "llama-3-8b"}, "training": {"loop": {"name": "transformers.Trainer",
          "args": {"ddp_bucket_cap_mb": 64}}}, "parallel": {"strategy": "ddp", "data": 4, "ddp": {"bucket_cap_mb": 25}}})");
  CHECK(error.pointer == "/training/loop/args/ddp_bucket_cap_mb");
}

TEST_CASE("Under DeepSpeed a trainer's precision is the engine's", "[job]") {
  const auto job_of = [](const std::string& training, const std::string& parallel) {
    const Result<Job> job = parse_job(R"({"version": 1, "model": {"preset": "llama-3-8b"}, "training": {)" + training +
                                      R"(}, "parallel": {)" + parallel + "}}");
    REQUIRE(job);
    return *job;
  };
  const std::string zero2 = R"("strategy": "deepspeed", "zero_stage": 2, "data": 8)";
  const std::string bf16 = R"("loop": {"name": "transformers.Trainer", "args": {"bf16": true}})";
  CHECK(job_of(bf16 + R"(, "precision": "fp32")", zero2).training.precision == Precision::bf16);
  CHECK(job_of(R"("loop": "trl.SFTTrainer")", zero2).training.precision == Precision::bf16);
  CHECK(job_of(R"("loop": "transformers.Trainer", "precision": "amp-fp16")", zero2).training.precision ==
        Precision::fp16);
  const Job given = job_of(
      R"("loop": {"name": "transformers.Trainer", "args": {"bf16": true, "deepspeed": {"bf16": {"enabled": "auto"},
          "gradient_clipping": "auto", "zero_optimization": {"stage": 1}}}})",
      R"("data": 2)");
  CHECK(given.parallel.strategy == Strategy::deepspeed);
  CHECK(given.parallel.deepspeed.zero_stage == 1);
  CHECK(given.parallel.deepspeed.gradient_clipping == 1.0);
  const auto refusal_of = [](const std::string& loop, const std::string& config) {
    return error_in(R"({"version": 1, "model": {"preset": "llama-3-8b"}, "training": {"loop": )" + loop +
                    R"(}, "parallel": {"strategy": "deepspeed", "data": 2, "ds_config": {"zero_optimization": )" +
                    config + "}}}");
  };
  const std::string trainer = R"({"name": "transformers.Trainer", "args": {"eval_strategy": "epoch"}})";
  CHECK(refusal_of(trainer, R"({"stage": 3})").code == "none");
  CHECK(refusal_of(trainer, R"({"stage": 2})").code == "none");
  CHECK(refusal_of(R"("trl.SFTTrainer")", R"({"stage": 3})").code == "none");
  CHECK(refusal_of(R"("trl.DPOTrainer", "precision": "bf16")", R"({"stage": 3})").code == "none");
  CHECK(refusal_of(R"("trl.experimental.orpo.ORPOTrainer")", R"({"stage": 3})").code == "none");
  const std::string adapters = R"("trl.KTOTrainer", "precision": "bf16", "lora": {"rank": 8})";
  CHECK(refusal_of(adapters, R"({"stage": 2})").code == "none");
  for (const std::string& in_zero_3 :
       {std::string(R"("trl.DPOTrainer")"),  // TRL loads a model in float32
        std::string(R"({"name": "trl.DPOTrainer", "args": {"precompute_ref_log_probs": true}}, "precision": "bf16")"),
        adapters})
    CHECK(refusal_of(in_zero_3, R"({"stage": 3})").code == "not-modelled");
  CHECK(refusal_of(R"("transformers.Trainer")", R"({"stage": 3})").code == "none");
  CHECK(refusal_of(R"("transformers.Trainer")", R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})").code ==
        "not-modelled");
  CHECK(error_in(looped(R"({"name": "transformers.Trainer", "args": {"deepspeed": "ds.json"}})")).code == "missing");
}

TEST_CASE("A trainer takes accelerate's mixed_precision where its arguments say none", "[job]") {
  const auto precision_of = [](const std::string& training) {
    const Result<Job> job = parse_job(R"({"version": 1, "model": {"preset": "llama-3-8b"}, "training": {)" + training +
                                      R"(}, "parallel": {"accelerate_config": {"distributed_type": "MULTI_GPU",
                                      "num_processes": 2, "mixed_precision": "bf16"}}})");
    REQUIRE(job);
    CHECK(job->parallel.strategy == Strategy::ddp);
    return job->training.precision;
  };
  CHECK(precision_of(R"("loop": "transformers.Trainer")") == Precision::bf16_in_autocast);
  CHECK(precision_of(R"("loop": "transformers.Trainer", "precision": "fp32")") == Precision::amp_bf16);
  CHECK(precision_of(R"("loop": {"name": "transformers.Trainer", "args": {"fp16": true}}, "precision": "fp32")") ==
        Precision::amp_fp16);
  CHECK(precision_of(R"("loop": "step")") == Precision::amp_bf16);
  CHECK(precision_of(R"("precision": "amp-bf16")") == Precision::amp_bf16);
}

TEST_CASE("SFTTrainer has SFTConfig's defaults", "[job]") {
  const Result<Job> job = parse_job(sft("{}"));
  REQUIRE(job);
  CHECK(job->data.micro_batch_size == 8);
  CHECK(job->data.sequence_length == 1024);
  CHECK(job->training.precision == Precision::amp_bf16);
  CHECK(job->training.checkpointing.mode == CheckpointMode::non_reentrant);
  CHECK(job->training.loop.max_length == 1024);
  CHECK(parse_job(sft("{}", "{}", R"(, "precision": "bf16")"))->training.precision == Precision::bf16_in_autocast);
  CHECK(parse_job(sft(R"({"fp16": true})"))->training.precision == Precision::amp_fp16);
  CHECK(parse_job(sft(R"({"bf16": false})"))->training.precision == Precision::fp32);
  CHECK(parse_job(sft(R"({"model_init_kwargs": {"dtype": "bfloat16"}})"))->training.precision ==
        Precision::bf16_in_autocast);
  CHECK(parse_job(sft(R"({"gradient_checkpointing": false})"))->training.checkpointing.mode == CheckpointMode::none);
  CHECK(parse_job(sft(R"({"max_length": 2048})"))->data.sequence_length == 2048);
  CHECK(parse_job(sft("{}", R"({"sequence_length": 4096})"))->training.loop.max_length == 4096);
  CHECK(parse_job(sft("{}", R"({"lengths": {"batches": [[1500, 20]]}})"))->data.sequence_length == 1024);
  const Result<Job> packed = parse_job(sft(R"({"packing": true})", R"({"micro_batch_size": 2})"));
  REQUIRE(packed);
  CHECK(packed->samples.packing == Packing::bfd);
  CHECK(packed->samples.padding_free);
  CHECK(parse_job(sft(R"({"completion_only_loss": true})"))->samples.scored.kind == ScoredKind::completion);
  CHECK(parse_job(sft(R"({"use_liger_kernel": true})"))->training.liger ==
        LigerConfig{.rope = true, .rms_norm = true, .swiglu = true});
}

TEST_CASE("SFTTrainer's job is the same when it was written and read again", "[job]") {
  for (const char* args :
       {"{}", R"({"bf16": false, "gradient_checkpointing": false})", R"({"max_length": null, "loss_type": "dft"})",
        R"({"packing": true, "max_length": 512})", R"({"padding_free": true, "max_length": null})",
        R"({"pad_to_multiple_of": 64, "max_length": 1000})", R"({"use_liger_kernel": true})"})
    for (const char* data : {"{}", R"({"lengths": {"batches": [[1500, 20]]}})", R"({"sequence_length": 500})"}) {
      CAPTURE(args, data);
      const Result<Job> job = parse_job(sft(args, data));
      REQUIRE(job);
      const Result<Job> again = parse_job(to_json(*job));
      REQUIRE(again);
      CHECK(to_json(*again) == to_json(*job));
      CHECK(again->training == job->training);
      CHECK(again->samples == job->samples);
      CHECK(again->data == job->data);
    }
}

TEST_CASE("What LLaMA-Factory's trainers of preferences cannot do yet is said", "[job]") {
  const auto at = [](const std::string& preset, const std::string& training = "", const std::string& more = "",
                     const std::string& of_model = "") {
    return error_in(R"({"version": 1, "model": {"preset": ")" + preset + "\"" + of_model +
                    R"(}, "training": {"loop": "llamafactory.CustomDPOTrainer")" + training + "}" + more + "}")
        .pointer;
  };
  const std::string loop = "/training/loop", llama = "llama-3-8b";
  CHECK(at(llama).empty());
  CHECK(at("llava-1.5-7b") == loop);
  CHECK(at("mixtral-8x7b") == loop);
  CHECK(at(llama, "", R"(, "parallel": {"strategy": "ddp", "data": 2})") == loop);
  CHECK(at(llama, R"(, "liger": true)") == "/training/liger");
  CHECK(at(llama, R"(, "lora": {"rank": 8})").empty());
  CHECK(at(llama, R"(, "lora": {"rank": 8})", "", R"(, "reference": "copy")") == "/model/reference");
  CHECK(at(llama, "", "", R"(, "reference": "copy")").empty());
  CHECK(at(llama, "", "", R"(, "reference": "precomputed")") == "/model/reference");
}

TEST_CASE("TRL's head stops at a mixture whose config has no num_experts", "[job]") {
  const auto in = [](const char* preset, const char* loop, const char* config = "{}") {
    return error_in(R"({"version": 1, "model": {"preset": ")" + std::string(preset) + R"(", "config": )" + config +
                    R"(}, "training": {"loop": ")" + loop + R"("}})")
        .code;
  };
  for (const char* preset : {"phi-3.5-moe", "granite-3.1-1b-a400m", "granite-4.0-h-tiny"}) {
    INFO(preset);
    CHECK(in(preset, "trl.SFTTrainer") == "inconsistent");
    CHECK(in(preset, "trl.SFTTrainer", R"({"router_aux_loss_coef": 0})") == "none");
    CHECK(in(preset, "transformers.Trainer") == "none");
  }
  CHECK(in("mixtral-8x7b", "trl.SFTTrainer") == "none");
}

TEST_CASE("What SFTTrainer's arguments have wrong is said in its own terms", "[job]") {
  const auto code = [](const std::string& args, const std::string& data = "{}", const std::string& more = "") {
    const Error error = error_in(sft(args, data, more));
    return error.code + " " + error.pointer;
  };
  const std::string at = "/training/loop/args/";
  CHECK(code(R"({"activation_offloading": true})") == "none ");
  CHECK(code(R"({"activation_offloading": true, "label_smoothing_factor": 0.1})") ==
        "not-modelled " + at + "activation_offloading");
  CHECK(code(R"({"assistant_only_loss": true})") == "missing " + at + "assistant_only_loss");
  CHECK(code(R"({"assistant_only_loss": true})", R"({"scored": {"tokens": 100}})") == "none ");
  CHECK(code(R"({"completion_only_loss": false})", R"({"scored": "completion"})") ==
        "inconsistent " + at + "completion_only_loss");
  CHECK(code(R"({"loss_type": "sigmoid"})") == "unknown-choice " + at + "loss_type");
  CHECK(code(R"({"max_length": 512})", R"({"sequence_length": 1024})") == "inconsistent " + at + "max_length");
  CHECK(code(R"({"packing": true, "max_length": null})") == "inconsistent " + at + "packing");
  CHECK(code(R"({"packing": true, "packing_strategy": "bfd_split"})") == "not-modelled " + at + "packing_strategy");
  CHECK(code(R"({"padding_free": true})") == "inconsistent " + at + "padding_free");
  CHECK(code(R"({"router_aux_loss_coef": 0.01})") == "inconsistent " + at + "router_aux_loss_coef");
  CHECK(code(R"({"gamma": 0.1})") == "unknown-key " + at + "gamma");
  CHECK(code(R"({"model_init_kwargs": {"quantization_config": {}}})") ==
        "unknown-key " + at + "model_init_kwargs/quantization_config");
  CHECK(code("{}", R"({"padding_side": "left", "lengths": {"batches": [[5, 6]]}})").starts_with("inconsistent"));
  CHECK(code("{}", "{}", R"(, "lora": {"target_modules": ["q_proj", "lm_head"]})") ==
        "inconsistent /training/lora/target_modules");
  CHECK(code("{}", "{}", R"(, "liger": {"fused_linear_cross_entropy": true})").starts_with("inconsistent"));
}

std::string dpo(const std::string& args, const std::string& model = "", const std::string& more = "") {
  return R"({"version": 1, "model": {"preset": "llama-3-8b")" + model +
         R"(}, "training": {"loop": {"name": "trl.DPOTrainer", "args": )" + args + "}" + more + "}}";
}

TEST_CASE("DPOTrainer compares with a copy, with the policy itself, or with numbers", "[job]") {
  const auto models = [](const std::string& job) {
    const Result<Job> parsed = parse_job(job);
    REQUIRE(parsed);
    const Result<Job> again = parse_job(to_json(*parsed));
    REQUIRE(again);
    CHECK(to_json(*again) == to_json(*parsed));
    CHECK(again->training == parsed->training);
    const Simulation simulation = simulate(*parsed, resolve_behaviours(parsed->runtime));
    REQUIRE_FALSE(simulation.refusal);
    std::size_t roots = 0;
    for (ModuleId module = 0; module < simulation.log.modules.size(); ++module) roots += simulation.log.is_root(module);
    return roots;
  };
  const std::string lora = R"(, "lora": {"rank": 8})";
  CHECK(models(dpo("{}")) == 2);
  CHECK(models(dpo("{}", "", lora)) == 1);
  CHECK(models(dpo("{}", R"(, "reference": "shared")", lora)) == 1);
  CHECK(models(dpo("{}", R"(, "reference": "copy")", lora)) == 2);
  CHECK(models(dpo(R"({"precompute_ref_log_probs": true})")) == 1);
  CHECK(models(dpo(R"({"loss_type": ["ipo"]})", R"(, "reference": "precomputed")")) == 1);
}

TEST_CASE("What DPOTrainer's arguments have wrong is said in its own terms", "[job]") {
  const auto code = [](const std::string& job) {
    const Error error = error_in(job);
    return error.code + " " + error.pointer;
  };
  const std::string at = "/training/loop/args/";
  CHECK(code(dpo("{}", R"(, "reference": "shared")")) == "inconsistent /model/reference");
  CHECK(code(dpo(R"({"precompute_ref_log_probs": true})", R"(, "reference": "copy")")) ==
        "inconsistent /model/reference");
  CHECK(code(dpo(R"({"packing": true})")) == "inconsistent " + at + "packing");
  CHECK(code(dpo(R"({"loss_type": "aot"})")) == "not-modelled " + at + "loss_type");
  CHECK(code(dpo(R"({"use_weighting": true})")) == "not-modelled " + at + "use_weighting");
  CHECK(code(dpo(R"({"f_divergence_type": "forward_kl"})")) == "not-modelled " + at + "f_divergence_type");
  CHECK(code(sft(R"({"beta": 0.1})")) == "inconsistent " + at + "beta");
  CHECK(error_in(R"({"version": 1, "model": {"preset": "llama-3-8b", "reference": "copy"}})").pointer ==
        "/model/reference");
}

std::string preferring(const std::string& trainer, const std::string& args = "{}",
                       const std::string& model = R"("preset": "llama-3-8b")", const std::string& data = "{}") {
  return R"({"version": 1, "model": {)" + model + R"(}, "data": )" + data + R"(, "training": {"loop": {"name": ")" +
         trainer + R"(", "args": )" + args + "}}}";
}

TEST_CASE("RewardTrainer makes a model of one label of any that it is given", "[job]") {
  const Result<Job> job = parse_job(preferring("trl.RewardTrainer"));
  REQUIRE(job);
  CHECK(job->model.config.traits().class_name == "LlamaForSequenceClassification");
  CHECK(job->model.config.traits().labels == 1);
  CHECK(job->samples.are_pairs);
  const Simulation simulation = simulate(*job, resolve_behaviours(job->runtime));
  CHECK_FALSE(simulation.refusal);
  CHECK(simulation.parameters == 7'504'928'768);  // 8B without its head, and 4096 elements in its place
  const Result<Job> again = parse_job(to_json(*job));
  REQUIRE(again);
  CHECK(again->model.config == job->model.config);
  CHECK(error_in(preferring("trl.RewardTrainer", "{}", R"("preset": "clip-vit-l-14-336")")).code != "none");
}

TEST_CASE("What trainers of preferences have wrong is said in their own terms", "[job]") {
  const auto code = [](const std::string& job) {
    const Error error = error_in(job);
    return error.code + " " + error.pointer;
  };
  const std::string at = "/training/loop/args/", orpo = "trl.experimental.orpo.ORPOTrainer";
  CHECK(code(preferring("trl.RewardTrainer", R"({"beta": 0.1})")) == "inconsistent " + at + "beta");
  CHECK(code(preferring("trl.RewardTrainer", R"({"loss_type": "kto"})")) == "inconsistent " + at + "loss_type");
  CHECK(code(preferring("trl.KTOTrainer", R"({"center_rewards_coefficient": 0.1})")) ==
        "inconsistent " + at + "center_rewards_coefficient");
  CHECK(code(preferring("trl.KTOTrainer", R"({"loss_type": "sigmoid"})")) == "unknown-choice " + at + "loss_type");
  CHECK(code(preferring("trl.KTOTrainer", R"({"per_device_train_batch_size": 1})")).starts_with("inconsistent"));
  CHECK(code(preferring(orpo, R"({"precompute_ref_log_probs": true})")) ==
        "inconsistent " + at + "precompute_ref_log_probs");
  CHECK(code(preferring(orpo, R"({"generate_during_eval": true})")) == "not-modelled " + at + "generate_during_eval");
  CHECK(code(preferring(orpo, "{}", R"("preset": "llama-3-8b", "reference": "copy")")) ==
        "inconsistent /model/reference");
  CHECK(code(preferring("trl.RewardTrainer", R"({"max_length": 512})", R"("preset": "llama-3-8b")",
                        R"({"lengths": {"batches": [[600, 100]]}})")) == "inconsistent /data");
  const std::string sees = R"("preset": "llava-1.5-7b")";
  CHECK(parse_job(preferring("trl.DPOTrainer", R"({"max_length": null})", sees)));
  CHECK(code(preferring("trl.DPOTrainer", R"({"precompute_ref_log_probs": true})", sees)) ==
        "inconsistent /training/loop");
  CHECK(code(preferring("trl.DPOTrainer", R"({"pad_to_multiple_of": 64})", sees)) == "inconsistent /data/padding");
  CHECK(code(preferring("trl.KTOTrainer", "{}", sees)) == "none ");
  const std::string other = R"("preset": "smolvlm-2.2b")", none = R"({"images_per_sample": 0})";
  CHECK(code(preferring("trl.DPOTrainer", R"({"max_length": null})", other)) == "not-modelled /training/loop");
  CHECK(parse_job(preferring("trl.DPOTrainer", R"({"max_length": null})", other, none)));
  const std::string classifier =
      R"("preset": "llama-3-8b", "config": {"architectures": ["LlamaForSequenceClassification"], "num_labels": 3})";
  CHECK(code(preferring("trl.SFTTrainer", "{}", classifier)) == "inconsistent /training/loop");
  CHECK(parse_job(preferring("transformers.Trainer", "{}", classifier))->model.config.traits().labels == 3);
}

TEST_CASE("A report has each step, and a trainer's evaluation and checkpoints among its phases", "[job]") {
  const std::string report =
      estimate_json(looped(R"({"name": "transformers.Trainer", "args": {"eval_strategy": "epoch"}})"));
  CHECK(report.find(R"("steps":[{"allocated":)") != std::string::npos);
  CHECK(report.find(R"("name":"evaluation")") != std::string::npos);
  CHECK(report.find(R"("name":"saving")") != std::string::npos);
}

}  // namespace
}  // namespace oometer
