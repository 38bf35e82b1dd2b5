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

TEST_CASE("LLaMA-Factory trains in float32 unless the file says pure_bf16", "[importers][llamafactory]") {
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
  const Ledger ppo = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "ppo"})");
  REQUIRE(ppo.refused);
  CHECK(ppo.refused->key == "stage");
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

TEST_CASE("LLaMA-Factory's stages of preferences have trainers of their own", "[importers][llamafactory]") {
  const Ledger rm = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "rm", "bf16": true})");
  check_accepted(rm);
  CHECK(at(rm, "/training/loop/name") == "llamafactory.PairwiseTrainer");
  CHECK(at(rm, "/training/activation_checkpointing") == "reentrant");
  const Ledger dpo = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "dpo", "bf16": true,
                                 "finetuning_type": "full", "pref_ftx": 0.5})");
  check_accepted(dpo);
  CHECK(at(dpo, "/training/loop/name") == "llamafactory.CustomDPOTrainer");
  CHECK(at(dpo, "/training/loop/args/pref_ftx") == 0.5);
  CHECK(at(dpo, "/model/reference_dtype") == "bf16");
  const Ledger orpo = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "dpo", "pref_loss": "orpo"})");
  check_accepted(orpo);
  CHECK(at(orpo, "/training/loop/args/pref_loss") == "orpo");
  const Ledger kto = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "kto", "bf16": true})");
  check_accepted(kto);
  CHECK(at(kto, "/training/loop/name") == "llamafactory.CustomKTOTrainer");
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
  const Ledger kto =
      ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "desirable_weight": 1.2})");
  check_accepted(kto);
  CHECK(at(kto, "/training/loop/name") == "trl.KTOTrainer");
  const Ledger reward = ask_one(
      R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "center_rewards_coefficient": 0.01})");
  check_accepted(reward);
  CHECK(at(reward, "/training/loop/name") == "trl.RewardTrainer");
  CHECK(at(reward, "/training/loop/args/center_rewards_coefficient") == 0.01);
  const Ledger quantized = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "a/b", "use_peft": true,
                                       "load_in_4bit": true, "dtype": "bfloat16"})");
  CHECK(at(quantized, "/training/quantization/bnb_4bit_compute_dtype") == "bfloat16");
  CHECK(at(quantized, "/training/quantization/bnb_4bit_quant_type") == "nf4");
  CHECK(at(quantized, "/training/lora/autocast_adapter_dtype") == false);
  check_accepted(quantized);
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
  // norms, embeddings and head of a model that trains whole are float32
  CHECK(left_out(bare, "adapter") == nullptr);
  CHECK(at(bare, "/training/float32_modules") == json({"norm", "embed_tokens", "lm_head"}));
  const Ledger packed =
      ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "sequence_len": 2048, "micro_batch_size": 4, "sample_packing": true,
                  "attn_implementation": "flash_attention_2", "gradient_checkpointing": true, "adapter": "lora",
                  "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "lora_target_linear": true})");
  check_accepted(packed);
  CHECK(at(packed, "/data/micro_batch_size") == 1);
  CHECK(at(packed, "/data/sequence_length") == 8192);
  CHECK(at(packed, "/training/activation_checkpointing") == "reentrant");
  CHECK(at(packed, "/training/lora/target_modules") == "all-linear");
  for (const char* kernel : {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"})
    CHECK(at(packed, std::string("/training/lora/") + kernel) == true);
  // It looks for Linear layers, which experts are not; their parameters it adapts where they are named.
  const Ledger experts = ask_one(R"({"base_model": "Qwen/Qwen3-30B-A3B", "adapter": "lora", "lora_r": 16,
                                     "lora_alpha": 32, "lora_target_linear": true, "sequence_len": 512,
                                     "lora_target_parameters": ["mlp.experts.down_proj"]})");
  check_accepted(experts);
  CHECK(at(experts, "/training/lora/target_modules") == json({"k_proj", "o_proj", "q_proj", "v_proj"}));
  CHECK(at(experts, "/training/lora/target_parameters") == json({"mlp.experts.down_proj"}));
  const Ledger remote = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "lora", "lora_r": 16, "lora_alpha": 32,
                                    "lora_target_linear": true, "trust_remote_code": true})");
  CHECK(at(remote, "/training/lora/lora_mlp_kernel") == "absent");  // its kernels do not run such code
  const Ledger eager = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "sequence_len": 2048, "micro_batch_size": 4,
                                   "sample_packing": true, "attn_implementation": "sdpa"})");
  CHECK(at(eager, "/data/micro_batch_size") == 4);
  const Ledger kernels = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "lora", "lora_r": 16, "lora_alpha": 32,
                                     "lora_target_modules": ["q_proj"], "lora_o_kernel": true})");
  check_accepted(kernels);
  CHECK(at(kernels, "/training/lora/lora_o_kernel") == true);
  CHECK(at(kernels, "/training/lora/lora_mlp_kernel") == "absent");
  const Ledger sharded = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "lora", "lora_r": 16, "lora_alpha": 32,
                                     "lora_target_linear": true, "fsdp_version": 2,
                                     "fsdp_config": {"reshard_after_forward": true}})");
  REQUIRE(left_out(sharded, "lora_mlp_kernel") != nullptr);
  CHECK(left_out(sharded, "lora_mlp_kernel")->effect == Effect::less);
  const Ledger first = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "lora", "lora_r": 16, "lora_alpha": 32,
                                   "lora_target_linear": true, "fsdp_config": {"fsdp_version": 2}})");
  CHECK(left_out(first, "lora_mlp_kernel") == nullptr);  // not on by default: the version is read later
  const Ledger unknown = ask_one(R"({"base_model": "allenai/Olmo-3-1025-7B", "adapter": "lora", "lora_r": 16,
                                     "lora_alpha": 32, "lora_target_linear": true})");
  check_accepted(unknown);  // it stops with them, on by default
  CHECK(at(unknown, "/training/lora/lora_mlp_kernel") == "absent");
  REQUIRE(left_out(unknown, "lora_qkv_kernel") != nullptr);
  CHECK(left_out(unknown, "lora_qkv_kernel")->text.find("set lora_qkv_kernel") != std::string::npos);
  const Ledger preferences = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "lora", "lora_r": 16,
                                         "lora_alpha": 32, "lora_target_linear": true, "rl": "dpo"})");
  CHECK(at(preferences, "/training/lora/lora_mlp_kernel") == "absent");  // only if the file says so
  CHECK(left_out(preferences, "lora_mlp_kernel") == nullptr);
  const Ledger cut = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B",
                                 "plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"]})");
  check_accepted(cut);
  CHECK(at(cut, "/training/cut_cross_entropy") == true);
  const Ledger cut_in_shards = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "cut_cross_entropy": true,
                                           "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": true}})");
  check_accepted(cut_in_shards);
  CHECK(at(cut_in_shards, "/training/cut_cross_entropy") == true);
  CHECK(at(cut, "/training/float32_modules") == "absent");  // norms, embeddings and head are in 16 bits again
  const Ledger full = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "bf16": false, "fp16": false})");
  CHECK(at(full, "/training/precision") == "fp32");
}

TEST_CASE("Noise on the embeddings is taken from trainers' files", "[importers][llamafactory][axolotl]") {
  const std::string argument = "/training/loop/args/neftune_noise_alpha";
  const Ledger factory = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "bf16": true,
                                     "finetuning_type": "full", "neftune_noise_alpha": 5})");
  check_accepted(factory);
  CHECK(at(factory, argument) == 5);
  const Ledger axolotl = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "neftune_noise_alpha": 5})");
  check_accepted(axolotl);
  CHECK(at(axolotl, argument) == 5);
  const Ledger older = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "noisy_embedding_alpha": 5})");
  CHECK(at(older, argument) == 5);
  CHECK(at(ask_one(R"({"base_model": "Qwen/Qwen3-0.6B"})"), argument) == "absent");
}

TEST_CASE("four bits are trained by the trainer's own loop", "[importers][axolotl]") {
  const Ledger qlora =
      ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "adapter": "qlora", "load_in_4bit": true, "lora_r": 8,
                                   "lora_alpha": 16, "lora_target_linear": true, "optimizer": "paged_adamw_8bit"})");
  check_accepted(qlora);
  CHECK(at(qlora, "/training/loop/name") == "transformers.Trainer");
  CHECK(at(qlora, "/training/quantization/load_in_4bit") == true);
  REQUIRE(taken_at(qlora, "/training/loop/args/optim") != nullptr);
  CHECK(taken_at(qlora, "/training/loop/args/optim")->key == "optimizer");
  CHECK(left_out(qlora, "") == nullptr);
}

TEST_CASE("Axolotl quantizes experts", "[importers][axolotl]") {
  const Ledger experts = ask_one(R"({"base_model": "Qwen/Qwen3-30B-A3B", "adapter": "qlora", "load_in_4bit": true,
                                     "lora_r": 16, "lora_alpha": 32, "lora_target_modules": ["q_proj"],
                                     "quantize_moe_experts": true, "sequence_len": 512})");
  check_accepted(experts);
  CHECK(at(experts, "/training/quantization/quantize_moe_experts") == true);
  CHECK(at(experts, "/training/float32_modules") == json({".gate"}));
  const Ledger adapted = ask_one(R"({"base_model": "Qwen/Qwen3-30B-A3B", "adapter": "qlora", "load_in_4bit": true,
                                     "lora_r": 16, "lora_alpha": 32, "lora_target_modules": ["q_proj"],
                                     "lora_target_parameters": ["mlp.experts.down_proj"],
                                     "quantize_moe_experts": true, "sequence_len": 512})");
  check_accepted(adapted);
  CHECK(left_out(adapted, "quantize_moe_experts") != nullptr);
  const Ledger gated = ask_one(R"({"base_model": "Qwen/Qwen3-30B-A3B", "adapter": "qlora", "load_in_4bit": true,
                                   "lora_r": 16, "lora_alpha": 32,
                                   "lora_target_modules": ["gate_proj", "up_proj", "down_proj"],
                                   "quantize_moe_experts": true, "sequence_len": 512})");
  check_accepted(gated);
  CHECK(left_out(gated, "quantize_moe_experts") != nullptr);
  const Ledger linear = ask_one(R"({"base_model": "Qwen/Qwen3-30B-A3B", "adapter": "qlora", "load_in_4bit": true,
                                    "lora_r": 16, "lora_alpha": 32, "lora_target_linear": true,
                                    "quantize_moe_experts": true})");
  CHECK(linear.refused);
}

TEST_CASE("Axolotl stops at keys that it no longer has", "[importers][axolotl]") {
  const Ledger older = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "flash_attn_rms_norm": true})");
  check_accepted(older);
  REQUIRE(left_out(older, "flash_attn_rms_norm") != nullptr);
  CHECK(left_out(older, "flash_attn_rms_norm")->text.find("stops") != std::string::npos);
  const Ledger packed = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "max_packed_sequence_len": 2048})");
  check_accepted(packed);
  CHECK(left_out(packed, "max_packed_sequence_len") != nullptr);
}

TEST_CASE("Axolotl's preferences and rewards run TRL's loops", "[importers][axolotl]") {
  const std::string head = R"({"base_model": "Qwen/Qwen3-0.6B", "bf16": true, "sequence_len": 512,
                               "micro_batch_size": 2, )";
  const auto loop_of = [&](const std::string& rest) {
    const Ledger ledger = ask_one(head + rest + "}");
    check_accepted(ledger);
    return at(ledger, "/training/loop/name");
  };
  CHECK(loop_of(R"("rl": "dpo")") == "trl.DPOTrainer");
  CHECK(loop_of(R"("rl": "kto")") == "trl.KTOTrainer");
  CHECK(loop_of(R"("rl": "orpo")") == "trl.experimental.orpo.ORPOTrainer");
  CHECK(loop_of(R"("reward_model": true)") == "trl.RewardTrainer");
  CHECK(loop_of(R"("rl": null)") == "transformers.Trainer");
  CHECK(at(ask_one(head + R"("rl": "ipo"})"), "/training/loop/args/loss_type") == json::array({"ipo"}));
  const Ledger simpo = ask_one(head + R"("rl": "simpo"})");
  REQUIRE(simpo.refused);
  CHECK(simpo.refused->key == "rl");
}

TEST_CASE("Axolotl checkpoints reentrantly unless something else wants it otherwise", "[importers][axolotl]") {
  const auto mode_of = [](const std::string& rest) {
    const Ledger ledger = ask_one(R"({"bf16": true, "gradient_checkpointing": true, )" + rest + "}");
    check_accepted(ledger);
    return at(ledger, "/training/activation_checkpointing");
  };
  CHECK(mode_of(R"("base_model": "Qwen/Qwen3-0.6B")") == "reentrant");
  CHECK(mode_of(R"("base_model": "Qwen/Qwen3-0.6B", "rl": "dpo")") == "non-reentrant");
  CHECK(mode_of(R"("base_model": "Qwen/Qwen3-0.6B", "unfrozen_parameters": ["lm_head.weight"])") == "non-reentrant");
  CHECK(mode_of(R"("base_model": "google/gemma-4-E2B-it", "gradient_checkpointing_kwargs": {"use_reentrant": true})") ==
        "non-reentrant");
}

TEST_CASE("Axolotl offloads what adapters save", "[importers][axolotl]") {
  constexpr const char* kOffloads = "/training/loop/args/activation_offloading";
  const std::string lora = R"({"base_model": "Qwen/Qwen3-0.6B", "bf16": true, "adapter": "lora", "lora_r": 8,
                               "lora_alpha": 16, "lora_target_linear": true, )";
  const Ledger named = ask_one(lora + R"("gradient_checkpointing": true, "activation_offloading": true})");
  check_accepted(named);
  CHECK(at(named, kOffloads) == true);
  CHECK(at(named, "/training/loop/project") == "axolotl");
  CHECK(at(named, "/training/activation_checkpointing") == "reentrant");
  const Ledger older = ask_one(lora + R"("gradient_checkpointing": "offload",
                                         "gradient_checkpointing_kwargs": {"use_reentrant": false}})");
  check_accepted(older);
  CHECK(at(older, kOffloads) == true);
  CHECK(at(older, "/training/activation_checkpointing") == "non-reentrant");
  const Ledger legacy = ask_one(lora + R"("gradient_checkpointing": true, "activation_offloading": "legacy"})");
  check_accepted(legacy);
  CHECK(at(legacy, kOffloads) == "absent");
  REQUIRE(left_out(legacy, "activation_offloading") != nullptr);
  const Ledger full = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "bf16": true, "gradient_checkpointing": true,
                                  "activation_offloading": true})");
  check_accepted(full);
  CHECK(left_out(full, "activation_offloading")->effect == Effect::either);
  const Ledger alone = ask_one(lora + R"("activation_offloading": true})");
  REQUIRE(alone.refused);
  CHECK(alone.refused->key == "activation_offloading");
}

TEST_CASE("Axolotl adds no rows to embeddings that have them in whole 32s", "[importers][axolotl]") {
  const std::string key = R"(, "bf16": true, "resize_token_embeddings_to_32x": true})";
  const Ledger phi = ask_one(R"({"base_model": "microsoft/phi-1_5")" + key);
  CHECK(is_ignored(phi, "resize_token_embeddings_to_32x"));
  const Ledger with = ask_one(R"({"base_model": "microsoft/phi-1_5", "tokens": ["<|im_start|>"])" + key);
  CHECK(left_out(with, "resize_token_embeddings_to_32x") != nullptr);
}

TEST_CASE("FSDP on GPUs that are not counted is taken on two", "[importers][axolotl]") {
  const Ledger ledger = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "bf16": true, "fsdp_version": 2,
                                    "fsdp_config": {"transformer_layer_cls_to_wrap": "Qwen3DecoderLayer",
                                                    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}})");
  check_accepted(ledger);
  CHECK(at(ledger, "/parallel/accelerate_config/num_processes") == 2);
  REQUIRE(ledger.missing.size() == 1);
  CHECK(ledger.missing[0].kind == std::string("gpus"));
}

TEST_CASE("Liger's kernels in Axolotl are those that are named", "[importers][axolotl]") {
  const Ledger some = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "liger_rms_norm": true,
                                  "liger_fused_linear_cross_entropy": true,
                                  "plugins": ["axolotl.integrations.liger.LigerPlugin"]})");
  check_accepted(some);
  CHECK(at(some, "/training/liger") == json({{"rope", false},
                                             {"rms_norm", true},
                                             {"swiglu", false},
                                             {"layer_norm", false},
                                             {"cross_entropy", false},
                                             {"fused_linear_cross_entropy", true}}));
  const Ledger none = ask_one(R"({"base_model": "Qwen/Qwen3-0.6B", "liger_rms_norm": true})");
  CHECK(at(none, "/training/liger") == "absent");
}

TEST_CASE("Liger's kernels that the core has not for a model are left out, which is too much", "[importers]") {
  const Ledger axolotl =
      ask_one(R"({"base_model": "meta-llama/Llama-3.2-11B-Vision-Instruct", "liger_rms_norm": true, "liger_rope": true,
                                     "adapter": "lora", "lora_r": 8,
                                     "lora_target_modules": ["q_proj"],
                                     "plugins": ["axolotl.integrations.liger.LigerPlugin"]})");
  check_accepted(axolotl);
  CHECK(at(axolotl, "/training/liger") == "absent");
  REQUIRE(left_out(axolotl, "plugins") != nullptr);
  CHECK(left_out(axolotl, "plugins")->effect == Effect::less);
  CHECK(is_ignored(axolotl, "liger_rope"));
  const Ledger trl =
      ask_one("trl sft --model_name_or_path meta-llama/Llama-3.2-11B-Vision-Instruct --use_liger_kernel true");
  check_accepted(trl);
  CHECK(left_out(trl, "use_liger_kernel") != nullptr);
}

TEST_CASE("Gemma 4's two implementations of attention in Axolotl are one here", "[importers][axolotl]") {
  const Ledger ledger = ask_one(R"({"base_model": "google/gemma-4-E2B-it", "attn_implementation": "flash_attention_2",
                                    "gemma4_hybrid_attn_impl": true, "sample_packing": true, "micro_batch_size": 2,
                                    "sequence_len": 1024, "adapter": "lora", "lora_r": 8,
                                    "lora_target_modules": "model.language_model.layers.[\\d]+.self_attn.q_proj"})");
  check_accepted(ledger);
  CHECK(at(ledger, "/training/attention") == "sdpa");
  CHECK(at(ledger, "/data/sequence_length") == 2048);  // in one row, as flash-attn keeps documents apart
  CHECK(left_out(ledger, "gemma4_hybrid_attn_impl") != nullptr);
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

TEST_CASE("Weights that are loaded as published are float32 where the checkpoint is", "[importers]") {
  for (const char* model : {"openai-community/gpt2", "openai-community/gpt2-xl", "allenai/OLMo-2-0425-1B"}) {
    INFO(model);
    const std::string named = std::string(R"({"model_name_or_path": ")") + model + '"';
    CHECK(at(ask_one(named + R"(, "per_device_train_batch_size": 2, "output_dir": "x"})"), "/training/precision") ==
          "fp32");
    CHECK(at(ask_one(named + R"(, "stage": "sft", "finetuning_type": "lora", "cutoff_len": 64, "bf16": true})"),
             "/training/precision") == "amp-bf16");
    CHECK(at(ask_one(named + R"(, "dataset_name": "a", "max_length": 64, "dtype": "auto", "bf16": false})"),
             "/training/precision") == "fp32");
  }
  // An instruction model of the same preset that is published in bf16.
  CHECK(at(ask_one(R"({"model_name_or_path": "allenai/OLMo-2-0425-1B-Instruct", "per_device_train_batch_size": 2})"),
           "/training/precision") == "bf16");
}

TEST_CASE("Where nobody says the type of the published weights the largest is taken, and said", "[importers]") {
  const Ledger ledger = ask({file_of("args.json", R"({"model_name_or_path": "x", "per_device_train_batch_size": 2})"),
                             file_of("config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                                     "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                                     "num_attention_heads": 4, "vocab_size": 1000})")});
  check_accepted(ledger);
  CHECK(at(ledger, "/training/precision") == "fp32");
  REQUIRE(left_out(ledger, "model_name_or_path") != nullptr);
  CHECK(left_out(ledger, "model_name_or_path")->effect == Effect::less);
  // Nothing is said where the trainer has a type of its own.
  CHECK(left_out(ask({file_of("a.json", R"({"base_model": "x", "bf16": true, "sequence_len": 64})"),
                      file_of("config.json", R"({"model_type": "llama", "hidden_size": 64})")}),
                 "base_model") == nullptr);
}

TEST_CASE("ms-swift trains adapters, in the published type, 16 samples a step", "[importers][swift]") {
  const auto sft = [](const std::string& words) { return ask({file_of("run.sh", "swift sft " + words)}); };
  const Ledger bare = sft("--model Qwen/Qwen3-0.6B --dataset a/b --max_length 2048");
  check_accepted(bare);
  CHECK(at(bare, "/training/precision") == json({{"weights", "bf16"}, {"autocast", "bf16"}}));
  CHECK(at(bare, "/data/micro_batch_size") == 1);
  CHECK(at(bare, "/training/gradient_accumulation_steps") == 16);
  CHECK(at(bare, "/training/lora") ==
        json({{"rank", 8}, {"alpha", 32}, {"dropout", 0.05}, {"bias", "none"}, {"target_modules", "all-linear"}}));
  CHECK(at(bare, "/training/activation_checkpointing") == "reentrant");
  CHECK(left_out(bare, "use_logits_to_keep")->effect == Effect::less);
  const Ledger four = ask({file_of("run.sh",
                                   "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-0.6B --max_length 2048 "
                                   "--per_device_train_batch_size 2")});
  check_accepted(four);
  CHECK(at(four, "/training/gradient_accumulation_steps") == 2);             // ceil(16 / 2 / 4)
  CHECK(at(four, "/training/activation_checkpointing") == "non-reentrant");  // DDP
  CHECK(at(four, "/parallel/data") == 4);
  const Ledger zero = ask({file_of("run.sh",
                                   "NPROC_PER_NODE=2 swift sft --model Qwen/Qwen3-0.6B --max_length 2048 "
                                   "--train_type full --deepspeed zero3_offload")});
  check_accepted(zero);
  CHECK(at(zero, "/parallel/ds_config/zero_optimization/stage") == 3);
  CHECK(at(zero, "/parallel/ds_config/zero_optimization/offload_param/device") == "cpu");
  CHECK(at(zero, "/training/activation_checkpointing") == "reentrant");
  const Ledger sees = ask({file_of("run.sh",
                                   "MAX_PIXELS=262144 swift sft --model Qwen/Qwen2.5-VL-3B-Instruct "
                                   "--max_length 2048 --tuner_type full")});
  check_accepted(sees);
  CHECK(at(sees, "/data/max_pixels") == 262144);
  CHECK(at(sees, "/training/freeze") == json({"visual", "visual.merger"}));
  const Ledger long_one = sft("--model Qwen/Qwen3-0.6B");
  REQUIRE(long_one.missing.size() == 1);
  CHECK(long_one.missing[0].name == "max_length");
  const Ledger rlhf = ask({file_of("run.sh", "swift rlhf --rlhf_type dpo --model Qwen/Qwen3-0.6B")});
  CHECK(rlhf.refused);
}

TEST_CASE("LLaVA's scripts are its own code under DeepSpeed", "[importers][llava]") {
  const std::string head =
      "deepspeed --num_gpus 8 llava/train/train_mem.py --deepspeed ./scripts/zero2.json --version v1 "
      "--vision_tower openai/clip-vit-large-patch14-336 --mm_projector_type mlp2x_gelu "
      "--mm_vision_select_layer -2 --mm_use_im_start_end False --mm_use_im_patch_token False "
      "--bf16 True --per_device_train_batch_size 16 --model_max_length 2048 "
      "--gradient_checkpointing True ";
  const auto llava = [&](const std::string& words) {
    return ask({file_of("run.sh", head + words), file_of("zero2.json", R"({"bf16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 2, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
        "reduce_bucket_size": "auto"}})")});
  };
  const Ledger tuned = llava("--model_name_or_path lmsys/vicuna-7b-v1.5");
  check_accepted(tuned);
  CHECK(at(tuned, "/model/preset") == "llava-1.5-7b");
  CHECK(at(tuned, "/runtime/framework") == "llava");
  CHECK(at(tuned, "/training/stage") == "finetune");
  CHECK(at(tuned, "/training/precision") == "bf16");
  CHECK(at(tuned, "/training/activation_checkpointing") == "reentrant");
  CHECK(at(tuned, "/training/loop/name") == "llava.LLaVATrainer");
  CHECK(at(tuned, "/training/attention") == "sdpa");
  CHECK(at(tuned, "/training/float32_modules") == "absent");
  CHECK(at(tuned, "/parallel/data") == 8);
  const Ledger saving = llava("--model_name_or_path lmsys/vicuna-7b-v1.5 --save_strategy steps");  // not with ZeRO-2
  check_accepted(saving);
  CHECK(at(saving, "/training/loop/args/save_strategy") == "no");
  CHECK(left_out(saving, "save_strategy") != nullptr);
  const Ledger further = llava("--model_name_or_path liuhaotian/llava-v1.5-7b --mm_projector_lr 2e-5");
  check_accepted(further);
  CHECK(at(further, "/training/float32_modules") == json::array());
  CHECK(at(further, "/training/loop/args/mm_projector_lr") == 2e-5);
  const Ledger projector = llava("--model_name_or_path lmsys/vicuna-13b-v1.5 --tune_mm_mlp_adapter True");
  check_accepted(projector);
  CHECK(at(projector, "/model/preset") == "llava-1.5-13b");
  CHECK(at(projector, "/training/stage") == "pretrain");
  const Ledger lora =
      llava("--model_name_or_path lmsys/vicuna-7b-v1.5 --lora_enable True --lora_r 128 --lora_alpha 256");
  check_accepted(lora);
  CHECK(at(lora, "/training/lora/rank") == 128);
  CHECK(at(lora, "/training/lora/also_train") == json({"mm_projector"}));
  const Ledger linear = ask({file_of("run.sh",
                                     "deepspeed llava/train/train.py --model_name_or_path lmsys/vicuna-7b-v1.5 "
                                     "--vision_tower openai/clip-vit-large-patch14-336")});
  REQUIRE(linear.refused);  // the default projector
  CHECK(linear.refused->key == "mm_projector_type");
}

TEST_CASE("verl fills rows up to the tokens of a GPU and shards float32 weights by FSDP", "[importers][verl]") {
  const Ledger usual = ask({file_of("run.sh", R"(torchrun --standalone --nnodes=1 --nproc_per_node=8 \
      -m verl.trainer.sft_trainer data.train_files=a.parquet data.train_batch_size=128 \
      model.path=Qwen/Qwen3-8B optim.lr=1e-5 +data.max_length=2048 trainer.project_name=x trainer.logger=console)")});
  check_accepted(usual);
  CHECK(usual.trainer == "verl 0.9.1");
  CHECK(at(usual, "/data/sequence_length") == 8192);
  CHECK(at(usual, "/data/packed") == json::array({{2048, 2048, 2048, 2048}}));
  CHECK(at(usual, "/training/gradient_accumulation_steps") == 4);  // 16 samples of a GPU, 4 a row
  CHECK(at(usual, "/training/precision") == "amp-bf16");
  CHECK(at(usual, "/training/attention") == "flash_attention_2");
  CHECK(at(usual, "/training/activation_checkpointing") == "non-reentrant");
  CHECK(at(usual, "/training/max_grad_norm") == 1.0);
  CHECK(at(usual, "/training/optimizer") == json({{"name", "torch.optim.AdamW"}, {"args", {{"weight_decay", 0.01}}}}));
  CHECK(at(usual, "/parallel/strategy") == "fsdp1");
  CHECK(at(usual, "/parallel/data") == 8);
  CHECK(at(usual, "/parallel/fsdp/sharding") == "FULL_SHARD");
  CHECK(at(usual, "/parallel/fsdp/param_dtype") == "bf16");
  CHECK(is_ignored(usual, "optim.lr"));
  REQUIRE(usual.unmodelled.size() == 1);  // the loss
  CHECK(usual.unmodelled[0].effect == Effect::less);
  CHECK(usual.unmodelled[0].bytes == std::int64_t{8} * 8192 * 151936);
  const Ledger adapters = ask({file_of("run.sh", R"(torchrun --nproc_per_node 2 -m verl.trainer.sft_trainer \
      --config-name sft_trainer_engine engine=fsdp engine.strategy=fsdp2 model.path=Qwen/Qwen3-0.6B model.lora_rank=32 \
      "model.target_modules=[q_proj,v_proj]" data.use_dynamic_bsz=False data.micro_batch_size_per_gpu=2 \
      model.enable_gradient_checkpointing=False engine.param_offload=True model.use_liger=True)")});
  check_accepted(adapters);
  CHECK(at(adapters, "/data/packed") == json::array({{1024, 1024}}));
  CHECK(at(adapters, "/training/lora/target_modules") == json({"q_proj", "v_proj"}));
  CHECK(at(adapters, "/training/lora/alpha") == 16);
  CHECK(at(adapters, "/training/activation_checkpointing") == "none");
  CHECK(at(adapters, "/training/liger") == json({{"fused_linear_cross_entropy", false}}));
  CHECK(at(adapters, "/parallel/fsdp/reshard_after_forward") == true);
  CHECK(is_ignored(adapters, "engine.param_offload"));  // while it trains all is on the GPU
}

TEST_CASE("verl's YAML is read with Hydra's defaults, and what is no supervised fine-tuning is refused",
          "[importers][verl]") {
  const Ledger file = ask_one(R"({"data": {"train_files": "a.parquet", "max_length": 512, "micro_batch_size_per_gpu": 2,
      "use_dynamic_bsz": false}, "model": {"path": "Qwen/Qwen3-0.6B", "use_remove_padding": false},
      "engine": {"strategy": "fsdp", "ulysses_sequence_parallel_size": 2}, "optim": {"lr": 1e-5},
      "trainer": {"n_gpus_per_node": 4, "nnodes": 2}, "surprise": {"key": 1}})");
  check_accepted(file);
  CHECK(at(file, "/parallel/data") == 8);
  CHECK(at(file, "/data/micro_batch_size") == 2);
  CHECK(at(file, "/data/sequence_length") == 512);
  CHECK(left_out(file, "engine.ulysses_sequence_parallel_size")->effect == Effect::less);
  CHECK(left_out(file, "surprise.key")->effect == Effect::unknown);
  const Ledger rl = ask({file_of("run.sh", "python3 -m verl.trainer.main_ppo data.train_files=a model.path=x")});
  REQUIRE(rl.refused);
  CHECK(rl.refused->message.find("main_ppo") != std::string::npos);
  const Ledger megatron = ask({file_of(
      "run.sh", "torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer engine=megatron model.path=Qwen/Qwen3-0.6B")});
  REQUIRE(megatron.refused);
  CHECK(megatron.refused->key == "engine");
  CHECK(ask_one(R"({"actor_rollout_ref": {}, "algorithm": {}, "data": {}})").refused);
}

TEST_CASE("A processor's own file says how large images are, where the model takes images of any size",
          "[importers][processor]") {
  const auto with = [](const std::string& model, const std::string& processor, const std::string& more = "") {
    return ask({file_of("train.yaml", R"({"model_name_or_path": ")" + model + R"(", "stage": "sft", "bf16": true,
                                          "finetuning_type": "lora")" +
                                          more + "}"),
                file_of("preprocessor_config.json", processor)});
  };
  const std::string pixels = R"({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 6272,
      "max_pixels": 501760, "patch_size": 14, "merge_size": 2, "image_mean": [0.5], "do_resize": true})";
  // LLaMA-Factory gives its processor pixels of its own; Axolotl leaves them to the file.
  const Ledger factory = with("Qwen/Qwen2.5-VL-3B-Instruct", pixels);
  check_accepted(factory);
  CHECK(at(factory, "/data/max_pixels") == 589824);
  CHECK(is_ignored(factory, "max_pixels"));
  const auto axolotl = [](const std::string& processor) {
    return ask({file_of("a.yaml", R"({"base_model": "Qwen/Qwen2.5-VL-3B-Instruct", "sequence_len": 4096})"),
                file_of("preprocessor_config.json", processor)});
  };
  const Ledger smaller = axolotl(pixels);
  check_accepted(smaller);
  CHECK(at(smaller, "/data/max_pixels") == 501760);
  CHECK(at(smaller, "/data/min_pixels") == 6272);
  CHECK(taken_at(smaller, "/data/max_pixels")->file == "preprocessor_config.json");
  CHECK(is_ignored(smaller, "image_mean"));
  const Ledger edges = axolotl(R"({"image_processor_type": "Qwen2VLImageProcessor", "surprise": 1,
                                   "size": {"shortest_edge": 3136, "longest_edge": 200704}})");
  CHECK(at(edges, "/data/max_pixels") == 200704);
  CHECK(left_out(edges, "surprise")->effect == Effect::either);
  const Ledger other = axolotl(R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16})");
  CHECK(left_out(other, "patch_size")->text.starts_with("a processor of another model: config.json has patch_size 14"));
  const Ledger text = with("Qwen/Qwen3-0.6B", pixels);  // sees nothing
  CHECK(at(text, "/data/max_pixels") == "absent");
  CHECK(text.unmodelled.empty());
}

TEST_CASE("Keys that do nothing to a model are without effect on it", "[importers][axolotl][llamafactory]") {
  const std::string axolotl = R"("plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_layer_norm": true,
                                 "adapter": "lora", "lora_r": 8, "sequence_len": 512})";
  CHECK(is_ignored(ask_one(R"({"base_model": "Qwen/Qwen3-8B", )" + axolotl), "liger_layer_norm"));
  // Without a processor its tower does not run; with one, Qwen3.5's is patched by Axolotl itself.
  const Ledger text = ask_one(R"({"base_model": "google/gemma-3-4b-it", )" + axolotl);
  CHECK(is_ignored(text, "liger_layer_norm"));
  CHECK(at(text, "/data/images_per_sample") == 0);
  const std::string sees = R"("processor_type": "AutoProcessor", )" + axolotl;
  CHECK(at(ask_one(R"({"base_model": "google/gemma-3-4b-it", )" + sees), "/data/images_per_sample") == "absent");
  CHECK(left_out(ask_one(R"({"base_model": "Qwen/Qwen3.5-4B", )" + sees), "liger_layer_norm") != nullptr);
  const Ledger nemotron =
      ask_one(R"({"base_model": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "liger_rms_norm": true, )" + axolotl);
  CHECK(is_ignored(nemotron, "liger_rms_norm"));
  CHECK(at(nemotron, "/training/liger") == "absent");
  CHECK(
      at(ask_one(
             R"({"base_model": "Qwen/Qwen3-8B", "fsdp_version": 2, "fsdp_config": {"reshard_after_forward": true}, )" +
             axolotl),
         "/parallel/fsdp/preparer") == "axolotl");
  const Ledger rows =
      ask_one(R"({"base_model": "Qwen/Qwen3-8B", "resize_token_embeddings_to_32x": true, "tokens": ["<new>"]})");
  CHECK(left_out(rows, "resize_token_embeddings_to_32x")->bytes == 31 * 2 * 16 * 4096);
  const std::string factory = R"("stage": "sft", "bf16": true, "use_v1_kernels": true})";
  CHECK(is_ignored(ask_one(R"({"model_name_or_path": "Qwen/Qwen3-8B", )" + factory), "use_v1_kernels"));
  CHECK(left_out(ask_one(R"({"model_name_or_path": "Qwen/Qwen3-30B-A3B", )" + factory), "use_v1_kernels") != nullptr);
}

TEST_CASE("torchtitan's configurations are transformers' models of the same figures, and that is listed",
          "[importers][torchtitan]") {
  const Ledger usual =
      ask({file_of("run.sh", "NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.steps 10")});
  check_accepted(usual);
  CHECK(usual.trainer == "torchtitan 0.3.0");
  CHECK(at(usual, "/data/sequence_length") == 8192);
  CHECK(at(usual, "/data/micro_batch_size") == 1);
  CHECK(at(usual, "/training/precision") == "fp32");
  CHECK(at(usual, "/parallel/strategy") == "fsdp2");
  CHECK(at(usual, "/parallel/data") == 8);
  CHECK(at(usual, "/parallel/fsdp") ==
        json({{"param_dtype", "bf16"}, {"reduce_dtype", "fp32"}, {"reshard_after_forward", true}}));
  CHECK(at(usual, "/training/optimizer") ==
        json({{"name", "torch.optim.AdamW"}, {"args", {{"weight_decay", 0.1}, {"fused", true}}}}));
  CHECK(left_out(usual, "module")->effect == Effect::either);  // a class of its own
  CHECK(left_out(usual, "activation_checkpoint")->effect == Effect::more);
  CHECK(left_out(usual, "training.disable_cuda_graphs")->effect == Effect::more);
  CHECK(left_out(usual, "loss.num_chunks")->bytes == std::int64_t{12} * 128256 * 8192 / 8 * 7);
  CHECK(is_ignored(usual, "training.steps"));
  const Ledger full = ask({file_of("run.sh", R"(torchrun --nproc_per_node=4 -m torchtitan.train --module qwen3 \
      --config qwen3_14b --training.local-batch-size 2 --training.global_batch_size=16 --training.disable_cuda_graphs \
      --parallelism.tensor_parallel_degree 2 activation_checkpoint:none)")});
  check_accepted(full);
  CHECK(at(full, "/parallel/data") == 2);
  CHECK(at(full, "/training/gradient_accumulation_steps") == 4);
  CHECK(at(full, "/training/activation_checkpointing") == "none");
  CHECK(left_out(full, "parallelism.tensor_parallel_degree")->effect == Effect::less);
  CHECK(left_out(full, "training.disable_cuda_graphs") == nullptr);
  const Ledger flag = ask({file_of("run.sh",
                                   "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config "
                                   "llama3_70b --compile.enable activation_checkpoint:selective")});
  CHECK(at(flag, "/data/micro_batch_size") == 8);
  CHECK(left_out(flag, "activation_checkpoint")->effect == Effect::more);
  CHECK(left_out(flag, "parallelism.tensor_parallel_degree") != nullptr);
  const Ledger other = ask({file_of("run.sh", "torchrun -m torchtitan.train --module flux --config flux_dev")});
  REQUIRE(other.refused);
  CHECK(other.refused->key == "config");
}
