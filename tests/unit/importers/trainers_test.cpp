#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"
#include "job/parse.h"

using nlohmann::json;
using namespace oometer;
using namespace oometer::importers;

namespace {

/// The job is one that the core takes.
void check_accepted(const Ledger& ledger) {
  INFO(to_json(ledger));
  CHECK_FALSE(ledger.refused);
  CHECK(parse_job(ledger.job.dump()).has_value());
}

}  // namespace

TEST_CASE("LLaMA-Factory trains in float32 unless it is told otherwise", "[importers][llamafactory]") {
  const std::string head = R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "bf16": true, )";
  // model/adapter.py: init_adapter casts what trains to float32
  const Ledger full = ask_one(head + R"("finetuning_type": "full"})");
  check_accepted(full);
  CHECK(at(full, "/training/precision") == "amp-bf16");
  const Ledger pure = ask_one(head + R"("finetuning_type": "full", "pure_bf16": true})");
  CHECK(at(pure, "/training/precision/weights") == "bf16");
  const Ledger lora = ask_one(head + R"("finetuning_type": "lora"})");
  check_accepted(lora);
  CHECK(at(lora, "/training/precision") == json({{"weights", "bf16"}, {"autocast", "bf16"}}));
  // hparams: cutoff_len 2048, batch 8, rank 8, alpha twice the rank, all linear layers, reentrant checkpoints
  CHECK(at(lora, "/data/sequence_length") == 2048);
  CHECK(at(lora, "/data/micro_batch_size") == 8);
  CHECK(at(lora, "/training/lora") ==
        json({{"rank", 8}, {"alpha", 16}, {"dropout", 0.0}, {"target_modules", "all-linear"}}));
  CHECK(at(lora, "/training/activation_checkpointing") == "reentrant");
  CHECK(at(lora, "/training/max_grad_norm") == 1.0);
  const Taken* length = taken_at(lora, "/data/sequence_length");
  REQUIRE(length != nullptr);
  CHECK(length->is_default);
  CHECK(length->source == "llamafactory 0.9.5, hparams/data_args.py: DataArguments");
  CHECK(taken_at(lora, "/data/micro_batch_size")->source == "transformers 5.23, training_args.py: TrainingArguments");
  const Ledger off = ask_one(head + R"("disable_gradient_checkpointing": true, "lora_rank": 4})");
  CHECK(at(off, "/training/activation_checkpointing") == "none");
  CHECK(at(off, "/training/lora/alpha") == 8);
}

TEST_CASE("LLaMA-Factory freezes towers, and refuses what is not one of its supported trainings",
          "[importers][llamafactory]") {
  const Ledger sees = ask_one(R"({"model_name_or_path": "Qwen/Qwen2.5-VL-3B-Instruct", "stage": "sft", "bf16": true,
                                  "finetuning_type": "full", "image_max_pixels": 262144})");
  check_accepted(sees);
  CHECK(at(sees, "/training/freeze") == json({"visual.patch_embed", "visual.blocks", "visual.merger"}));
  CHECK(at(sees, "/data/max_pixels") == 262144);
  CHECK(at(sees, "/data/min_pixels") == 1024);
  const Ledger dpo = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "dpo"})");
  REQUIRE(dpo.refused);
  CHECK(dpo.refused->key == "stage");
  const Ledger both =
      ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "bf16": true, "fp16": true})");
  REQUIRE(both.refused);
  CHECK(both.refused->key == "fp16");
  const Ledger mask = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "neat_packing": true,
                                  "cutoff_len": 4096, "per_device_train_batch_size": 2})");
  REQUIRE(left_out(mask, "neat_packing") != nullptr);
  CHECK(left_out(mask, "neat_packing")->effect == Effect::more);
  CHECK(left_out(mask, "neat_packing")->bytes == 2 * 4096 * 4096 * 2);
}

TEST_CASE("TRL loads float32, checkpoints and cuts at 1024 tokens", "[importers][trl]") {
  const Ledger sft = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "trl-lib/Capybara"})");
  check_accepted(sft);
  CHECK(at(sft, "/training/loop/name") == "trl.SFTTrainer");
  CHECK(at(sft, "/training/precision") == "amp-bf16");  // ModelConfig.dtype float32, SFTConfig.bf16
  CHECK(at(sft, "/training/activation_checkpointing") == "non-reentrant");
  CHECK(at(sft, "/training/loop/args/max_length") == 1024);
  CHECK(at(sft, "/training/stage") == "full");
  CHECK(taken_at(sft, "/training/loop/args/max_length")->is_default);
  const Ledger lora = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "use_peft": "True",
                                  "dtype": "bfloat16", "lora_target_modules": ["q_proj", "v_proj"], "packing": true})");
  check_accepted(lora);
  CHECK(at(lora, "/training/precision") == json({{"weights", "bf16"}, {"autocast", "bf16"}}));
  CHECK(at(lora, "/training/lora/rank") == 16);
  CHECK(at(lora, "/training/lora/dropout") == 0.05);
  CHECK(at(lora, "/training/lora/target_modules") == json({"q_proj", "v_proj"}));
  CHECK(at(lora, "/training/loop/args/packing") == true);
  const Ledger dpo = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "beta": 0.1})");
  check_accepted(dpo);
  CHECK(at(dpo, "/training/loop/name") == "trl.DPOTrainer");
  const Ledger quantized = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "use_peft": true,
                                       "load_in_4bit": true, "dtype": "bfloat16"})");
  CHECK(at(quantized, "/training/quantization/bnb_4bit_compute_dtype") == "bfloat16");
  CHECK(at(quantized, "/training/quantization/bnb_4bit_quant_type") == "nf4");
  CHECK(at(quantized, "/training/lora/autocast_adapter_dtype") == false);
  REQUIRE(quantized.refused);  // by the key that asks for it
  CHECK(quantized.refused->key == "load_in_4bit");
  const Ledger half = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "fp16": true})");
  CHECK(at(half, "/training/precision") == "amp-fp16");
}

TEST_CASE("Axolotl loads bf16, checkpoints only if asked and packs a batch into one row", "[importers][axolotl]") {
  const Ledger bare = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B"})");
  check_accepted(bare);
  CHECK(at(bare, "/training/precision") == json({{"weights", "bf16"}, {"autocast", "bf16"}}));
  CHECK(at(bare, "/training/activation_checkpointing") == "none");
  CHECK(at(bare, "/data/sequence_length") == 512);
  CHECK(at(bare, "/data/micro_batch_size") == 1);
  CHECK(at(bare, "/training/gradient_accumulation_steps") == 1);
  // norms, embeddings and head of a model that trains whole are float32: 8 bytes an element of the (tied) embeddings
  REQUIRE(left_out(bare, "adapter") != nullptr);
  CHECK(left_out(bare, "adapter")->bytes == 8 * 151936 * 1024);
  const Ledger packed =
      ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "sequence_len": 2048, "micro_batch_size": 4, "sample_packing": true,
                  "attn_implementation": "flash_attention_2", "gradient_checkpointing": true, "adapter": "lora",
                  "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "lora_target_linear": true})");
  check_accepted(packed);
  CHECK(at(packed, "/data/micro_batch_size") == 1);
  CHECK(at(packed, "/data/sequence_length") == 8192);
  CHECK(at(packed, "/training/activation_checkpointing") == "reentrant");
  CHECK(at(packed, "/training/lora/target_modules") == "all-linear");
  CHECK(left_out(packed, "lora_mlp_kernel") == nullptr);  // its kernels take no dropout
  const Ledger eager = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "sequence_len": 2048, "micro_batch_size": 4,
                                   "sample_packing": true, "attn_implementation": "sdpa"})");
  CHECK(at(eager, "/data/micro_batch_size") == 4);
  const Ledger kernels = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "lora", "lora_r": 16, "lora_alpha": 32,
                                     "lora_target_modules": ["q_proj"]})");
  REQUIRE(left_out(kernels, "lora_mlp_kernel") != nullptr);
  CHECK(left_out(kernels, "lora_mlp_kernel")->effect == Effect::less);
  const Ledger preferences = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "rl": "dpo"})");
  REQUIRE(preferences.refused);
  CHECK(preferences.refused->key == "rl");
  const Ledger full = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "bf16": false, "fp16": false})");
  CHECK(at(full, "/training/precision") == "fp32");
}

TEST_CASE("four bits under a trainer are answered as a plain step, and that is said", "[importers][axolotl]") {
  const Ledger qlora =
      ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "qlora", "load_in_4bit": true, "lora_r": 8,
                                   "lora_alpha": 16, "lora_target_linear": true, "optimizer": "paged_adamw_8bit"})");
  check_accepted(qlora);
  CHECK(at(qlora, "/training/loop") == "absent");
  CHECK(at(qlora, "/training/quantization/load_in_4bit") == true);
  CHECK(taken_at(qlora, "/training/optimizer")->key == "optimizer");
  REQUIRE(left_out(qlora, "") != nullptr);
  CHECK(left_out(qlora, "")->text.find("plain step") != std::string::npos);
}

TEST_CASE("Liger's kernels in Axolotl are those that are named", "[importers][axolotl]") {
  const Ledger some = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "liger_rms_norm": true,
                                  "liger_fused_linear_cross_entropy": true,
                                  "plugins": ["axolotl.integrations.liger.LigerPlugin"]})");
  check_accepted(some);
  CHECK(at(some, "/training/liger") == json({{"rope", false},
                                             {"rms_norm", true},
                                             {"swiglu", false},
                                             {"cross_entropy", false},
                                             {"fused_linear_cross_entropy", true}}));
  const Ledger none = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "liger_rms_norm": true})");
  CHECK(at(none, "/training/liger") == "absent");
}

TEST_CASE("TrainingArguments alone want a model, and have transformers' defaults", "[importers]") {
  const Ledger alone = ask_one(R"({"output_dir": "x", "per_device_train_batch_size": 2, "num_train_epochs": 1})");
  REQUIRE(alone.missing.size() == 1);
  CHECK(alone.missing[0].kind == "config.json");
  CHECK(at(alone, "/training/activation_checkpointing") == "none");
  const Ledger whole = ask({file_of("args.json", R"({"per_device_train_batch_size": 2, "bf16": true})"),
                            file_of("config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                                    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                                    "num_attention_heads": 4, "vocab_size": 1000, "torch_dtype": "float32"})")});
  check_accepted(whole);
  CHECK(at(whole, "/training/precision") == "amp-bf16");  // as published
  CHECK(at(whole, "/data/micro_batch_size") == 2);
}
