#include "importers/keys.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"

using nlohmann::json;
using namespace oometer;
using namespace oometer::importers;

TEST_CASE("a plain word becomes what a command line or YAML means by it", "[importers]") {
  CHECK(scalar_of("True") == true);
  CHECK(scalar_of("off") == false);
  CHECK(scalar_of("null").is_null());
  CHECK(scalar_of("None") == "None");  // a text to YAML and to argparse
  CHECK(scalar_of("-1") == -1);
  CHECK(scalar_of("1_000") == 1000);
  CHECK(scalar_of("1e-4") == 1e-4);
  CHECK(scalar_of("2.5.1") == "2.5.1");
  CHECK(scalar_of("e") == "e");
  CHECK(scalar_of("-") == "-");
  CHECK(scalar_of("99999999999999999999999") == 99999999999999999999999.0);
  CHECK(scalar_of("1e999") == "1e999");
  CHECK(scalar_of("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B");
}

TEST_CASE("a key that no table has is listed with the nearest one, never dropped", "[importers]") {
  const Ledger ledger = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-8B", "finetuning_type": "lora", "stage": "sft",
                                    "cutof_len": 100, "gradient_acumulation_steps": 2, "zzzzzzzz": 1})");
  REQUIRE(left_out(ledger, "cutof_len") != nullptr);
  CHECK(left_out(ledger, "cutof_len")->text.find("did you mean \"cutoff_len\"?") != std::string::npos);
  CHECK(left_out(ledger, "cutof_len")->effect == Effect::unknown);
  CHECK(left_out(ledger, "cutof_len")->value == 100);
  CHECK(left_out(ledger, "gradient_acumulation_steps")->text.find("gradient_accumulation_steps") != std::string::npos);
  REQUIRE(left_out(ledger, "zzzzzzzz") != nullptr);
  CHECK(at(ledger, "/data/sequence_length") == 2048);
}

TEST_CASE("every key of a file stands in a list or in a refusal", "[importers]") {
  const char* texts[] = {
      R"({"model_name_or_path": "Qwen/Qwen3-8B", "stage": "pt", "finetuning_type": "full", "cutoff_len": 512, "bf16": true,
          "packing": true, "lora_rank": 4, "optim": "adafactor", "deepspeed": "none.json", "seed": 3, "what": 1,
          "gradient_checkpointing": true, "quantization_bit": null, "flash_attn": "fa2", "use_dft_loss": true})",
      R"({"base_model": "Qwen/Qwen3-8B", "adapter": "qlora", "load_in_4bit": true, "load_in_8bit": false, "lora_r": 8,
          "lora_alpha": 16, "lora_target_linear": true, "lora_target_modules": null, "sequence_len": 2048, "bf16": "auto",
          "sample_packing": true, "micro_batch_size": 2, "optimizer": "adamw_bnb_8bit", "datasets": [], "what": 1,
          "plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_rope": true, "val_set_size": 0.1,
          "eval_steps": 10, "fsdp": [], "flash_attention": true, "gradient_checkpointing": true})",
      R"({"model_name_or_path": "Qwen/Qwen3-8B", "dataset_name": "a/b", "use_peft": true, "lora_r": 8, "bf16": false,
          "load_in_4bit": false, "max_length": 512, "packing": true, "eval_strategy": "no", "what": 1, "seed": 1,
          "learning_rate": 1e-4, "activation_offloading": true, "eval_steps": 10})"};
  for (const char* text : texts) {
    const json tree = *parse_json(text);
    const Ledger ledger = ask_one(text);
    INFO(text);
    for (const auto& [key, value] : tree.items()) {
      INFO(key);
      bool found = left_out(ledger, key) != nullptr;
      bool is_taken = false;
      for (const Taken& taken : ledger.taken) is_taken |= taken.key == key && !taken.is_default;
      CHECK_FALSE((is_taken && is_ignored(ledger, key)));
      found |= is_taken || is_ignored(ledger, key);
      for (const Missing& missing : ledger.missing) found |= missing.key == key;
      if (ledger.refused) found |= ledger.refused->key == key;
      CHECK(found);
    }
    CHECK(left_out(ledger, "what") != nullptr);
  }
}

TEST_CASE("a key's older name is read as the newer one, and listed as it is written", "[importers]") {
  const Ledger ledger = ask_one(R"({"model_name_or_path": "Qwen/Qwen3-8B", "dataset_name": "a/b", "use_peft": false,
                                    "max_seq_length": 512, "per_gpu_train_batch_size": 3})");
  CHECK(at(ledger, "/training/loop/args/max_length") == 512);
  CHECK(at(ledger, "/data/micro_batch_size") == 3);
  const auto is_it = [](const Taken& taken) { return taken.key == "max_seq_length"; };
  const auto taken = std::find_if(ledger.taken.begin(), ledger.taken.end(), is_it);
  REQUIRE(taken != ledger.taken.end());
  CHECK_FALSE(taken->is_default);
  CHECK(taken->source == "max_length since 0.20");
}

TEST_CASE("a template in the place of a value is asked for, and the default is answered", "[importers]") {
  const Ledger ledger = ask_one(R"({"base_model": "Qwen/Qwen3-8B", "sequence_len": "{{ length }}",
                                    "micro_batch_size": "${SIZE}", "lora_r": "<rank>", "adapter": "lora"})");
  INFO(to_json(ledger));
  CHECK(at(ledger, "/data/sequence_length") == 512);
  CHECK(at(ledger, "/data/micro_batch_size") == 1);
  const auto asks = [&](const char* key) {
    return std::any_of(ledger.missing.begin(), ledger.missing.end(),
                       [&](const Missing& one) { return one.key == key; });
  };
  CHECK(asks("sequence_len"));
  CHECK(asks("micro_batch_size"));
  CHECK(asks("lora_r"));
}
