#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "../jobs.h"
#include "../mutate.h"
#include "report/report.h"

namespace oometer {
namespace {

using nlohmann::json;

/// A small config of each family.
std::vector<json> configs() {
  const json text =
      json::parse(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
      "hidden_act": "silu", "attention_dropout": 0.0, "tie_word_embeddings": false})");
  json vision = json::parse(R"({"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_channels": 3, "image_size": 56, "patch_size": 14,
      "hidden_act": "quick_gelu", "projection_dim": 16})");
  std::vector<json> all;
  for (const char* type : {"llama", "qwen2", "qwen3", "mistral"}) {
    json config = text;
    config["model_type"] = type;
    if (config["model_type"] == "mistral") config["sliding_window"] = 4096;
    if (config["model_type"] == "qwen3") config.update({{"head_dim", 24}, {"attention_bias", false}});
    all.push_back(config);
  }
  all.push_back(vision);
  all.push_back({{"model_type", "clip"}, {"text_config", text}, {"vision_config", vision}, {"projection_dim", 16}});
  all.push_back({{"model_type", "llava"},
                 {"text_config", text},
                 {"vision_config", vision},
                 {"vision_feature_layer", -2},
                 {"vision_feature_select_strategy", "default"},
                 {"projector_hidden_act", "gelu"}});
  json next = all.back();
  next["model_type"] = "llava_next";
  next["image_grid_pinpoints"] = {{56, 112}, {112, 56}, {112, 112}};
  all.push_back(next);
  json siglip = all[all.size() - 2];
  siglip["vision_config"] = vision;
  siglip["vision_config"].erase("projection_dim");
  siglip["vision_config"]["model_type"] = "siglip_vision_model";
  siglip["vision_config"]["vision_use_head"] = true;
  siglip["vision_feature_select_strategy"] = "full";
  all.push_back(siglip);
  all.push_back(json::parse(R"({"model_type": "nanovlm", "vit_hidden_dim": 32, "vit_inter_dim": 64, "vit_n_blocks": 2,
      "vit_n_heads": 2, "vit_img_size": 64, "vit_patch_size": 16, "lm_hidden_dim": 64, "lm_inter_dim": 96,
      "lm_vocab_size": 256, "lm_n_blocks": 2, "lm_n_heads": 4, "lm_n_kv_heads": 2, "lm_max_length": 64,
      "mp_image_token_length": 4, "lm_tie_weights": true})"));
  vision.erase("model_type");
  vision.erase("projection_dim");
  vision["size"] = {{"longest_edge", 112}};
  for (const char* type : {"smolvlm", "idefics3"})
    all.push_back({{"model_type", type}, {"text_config", text}, {"vision_config", vision}, {"scale_factor", 2}});
  return all;
}

TEST_CASE("300 mutated configs give an answer that adds up or say what is wrong", "[models]") {
  const json kValues =
      json::parse(R"([0, 1, 2, 3, 7, -1, 16, 64, 1000, 1e9, 1e30, 0.5, "2", "silu", "gelu", "llama", "x", "",
                                       true, false, null, {}, [], [1, 2], [[56, 56]], {"longest_edge": 28}])");
  constexpr const char* kPlaces[] = {"", "/text_config", "/vision_config"};
  std::mt19937 random(20261121);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const auto job_of_config = [](const json& config) {
    json job = {{"model", {{"config", config}}}};
    if (config.value("model_type", json()) == "clip_vision_model") job["training"]["loss"] = "pooler_output";
    if (config.value("model_type", json()) == "mistral") job["data"]["sequence_length"] = 64;
    return job.dump();
  };
  const std::vector<json> originals = configs();
  for (const json& original : originals) {
    INFO(original.dump());
    const Result<Estimate> answer = estimate(job_of_config(original));
    if (!answer) FAIL(answer.error().pointer << ": " << answer.error().message);
  }
  int answers = 0, errors = 0;
  for (int i = 0; i < 300; ++i) {
    json config = originals[below(originals.size())];
    const std::vector<json::json_pointer> misspelt =
        mutate(config, kPlaces, kValues, below, [](const std::string& key, json& place) {
          place[key + "_x"] = 12345;
          return key + "_x";
        });
    const std::string job = job_of_config(config);
    INFO(job);
    const Result<Job> read = parse_job(job);
    if (!read) {
      ++errors;
      CHECK_FALSE(read.error().message.empty());
      CHECK((read.error().pointer.empty() || read.error().pointer.front() == '/'));
      continue;
    }
    // Nothing that is not known is passed over, wherever its object is still read.
    for (const json::json_pointer& pointer : misspelt) {
      const std::string place = "/model/config" + pointer.to_string() + ":";
      const bool is_told = std::any_of(read->unmodelled.begin(), read->unmodelled.end(),
                                       [&](const Unmodelled& left_out) { return left_out.text.starts_with(place); });
      CHECK((is_told || !config.contains(pointer)));
    }
    // An erased width is a default of full size: read, and not run here.
    const Simulation simulation = simulate(*read, resolve_behaviours(read->runtime));
    ++answers;
    CHECK(simulation.parameters > 0);
    CHECK(simulation.trainable == simulation.parameters);
    CHECK(parse_job(to_json(*read)).has_value());
  }
  CHECK(answers > 60);
  CHECK(errors > 60);
}

}  // namespace
}  // namespace oometer
