#include <algorithm>
#include <nlohmann/json.hpp>

#include "advice/changes.h"
#include "job/notes.h"
#include "job/parse.h"
#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

constexpr const char* kQwen = "qwen3.5-0.8b";
constexpr const char* kNemotron = "nemotron-3-nano-30b-a3b";

json job_with(const char* preset, const json& kernels, const json& runtime = json::object()) {
  json job = {{"model", {{"preset", preset}}},
              {"data", {{"micro_batch_size", 1}, {"sequence_length", 512}}},
              {"runtime", runtime}};
  if (!kernels.is_null()) job["runtime"]["kernels"] = kernels;
  return job;
}

Error refusal_of(const json& job) {
  const Result<Job> parsed = parse_job(job.dump());
  REQUIRE(!parsed);
  return parsed.error();
}

std::int64_t allocated(const json& job) { return estimate(job_of(job.dump()))->report.peak.allocated; }

}  // namespace

TEST_CASE("Kernels are PyTorch's, all packages', or some operations'", "[job]") {
  CHECK(job_of(job_with(kQwen, nullptr).dump()).runtime.kernels == Kernels::torch);
  CHECK(job_of(job_with(kQwen, "packages").dump()).runtime.kernels == Kernels::packages);
  const json some = {{"linear_attention", "packages"}, {"mamba", "torch"}};
  const Job job = job_of(job_with(kQwen, some).dump());
  CHECK(job.runtime.kernels == Kernels::linear_attention);
  const json written = json::parse(to_json(job));
  CHECK(written.at("/runtime/kernels"_json_pointer) == json{{"linear_attention", "packages"}});
  CHECK(job_of(written.dump()).runtime.kernels == Kernels::linear_attention);
}

TEST_CASE("What installed kernels cannot run yet, or never, is refused", "[job]") {
  for (const auto& [job, code] : {
           std::pair{job_with(kQwen, "hub"), "not-modelled"},
           std::pair{job_with(kQwen, {{"attention", "packages"}}), "unknown-key"},
           std::pair{job_with(kNemotron, {{"mamba", "packages"}}), "inconsistent"},
           std::pair{job_with("mamba-1.4b", "packages"), "not-modelled"},
           std::pair{job_with(kQwen, "packages", {{"torch", "2.11"}}), "inconsistent"},
       }) {
    const Error error = refusal_of(job);
    INFO(error.message);
    CHECK(error.code == code);
    CHECK(error.pointer.starts_with("/runtime/kernels"));
  }
}

TEST_CASE("TRL's packed samples need the installed kernels, which keep documents apart", "[job]") {
  const auto packed = [](const json& kernels) {
    json job = job_with("qwen3.5-35b-a3b-text", kernels);
    job["data"] = {{"packed", {{400, 600, 24}}}};
    job["training"] = {{"loop", "trl.SFTTrainer"}};
    return job;
  };
  for (const json& kernels : {json(), json{{"linear_attention", "packages"}}}) {
    const Error error = refusal_of(packed(kernels));
    CHECK(error.code == "inconsistent");
    CHECK(error.pointer == "/runtime/kernels");
  }
  CHECK(parse_job(packed("packages").dump()));
}

TEST_CASE("Samples with images are not packed", "[job]") {
  json job = {{"model", {{"preset", "gemma-3-4b"}}},
              {"data", {{"packed", {{400, 600, 24}}}}},
              {"training", {{"loop", "trl.SFTTrainer"}}}};
  CHECK(refusal_of(job).pointer == "/data/images_per_sample");
  job["data"]["images_per_sample"] = 0;
  CHECK(parse_job(job.dump()));
  job["training"] = {{"attention", "flash_attention_2"}};
  CHECK(refusal_of(job).pointer == "/data/packed");
}

TEST_CASE("Installed kernels of the delta rule need less, and mean nothing to a model that calls none", "[job]") {
  CHECK(allocated(job_with(kQwen, "packages")) < allocated(job_with(kQwen, "torch")));
  CHECK(allocated(job_with("llama-3-8b", "packages")) == allocated(job_with("llama-3-8b", "torch")));
}

TEST_CASE("The advice proposes to install kernels where there is something to install", "[advice]") {
  const auto proposes = [](const json& document) {
    const std::vector<Alternatives> choices = possible_changes(job_of(document.dump()), document);
    return std::any_of(choices.begin(), choices.end(), [](const Alternatives& choice) {
      return choice.changes[0].label == "Kernels of fla and causal_conv1d";
    });
  };
  CHECK(proposes(job_with(kQwen, nullptr)));
  CHECK(!proposes(job_with(kQwen, "packages")));
  CHECK(!proposes(job_with("llama-3-8b", nullptr)));
}

TEST_CASE("A report says how much installed kernels would save, where that matters", "[job]") {
  const auto says = [](json job, std::int64_t length) {
    job["data"]["sequence_length"] = length;
    const Job parsed = job_of(job.dump());
    const std::vector<std::string> notes = estimate(parsed)->input.notes;
    return std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
      return note.starts_with("without fla and causal_conv1d transformers runs its own code, as here; with them");
    });
  };
  CHECK(says(job_with(kQwen, nullptr), 2048));
  CHECK(!says(job_with(kQwen, "packages"), 2048));
  CHECK(!says(job_with(kQwen, nullptr, {{"torch", "2.11"}}), 2048));
}

TEST_CASE("A report says whose kernels run", "[job]") {
  ReportInput input;
  const Job job = job_of(job_with(kQwen, {{"linear_attention", "packages"}}).dump());
  note_kernels(job, input);
  REQUIRE(input.assumptions.size() == 2);
  CHECK(input.assumptions[0] == "the kernels of fla run, as their source allocates");
  CHECK(input.assumptions[1].starts_with("transformers' own code runs where the kernels of causal_conv1d usually"));
}

}  // namespace oometer
