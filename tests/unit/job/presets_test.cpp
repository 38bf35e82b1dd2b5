#include "job/presets.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "../jobs.h"
#include "job/catalogue.h"
#include "job/parse.h"
#include "models/clip/config.h"
#include "models/llava/config.h"

namespace oometer {
namespace {

TEST_CASE("Every model preset is a job, and reads without a gap", "[presets]") {
  const std::vector<ModelPreset> presets = model_presets();
  CHECK(presets.size() >= 8);
  for (const ModelPreset& preset : presets) {
    INFO(preset.id);
    CHECK_FALSE(preset.title.empty());
    CHECK_FALSE(preset.description.empty());
    const Result<Job> job = default_job(preset.id);
    REQUIRE(job.has_value());
    CHECK(job->unmodelled.empty());
  }
}

TEST_CASE("Every example job is a job", "[presets]") {
  const std::vector<std::string> jobs = example_jobs();
  for (const std::string& job : jobs) CHECK(job_of(job).unmodelled.empty());
  CHECK(jobs.size() >= 4);
}

TEST_CASE("Published sizes of the presets", "[presets]") {
  const auto llava = default_job("llava-1.5-13b")->model.config.config().as<LlavaConfig>();
  CHECK(llava.text.hidden_size == 5120);
  CHECK(llava.text.num_hidden_layers == 40);
  CHECK(llava.text.num_key_value_heads == 40);
  CHECK(llava.text.vocab_size == 32064);
  CHECK(llava.vision.hidden_size == 1024);
  CHECK(llava.vision_feature_layers == std::vector<std::int64_t>{23});
  CHECK(llava.tokens_per_image() == 576);
  const auto llama = default_job("llama-3-8b")->model.config.config().as<LlamaConfig>();
  CHECK(llama.num_key_value_heads == 8);
  CHECK(llama.head_dim == 128);
  CHECK(llama.vocab_size == 128256);
  const auto clip = default_job("clip-vit-l-14-336")->model.config.config().as<ClipConfig>();
  CHECK(clip.vision.num_positions() == 577);
  CHECK(clip.text.hidden_size == 768);
  CHECK(clip.projection_dim == 768);
}

TEST_CASE("Every GPU says where its size is from and where it is found", "[presets]") {
  std::ifstream file(OOMETER_SOURCE_DIR "/presets/gpus.json");
  const nlohmann::json gpus = nlohmann::json::parse(file, nullptr, false);
  REQUIRE(gpus.is_array());
  CHECK(gpus.size() == gpu_catalogue().size());
  for (const nlohmann::json& gpu : gpus) {
    INFO(gpu.value("id", ""));
    CHECK_FALSE(gpu.value("source", "").empty());
    const std::string place = gpu.value("place", "");
    CHECK((place == "cloud" || place == "desk"));
  }
}

TEST_CASE("The catalogue of GPUs is whole and plausible", "[presets]") {
  const std::vector<Gpu> gpus = gpu_catalogue();
  CHECK(gpus.size() >= 40);
  std::set<std::string> ids;
  for (const Gpu& gpu : gpus) {
    INFO(gpu.id);
    CHECK(ids.insert(gpu.id).second);
    CHECK_FALSE(gpu.name.empty());
    CHECK_FALSE(gpu.architecture.empty());
    CHECK(gpu.usable_bytes > std::int64_t{7} << 30);
    CHECK(gpu.usable_bytes < std::int64_t{256} << 30);
    CHECK(gpu.sm_count >= 10);
    CHECK(gpu.major >= 6);
    CHECK_FALSE(gpu.allocator_limit);
    CHECK(gpu.calibrated == (gpu.vendor == Vendor::nvidia));
    CHECK(find_gpu(gpu.id)->name == gpu.name);
  }
  // Permalinks hold these.
  for (const char* id : {"h100-80gb", "a100-80gb", "a100-40gb", "t4", "rtx-4090", "h200", "b200", "mi300x"}) {
    CHECK(ids.count(id) == 1);
  }
  CHECK(find_gpu("h100-80gb")->usable_bytes >> 30 == 79);
}

nlohmann::json hub() {
  std::ifstream file(OOMETER_SOURCE_DIR "/presets/hub.json");
  return nlohmann::json::parse(file, nullptr, false);
}

TEST_CASE("Every model of the hub's catalogue has a name, a source, and one config", "[presets]") {
  const nlohmann::json models = hub();
  REQUIRE(models.is_array());
  CHECK(models.size() >= 150);
  const std::vector<ModelPreset> presets = model_presets();
  std::set<std::string> ids;
  for (const nlohmann::json& model : models) {
    const std::string id = model.value("id", "");
    INFO(id);
    CHECK(ids.insert(id).second);
    CHECK(std::count(id.begin(), id.end(), '/') == 1);
    CHECK_FALSE(model.value("source", "").empty());
    CHECK(model.contains("config") != model.contains("preset"));
    const std::string preset = model.value("preset", "");
    CHECK((preset.empty() ||
           std::any_of(presets.begin(), presets.end(), [&](const ModelPreset& known) { return known.id == preset; })));
  }
}

TEST_CASE("Every config of the hub's catalogue is read, or its architecture is refused by name", "[presets]") {
  int read = 0;
  for (const nlohmann::json& model : hub()) {
    if (!model.contains("config")) continue;
    INFO(model.value("id", ""));
    const nlohmann::json job = {{"version", 1}, {"model", {{"config", model["config"]}}}};
    const Result<Job> parsed = parse_job(job.dump());
    if (parsed) {
      ++read;
      continue;
    }
    CHECK(parsed.error().code == "unsupported-model");
  }
  CHECK(read >= 90);
}

}  // namespace
}  // namespace oometer
