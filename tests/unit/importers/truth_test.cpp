#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"
#include "job/estimate.h"

using namespace oometer;
using namespace oometer::importers;

namespace {

/// A small Qwen 3, published in bf16.
const char* const kConfig = R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})";

/// Peak allocated of the job that a LLaMA-Factory file becomes.
std::int64_t peak_of(const std::string& tuning) {
  const Ledger ledger = ask({file_of("train.yaml", R"({"model_name_or_path": "me/small", "stage": "sft", "bf16": true,
      "cutoff_len": 1024, "per_device_train_batch_size": 2, "save_strategy": "no", "dataset": "x",
      "finetuning_type": ")" + tuning + R"("})"),
                             file_of("config.json", kConfig)});
  INFO(to_json(ledger));
  REQUIRE_FALSE(ledger.refused);
  const auto report = nlohmann::json::parse(estimate_json(ledger.job.dump()));
  return report.at("peak").at("allocated").get<std::int64_t>();
}

}  // namespace

// What transformers 5.23's Trainer allocated with LLaMA-Factory's settings of these files (tools/trainer.py: reentrant
// checkpoints, autocast; adapters: weights in bf16; full: in float32), which gave each batch a full attention_mask too.
TEST_CASE("an imported LLaMA-Factory file takes what the real trainer takes", "[importers][llamafactory]") {
  constexpr std::int64_t kMask = 2 * 1024 * 8;
  CHECK(peak_of("lora") == 4'208'581'120 - kMask);
  CHECK(peak_of("full") == 6'727'618'048 - kMask);
}
