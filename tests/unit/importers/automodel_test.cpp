#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"
#include "job/parse.h"

using nlohmann::json;
using namespace oometer;
using namespace oometer::importers;

namespace {

/// A recipe of fine-tuning with further sections.
std::string recipe(const std::string& sections) {
  return R"({"recipe": "TrainFinetuneRecipeForNextTokenPrediction", "dist_env": {"backend": "nccl"},
             "model": {"_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
                       "pretrained_model_name_or_path": "Qwen/Qwen3-0.6B"},
             "dataset": {"_target_": "x", "seq_length": 512},
             "optimizer": {"_target_": "torch.optim.Adam", "lr": 1e-5, "weight_decay": 0})" +
         sections + "}";
}

void check_taken(const Ledger& ledger) {
  INFO(to_json(ledger));
  CHECK_FALSE(ledger.refused);
  CHECK(parse_job(ledger.job.dump()).has_value());
}

}  // namespace

TEST_CASE("Automodel loads weights as published, clips to 1 and accumulates to its global batch",
          "[importers][automodel]") {
  const Ledger one = ask_one(recipe(R"(, "step_scheduler": {"local_batch_size": 2})"));
  check_taken(one);
  CHECK(one.trainer == "nemo-automodel 0.7.0");
  CHECK(at(one, "/training/precision") == "bf16");
  CHECK(at(one, "/training/max_grad_norm") == 1.0);
  CHECK(at(one, "/training/gradient_accumulation_steps") == 16);  // StepSchedulerConfig: 32 samples
  CHECK(at(one, "/training/activation_checkpointing") == "none");
  CHECK(at(one, "/training/attention") == "sdpa");
  CHECK(at(one, "/training/optimizer") == json({{"name", "torch.optim.Adam"}, {"args", {{"weight_decay", 0}}}}));
  CHECK(at(one, "/data/sequence_length") == 512);
  CHECK(at(one, "/parallel/strategy") == "absent");
  CHECK(taken_at(one, "/training/max_grad_norm")->is_default);
  CHECK(at(one, "/training/loop") == json({{"name", "step"}, {"project", "automodel"}}));
  CHECK(at(one, "/training/use_cache") == true);
  CHECK(one.job["model"]["config"]["model_type"] == "automodel_qwen3");  // a class of its own
  CHECK(left_out(one, "model._target_") == nullptr);
  CHECK(is_ignored(one, "dist_env"));
  CHECK(is_ignored(one, "optimizer.lr"));
}

TEST_CASE("Automodel shards by FSDP2 in bf16 over as many GPUs as there are", "[importers][automodel]") {
  const std::string text = recipe(R"(, "step_scheduler": {"local_batch_size": 2, "global_batch_size": 64},
      "distributed": {"dp_size": "none", "cp_size": 2, "activation_checkpointing": true})");
  const Ledger eight = ask({file_of("given", text)}, 8);
  check_taken(eight);
  CHECK(at(eight, "/parallel/strategy") == "fsdp2");
  CHECK(at(eight, "/parallel/data") == 4);
  CHECK(at(eight, "/parallel/fsdp") == json({{"preparer", "automodel"}, {"reduce_dtype", "fp32"}}));
  CHECK(at(eight, "/training/gradient_accumulation_steps") == 8);
  CHECK(at(eight, "/training/activation_checkpointing") == "non-reentrant");
  CHECK(left_out(eight, "distributed.activation_checkpointing") == nullptr);
  REQUIRE(left_out(eight, "distributed.cp_size") != nullptr);
  CHECK(left_out(eight, "distributed.cp_size")->effect == Effect::less);
  CHECK(left_out(eight, "distributed.strategy") == nullptr);
  const Ledger master = ask({file_of("given", R"({"step_scheduler": {}, "dataset": {"seq_len": 128},
      "model": {"pretrained_model_name_or_path": "Qwen/Qwen3-0.6B", "torch_dtype": "float32"},
      "distributed": {"dp_size": 4}})")});
  check_taken(master);
  CHECK(at(master, "/parallel/data") == 4);
  CHECK(at(master, "/training/precision") == "fp32");
  CHECK(at(master, "/parallel/fsdp") ==
        json({{"param_dtype", "bf16"}, {"preparer", "automodel"}, {"reduce_dtype", "fp32"}}));
  const Ledger ddp = ask({file_of("given", recipe(R"(, "distributed": {"strategy": "ddp"})"))}, 2);
  check_taken(ddp);
  CHECK(at(ddp, "/parallel/strategy") == "ddp");
  CHECK(at(ddp, "/parallel/ddp/broadcast_buffers") == false);
}

TEST_CASE("Automodel's adapters have the weights' type and patterns of paths", "[importers][automodel]") {
  const Ledger usual = ask_one(recipe(R"(, "peft": {"_target_": "nemo_automodel.components._peft.lora.PeftConfig"})"));
  check_taken(usual);
  CHECK(at(usual, "/training/lora") == json({{"rank", 8},
                                             {"alpha", 32},
                                             {"dropout", 0.0},
                                             {"target_modules", ".*_proj"},
                                             {"use_dora", false},
                                             {"autocast_adapter_dtype", false}}));
  CHECK(left_out(usual, "peft.use_memory_efficient_lora") == nullptr);
  CHECK(at(usual, "/training/loop/lora_function") == "automodel");  // MLPs of a model made on meta are not fused
  const Ledger theirs =
      ask_one(R"({"step_scheduler": {}, "dataset": {"seq_len": 128}, "peft": {"dim": 4, "use_triton": true},
      "model": {"pretrained_model_name_or_path": "Qwen/Qwen3-0.6B", "force_hf": true}})");
  check_taken(theirs);
  CHECK(at(theirs, "/model/preset") == "qwen3-0.6b");
  CHECK(at(theirs, "/training/loop/lora_function") == "automodel-triton-mlp");
  const Ledger packed = ask_one(recipe(R"(, "packed_sequence": {"packed_sequence_size": 1024})"));
  CHECK(left_out(packed, "model._target_")->effect == Effect::either);  // Transformer Engine's attention
  CHECK(at(packed, "/training/loop") == "absent");
  const Ledger named = ask_one(recipe(R"(, "peft": {"dim": 16, "dropout": 0.1,
      "target_modules": ["*.self_attn.q_proj", "v_proj"]})"));
  check_taken(named);
  CHECK(at(named, "/training/lora/target_modules") == R"(.*\.self_attn\.q_proj|(?:.*\.)?v_proj)");
  CHECK(left_out(named, "peft.dropout_position")->effect == Effect::less);
  const Ledger four = ask_one(recipe(R"(, "peft": {"dim": 16, "match_all_linear": true},
                                         "quantization": {"load_in_4bit": true})"));
  check_taken(four);
  CHECK(at(four, "/training/lora/target_modules") == "all-linear");
  CHECK(at(four, "/training/quantization/bnb_4bit_use_double_quant") == true);
  CHECK(at(four, "/training/quantization/bnb_4bit_compute_dtype") == "bfloat16");
}

TEST_CASE("a section of freezing freezes the tower unless it says otherwise", "[importers][automodel]") {
  const std::string head = R"({"recipe": "FinetuneRecipeForVLM", "step_scheduler": {}, "dataset": {"max_length": 1024},
      "model": {"_target_": "nemo_automodel.NeMoAutoModelForImageTextToText.from_pretrained",
                "pretrained_model_name_or_path": "Qwen/Qwen2.5-VL-3B-Instruct"},
      "processor": {"max_pixels": 200704})";
  const Ledger frozen = ask_one(head + R"(, "freeze_config": {"freeze_language_model": false}})");
  check_taken(frozen);
  CHECK(at(frozen, "/training/freeze") == json({"visual"}));
  CHECK(at(frozen, "/data/max_pixels") == 200704);
  const Ledger whole = ask_one(head + "}");
  check_taken(whole);
  CHECK(at(whole, "/training/freeze") == "absent");
}

TEST_CASE("Automodel's other recipes, models and strategies are refused by name, and a wrong key has its nearest",
          "[importers][automodel]") {
  const Ledger teacher = ask_one(R"({"recipe": "KnowledgeDistillationRecipeForVLM", "step_scheduler": {},
      "model": {"pretrained_model_name_or_path": "Qwen/Qwen3-0.6B"}, "teacher_model": {"x": 1}})");
  REQUIRE(teacher.refused);
  CHECK(teacher.refused->key == "recipe");
  CHECK(left_out(teacher, "teacher_model")->effect == Effect::more);
  const Ledger megatron = ask_one(recipe(R"(, "distributed": {"strategy": "megatron_fsdp"})"));
  REQUIRE(megatron.refused);
  CHECK(megatron.refused->key == "distributed.strategy");
  const Ledger wrong = ask_one(recipe(R"(, "distributed": {"tp_sise": 2}, "step_scheduler": 3, "what": {"a": 1})"));
  REQUIRE(left_out(wrong, "distributed.tp_sise") != nullptr);
  CHECK(left_out(wrong, "distributed.tp_sise")->text.find("did you mean \"distributed.tp_size\"?") !=
        std::string::npos);
  CHECK(left_out(wrong, "what.a") != nullptr);
  const Ledger batch = ask_one(recipe(R"(, "step_scheduler": {"local_batch_size": "many"})"));
  REQUIRE(batch.refused);
  CHECK(batch.refused->key == "step_scheduler.local_batch_size");
  const Ledger unknown = ask_one(R"({"step_scheduler": {}, "model": {"config": {
      "_target_": "transformers.AutoConfig.from_pretrained", "pretrained_model_name_or_path": "a/b"}}})");
  REQUIRE(unknown.missing.size() == 3);
  CHECK(unknown.missing[0].kind == "config.json");
  CHECK(unknown.missing[0].name == "a/b");
  CHECK(unknown.missing[1].name == "dataset.seq_length");  // which the dataset decides
}

TEST_CASE("What Automodel's classes and one GPU pass over is without effect", "[importers][automodel]") {
  const Ledger one = ask_one(recipe(R"(, "freeze_config": {"freeze_audio_tower": true, "freeze_embeddings": true})"));
  CHECK(is_ignored(one, "freeze_config.freeze_audio_tower"));
  CHECK(is_ignored(one, "freeze_config.freeze_embeddings"));
  const std::string backend = R"({"step_scheduler": {}, "dataset": {"seq_len": 128}, "model": {
      "pretrained_model_name_or_path": "Qwen/Qwen3-0.6B",
      "backend": {"rope_fusion": true, "enable_fsdp_optimizations": true}}})";
  CHECK(is_ignored(ask_one(backend), "model.backend.rope_fusion"));
  CHECK(is_ignored(ask_one(backend), "model.backend.enable_fsdp_optimizations"));
  CHECK(left_out(ask({file_of("given", backend)}, 2), "model.backend.enable_fsdp_optimizations") != nullptr);
}

TEST_CASE("Automodel's command line goes over its file", "[importers][automodel]") {
  const Ledger ledger =
      ask({file_of("run.sh", "automodel a/ft.yaml --nproc-per-node 4 --step_scheduler.local_batch_size 4\n"),
           file_of("ft.yaml", recipe(R"(, "step_scheduler": {"local_batch_size": 2, "global_batch_size": 32})"))});
  check_taken(ledger);
  CHECK(at(ledger, "/data/micro_batch_size") == 4);
  CHECK(at(ledger, "/parallel/data") == 4);
  CHECK(at(ledger, "/training/gradient_accumulation_steps") == 2);
}

TEST_CASE("a configuration that is written out is the model", "[importers][automodel]") {
  const Ledger whole = ask_one(R"({"step_scheduler": {}, "dataset": {"seq_len": 128}, "model": {
      "_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_config", "config": {
      "_target_": "transformers.models.qwen3.configuration_qwen3.Qwen3Config", "hidden_size": 256,
      "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 64, "vocab_size": 1024}}})");
  check_taken(whole);
  CHECK(at(whole, "/model/config/model_type") == "qwen3");
  const Ledger changed = ask_one(R"({"step_scheduler": {}, "model": {"config": {
      "pretrained_model_name_or_path": "Qwen/Qwen3-0.6B", "num_hidden_layers": 2}}})");
  REQUIRE(left_out(changed, "model.config") != nullptr);
  CHECK(left_out(changed, "model.config")->value == json({{"num_hidden_layers", 2}}));
}

TEST_CASE("Automodel's sections of another kind than expected are no crash", "[importers][automodel]") {
  for (
      const char* text :
      {R"({"step_scheduler": 1, "model": "a", "distributed": [1], "peft": 3, "optimizer": "adamw", "dataset": null})",
       R"({"step_scheduler": {"local_batch_size": -5, "global_batch_size": 1e30}, "model": {"config": "a/b"},
            "distributed": {"dp_size": 99999999, "tp_size": 99999999, "cp_size": 99999999, "pp_size": 99999999}})",
       R"({"step_scheduler": {}, "model": {"config": {"_target_": "transformers.models."}}, "recipe": {"_target_": 4}})",
       R"({"step_scheduler": {}, "model": {"pretrained_model_name_or_path": "Qwen/Qwen3-0.6B"},
            "peft": {"dim": "x", "target_modules": ["*(", 4, {}]}, "loss_fn": {"_target_": 4},
            "dataset": {"seq_length": 9999999999999}, "freeze_config": {"freeze_vision_tower": "maybe"}})"})
    CHECK_FALSE(to_json(ask_one(text)).empty());
}
