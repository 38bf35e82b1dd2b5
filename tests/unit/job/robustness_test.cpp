#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>

#include "../jobs.h"
#include "job/parse.h"
#include "job/presets.h"

namespace oometer {
namespace {

/// Valid jobs to damage: the examples, and each model alone.
std::vector<std::string> seeds() {
  std::vector<std::string> jobs = example_jobs();
  for (const PresetFile& file : preset_files()) {
    if (file.folder == "models") jobs.push_back(R"({"model": {"preset": ")" + std::string(file.id) + "\"}}");
  }
  jobs.emplace_back(R"({"version": 1, "model": {"config": {"model_type": "llava", "vision_feature_layer": [-2, 3],
      "text_config": {"hidden_size": "4096"}}}, "data": {"micro_batch_size": 2, "image_size": [336, 336]},
      "parallel": {"strategy": "deepspeed", "ds_config": {"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}}})");
  jobs.emplace_back(R"json({"model": {"preset": "llava-1.5-7b"}, "training": {"stage": "finetune", "lora": {"rank": 128,
      "alpha": 256, "dropout": 0.05, "bias": "none", "target_modules": ".*language_model.*\\.(q_proj|v_proj)",
      "modules_to_save": ["lm_head"], "also_train": ["multi_modal_projector"]}}})json");
  jobs.emplace_back(R"({"model": {"preset": "llama-2-7b"}, "training": {"lora": {"rank": 8, "use_rslora": true,
      "target_modules": ["q_proj", "k_proj", "layers.3.mlp.up_proj"], "autocast_adapter_dtype": false}}})");
  jobs.emplace_back(
      R"({"model": {"preset": "llava-1.5-7b"}, "training": {"liger": {"rope": false, "accum_dtype": "fp32"},
      "activation_checkpointing": {"mode": "reentrant", "segments": {"language_model.layers": [[0, 4], 8], "encoder.layers": [1]}}}})");
  jobs.emplace_back(
      R"({"model": {"preset": "llama-2-7b"}, "training": {"lora": {"rank": 8, "target_modules": "all-linear"},
      "quantization": {"load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
      "bnb_4bit_compute_dtype": "bfloat16", "llm_int8_skip_modules": ["lm_head"]},
      "optimizer": {"implementation": "bnb-8bit", "paged": true}}})");
  return jobs;
}

TEST_CASE("Damaged jobs give an error or a job that reads back, never a crash", "[job]") {
  constexpr const char* kPieces[] = {"0",  "-1",    "1e308", "1e18", "null", "true", "\"\"", "{}",
                                     "[]", "\"x\"", "{",     "}",    ",",    ":",    "\"",   "9223372036854775808"};
  std::mt19937 random(20240711);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const std::vector<std::string> originals = seeds();
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = originals[below(originals.size())];
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      std::size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text.erase(at, 1 + below(6));
          break;
        case 1:
          text.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        case 2:
          text[at] = static_cast<char>(below(256));
          break;
        case 3:
          text.replace(at, 1 + below(4), kPieces[below(std::size(kPieces))]);
          break;
        default:  // another digit: the likeliest to give a job that is odd and valid
          at = text.find_first_of("0123456789", at);
          if (at != std::string::npos) text[at] = static_cast<char>('0' + below(10));
      }
      if (text.empty()) break;
    }
    const Result<Job> job = parse_job(text);
    if (!job) {
      CHECK_FALSE(job.error().message.empty());
      continue;
    }
    ++accepted;
    const Result<Job> again = parse_job(to_json(*job));
    INFO(text);
    INFO(to_json(*job));
    REQUIRE(again.has_value());
    REQUIRE(*again == *job);
  }
  CHECK(accepted > 20);  // else the damage is too great to test anything
}

}  // namespace
}  // namespace oometer
