#include <catch2/catch_test_macros.hpp>
#include <string_view>

#include "cases.h"

/// Most blocks of a stack are written into the log, not executed (nn/repeat): it must be what executing them gives.
namespace oometer {
namespace {

/// The recorded cases have two or three layers, of which none is written: with seven, most of them are. A run that
/// executes all of them takes long, so that one case in so many is run.
constexpr int kLayers = 7;
constexpr std::size_t kEvery = 5;

void deepen(nlohmann::json& config) {
  for (auto& [key, value] : config.items()) {
    if (value.is_object()) deepen(value);
    for (const std::string_view count :
         {"num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "n_layers", "depth"})
      if (key == count && value.is_number_integer()) value = kLayers;
    if ((key == "layer_types" || key == "mlp_layer_types") && value.is_array() && !value.empty()) {
      const nlohmann::json types = value;
      value = nlohmann::json::array();
      for (std::size_t i = 0; i < kLayers; ++i) value.push_back(types[i % types.size()]);
    }
  }
}

/// Of the file's cases, deepened, those whose classes take so many layers.
void check_cases(const std::filesystem::path& file) {
  std::ifstream input(kReference / file);
  std::size_t count = 0;
  for (std::string line; std::getline(input, line);) {
    if (count++ % kEvery != 0) continue;
    nlohmann::json json = nlohmann::json::parse(line);
    INFO(file << ": " << json["name"]);
    deepen(json["job"]["model"]);
    const Result<Job> job = parse_job(json["job"].dump());
    if (!job) continue;
    const Behaviours behaviours = resolve_behaviours(job->runtime);
    const Log written = simulate(*job, behaviours).log, executed = simulate(*job, behaviours, false).log;
    CHECK(written.events.size() == executed.events.size());
    const Replay mine = replay(written, allocator_options(behaviours, job->runtime)),
                 truth = replay(executed, allocator_options(behaviours, job->runtime));
    REQUIRE(mine.phases.size() == truth.phases.size());
    for (std::size_t i = 0; i < mine.phases.size(); ++i) {
      INFO("phase " << i << " of iteration " << executed.phases[i].iteration);
      CHECK(mine.phases[i].allocated == truth.phases[i].allocated);
      CHECK(mine.phases[i].reserved == truth.phases[i].reserved);
    }
  }
}

TEST_CASE("Blocks that are written are what executing them gives: steps", "[reference]") {
  for (const std::filesystem::path& file : files_of_families("training")) check_cases(file);
}

TEST_CASE("Blocks that are written are what executing them gives: ranks", "[reference]") {
  for (const std::filesystem::path& file : files_of_families("ranks")) check_cases(file);
}

TEST_CASE("Blocks that are written are what executing them gives: trainers", "[reference]") {
  for (const char* loop : {"hf_trainer", "sft", "dpo", "adapters", "axolotl", "vision"})
    check_cases(std::filesystem::path("trainer") / (std::string(loop) + ".jsonl"));
}

}  // namespace
}  // namespace oometer
