#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>

#include "jobs.h"
#include "models/qwen2_vl/config.h"

namespace oometer {
namespace {

using nlohmann::json;

/// Qwen2.5-VL with a tower of six blocks, the third of which attends fully, and two layers.
json tiny(const json& data = json::object()) {
  json job = json::parse(R"({"model": {"config": {"model_type": "qwen2_5_vl",
    "text_config": {"hidden_size": 64, "intermediate_size": 176, "vocab_size": 512, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "rope_parameters": {"mrope_section": [2, 3, 3]}},
    "vision_config": {"depth": 6, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64,
      "fullatt_block_indexes": [2]}}},
    "data": {"sequence_length": 128, "image_size": [140, 112]}})");
  job["data"].update(data);
  return job;
}

DataConfig data_of(const json& data) {
  const json job = {{"model", {{"preset", "qwen2.5-vl-7b"}}}, {"data", data}};
  return job_of(job.dump()).data;
}

std::string pointer_of_error(const json& job) {
  const Result<Job> result = parse_job(job.dump());
  return result ? "" : result.error().pointer;
}

TEST_CASE("Images become grids of patches as Qwen's processor makes them", "[models]") {
  struct Row {
    std::int64_t height, width, grid_h, grid_w;
  };
  // smart_resize(height, width, factor=28, min_pixels=3136, max_pixels=12845056) of transformers 5.23, in patches
  const Row row = GENERATE(Row{1344, 896, 96, 64}, Row{504, 504, 36, 36}, Row{199, 333, 14, 24},
                           Row{1080, 1920, 78, 138}, Row{20, 30, 4, 6}, Row{14, 42, 4, 8}, Row{4000, 6000, 208, 312},
                           Row{1, 200, 2, 58}, Row{70, 98, 4, 8}, Row{10, 2000, 2, 58});
  CAPTURE(row.height, row.width);
  const DataConfig data = data_of({{"image_size", {row.height, row.width}}, {"sequence_length", 32768}});
  CHECK(data.grid_t == 1);
  CHECK(data.grid_h == row.grid_h);
  CHECK(data.grid_w == row.grid_w);
  CHECK(data.image_height == 14 * row.grid_h);
  CHECK(data.tokens_per_image == row.grid_h * row.grid_w / 4);
  // A grid says the same as the image.
  CHECK(data_of({{"grid_thw", {1, row.grid_h, row.grid_w}}, {"sequence_length", 32768}}) == data);
}

TEST_CASE("Frames are cut into patches of two, and pixels are limited", "[models]") {
  const DataConfig video = data_of({{"image_size", {280, 280}}, {"frames", 5}, {"sequence_length", 4096}});
  CHECK(video.grid_t == 3);
  CHECK(video.tokens_per_image == 3 * 100);
  CHECK(data_of({{"image_size", {1344, 896}}, {"max_pixels", 28 * 28 * 1280}}).tokens_per_image == 43 * 29);
  CHECK(data_of({{"images_per_sample", 0}}).tokens_per_image == 0);
  CHECK(data_of(json::object()).tokens_per_image == 384);
}

TEST_CASE("Windows of a grid", "[models]") {
  QwenVisionConfig config;
  DataConfig data;
  data.grid_t = 1;
  data.grid_h = 20;
  data.grid_w = 22;  // 10 x 11 tokens, windows of 4 x 4
  CHECK(window_lengths(config.windows(), data) == std::vector<std::int64_t>{64, 64, 48, 64, 64, 48, 32, 32, 24});
  CHECK(windows_with_padding(config.windows(), data) == 9);
  data.grid_h = data.grid_w = 16;
  CHECK(window_lengths(config.windows(), data) == std::vector<std::int64_t>(4, 64));
  CHECK(windows_with_padding(config.windows(), data) == 9);  // the processor's padding adds a row and a column of none
}

TEST_CASE("What Qwen-VL refuses is named", "[models]") {
  CHECK(pointer_of_error(tiny()) == "");
  CHECK(pointer_of_error(tiny({{"image_size", {1, 201}}})) == "/data/image_size");
  CHECK(pointer_of_error(tiny({{"image_size", {140}}})) == "/data/image_size");
  CHECK(pointer_of_error(tiny({{"grid_thw", {1, 4, 4}}})) == "/data/image_size");
  json grid = tiny({{"grid_thw", {1, 3, 4}}});
  grid["data"].erase("image_size");
  CHECK(pointer_of_error(grid) == "/data/grid_thw");
  CHECK(pointer_of_error(tiny({{"sequence_length", 19}})) == "/data/sequence_length");  // 5 x 4 tokens
  const auto with = [](const char* pointer, const json& value) {
    json job = tiny();
    job[json::json_pointer(pointer)] = value;
    return pointer_of_error(job);
  };
  CHECK(with("/model/config/vision_config/window_size", 27) == "/model/config/vision_config/window_size");
  CHECK(with("/model/config/vision_config/num_heads", 3) == "/model/config/vision_config/hidden_size");
  CHECK(with("/model/config/vision_config/out_hidden_size", 65) == "/model/config/vision_config/out_hidden_size");
  CHECK(with("/model/config/text_config/num_attention_heads", 6) == "/model/config/text_config/hidden_size");
  CHECK(with("/model/config/text_config/rope_parameters/mrope_section", {2, 3, 4}) ==
        "/model/config/text_config/rope_parameters/mrope_section");
  CHECK(with("/model/config/text_config/use_sliding_window", true) == "");  // no layer is beyond max_window_layers
  CHECK(with("/runtime/transformers", "4.57") == "/runtime/transformers");
  CHECK(with("/model/config/vision_config/num_heads", "2") == "");
}

TEST_CASE("A flat config of Qwen2.5-VL is the same as one with a text_config", "[models]") {
  json flat = tiny(), nested = tiny();
  json& config = flat["model"]["config"];
  const json text = config["text_config"];
  config.erase("text_config");
  config.update(text);
  const auto read = [](const json& job) { return job_of(job.dump()).model.config.config().as<QwenVLConfig>(); };
  CHECK(read(flat) == read(nested));
  const QwenVLConfig c =
      read(json::parse(R"({"model": {"config": {"model_type": "qwen2_vl", "vision_config": {"hidden_size": 8192}}}})"));
  CHECK(c.vision.hidden_size == 1280);
  CHECK(c.vision.intermediate_size == 5120);
  CHECK(c.text.num_hidden_layers == 80);
  CHECK(c.vision.hidden_act == Activation::quick_gelu);
}

TEST_CASE("Qwen-VL's stages train the merger, what comes after the tower, or all", "[models]") {
  const auto trainable = [](const char* stage) {
    json job = tiny();
    job["training"]["stage"] = stage;
    return simulation_of(job.dump()).trainable;
  };
  constexpr std::int64_t kMerger = 32 + 128 * 128 + 128 + 128 * 64 + 64;
  CHECK(trainable("pretrain") == kMerger);
  constexpr std::int64_t kBlock = 2 * 32 + 32 * 96 + 96 + 32 * 32 + 32 + 2 * (32 * 48 + 48) + 48 * 32 + 32;
  CHECK(trainable("full") - trainable("finetune") == 6 * kBlock + 32 * 3 * 2 * 14 * 14);
}

TEST_CASE("Written blocks of Qwen's tower are those that run", "[models]") {
  const auto events = [](bool repeats, const char* checkpointing) {
    json job = tiny();
    job["model"]["config"]["vision_config"]["depth"] = 13;
    job["model"]["config"]["text_config"]["num_hidden_layers"] = 6;
    job["training"]["activation_checkpointing"] = checkpointing;
    const Job parsed = job_of(job.dump());
    Behaviours behaviours = resolve_behaviours(parsed.runtime);
    return simulate(parsed, behaviours, repeats).log.events.size();
  };
  for (const char* checkpointing : {"none", "non-reentrant"})
    CHECK(events(true, checkpointing) == events(false, checkpointing));
}

}  // namespace
}  // namespace oometer
