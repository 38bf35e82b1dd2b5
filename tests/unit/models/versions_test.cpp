#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "jobs.h"
#include "trace/same_log.h"

/// What the models do under older transformers and in the original LLaVA code. Whole steps of each are compared with
/// recorded ones in reference/real_test.cpp.
namespace oometer {
namespace {

std::string tiny_with(const std::string& transformers) {
  return R"(, "runtime": {"transformers": ")" + transformers + R"("})";
}

constexpr const char* kOriginal = R"(, "runtime": {"framework": "llava"})";

/// How often an operator allocates in the first forward.
int count(const Log& log, Op op, std::int64_t bytes = 0) {
  int found = 0;
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    if (log.phases[i].name != PhaseName::forward || log.phases[i].iteration != 1) continue;
    for (std::uint32_t e = log.phases[i].first_event; e < log.phases[i + 1].first_event; ++e)
      if (log.events[e].kind == EventKind::alloc && log.events[e].op == static_cast<OpId>(op) &&
          (bytes == 0 || log.storages[log.events[e].storage].bytes == bytes))
        ++found;
  }
  return found;
}

std::vector<std::string> assumptions_of(const std::string& job) { return job_of(job).assumptions; }

TEST_CASE("Rotary tables: buffers of each layer, then a product in each layer, then one", "[models]") {
  const auto llama = [](const char* version) {
    return run_log(tiny_llama(R"("precision": "bf16")", tiny_with(version)));
  };
  CHECK(count(llama("4.37.2"), Op::cos) == 0);
  CHECK(count(llama("4.37.2"), Op::index) == 4);
  CHECK(count(llama("4.40.2"), Op::cos) == 2);
  for (const char* version : {"4.44.2", "4.48.3", "4.57.1", "5.23"}) {
    INFO(version);
    CHECK(count(llama(version), Op::cos) == 1);
  }
}

TEST_CASE("SDPA gets a mask from 4.53 to 4.57 only, with torch 2.6 and later", "[models]") {
  const auto masks = [](const std::string& runtime) {
    return count(run_log(tiny_llama(R"("precision": "bf16")", runtime)), Op::bitwise_and, 2 * 64 * 64);
  };
  CHECK(masks(tiny_with("4.51.3")) == 0);
  CHECK(masks(tiny_with("4.57.1")) == 1);
  CHECK(masks(R"(, "runtime": {"transformers": "4.57.1", "torch": "2.5"})") == 0);
  CHECK(masks(tiny_with("5.23")) == 0);
}

TEST_CASE("The loss: copied logits up to 4.50, padded labels since", "[models]") {
  const auto copies = [](const char* version) {
    const std::int64_t logits = 4 * 2 * 63 * 512;
    return count(run_log(tiny_llama(R"("precision": "bf16")", tiny_with(version))), Op::clone, logits);
  };
  CHECK(copies("4.37.2") == 1);
  CHECK(copies("4.48.3") == 1);
  CHECK(copies("4.51.3") == 0);
  CHECK(copies("5.23") == 0);
}

TEST_CASE("Features come into the embeddings by index_put, masked_scatter or cat", "[models]") {
  const auto llava = [](const std::string& runtime) { return run_log(tiny_llava(R"("precision": "bf16")", runtime)); };
  CHECK(count(llava(tiny_with("4.44.2")), Op::masked_scatter) == 0);
  CHECK(count(llava(tiny_with("4.46.3")), Op::masked_scatter) > 0);
  CHECK(count(llava(kOriginal), Op::masked_scatter) == 0);
  CHECK(count(llava(kOriginal), Op::stack) == 1);
  // All hidden states of the tower are kept up to 4.57; the gather that counts features came with 4.49.
  CHECK(count(llava(tiny_with("4.48.3")), Op::index, 2 * 2 * 16 * 64) == 0);
  CHECK(count(llava(tiny_with("4.51.3")), Op::index, 2 * 2 * 16 * 64) == 1);
}

TEST_CASE("Equal blocks are written as they would be executed, in every version", "[models]") {
  for (const char* version : {"4.37.2", "4.40.2", "4.44.2", "4.46.3", "4.48.3", "4.51.3", "4.57.1", "original"})
    for (const char* checkpointing : {"none", "non-reentrant", "reentrant"})
      for (const char* attention : {"sdpa", "eager"}) {
        nlohmann::json job = nlohmann::json::parse(tiny_llava());
        job["model"]["config"]["vision_config"]["num_hidden_layers"] = 9;
        job["model"]["config"]["text_config"]["num_hidden_layers"] = 9;
        job["training"]["activation_checkpointing"] = checkpointing;
        job["training"]["attention"] = attention;
        if (std::string(version) == "original")
          job["runtime"]["framework"] = "llava";
        else
          job["runtime"]["transformers"] = version;
        INFO(job.dump());
        const Job parsed = job_of(job.dump());
        const Behaviours behaviours = resolve_behaviours(parsed.runtime);
        CHECK(difference(simulate(parsed, behaviours).log, simulate(parsed, behaviours, false).log) == "");
      }
}

TEST_CASE("A report says how far a version was checked", "[models]") {
  CHECK(assumptions_of(tiny_llama()).empty());
  const std::vector<std::string> recorded = assumptions_of(tiny_llama(R"("precision": "bf16")", tiny_with("4.46.3")));
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].find("small models only") != std::string::npos);
  const std::vector<std::string> between = assumptions_of(tiny_llama(R"("precision": "bf16")", tiny_with("4.50.0")));
  REQUIRE(between.size() == 1);
  CHECK(between[0].find("follows the source") != std::string::npos);
  const std::vector<std::string> original = assumptions_of(tiny_llava(R"("precision": "bf16")", kOriginal));
  REQUIRE(original.size() == 2);  // and torch 2.1.2
  CHECK(original[0].find("not measured on a GPU") != std::string::npos);
}

TEST_CASE("Versions that are not known are refused by name", "[models]") {
  for (const char* runtime : {R"("transformers": "4.36.2")", R"("transformers": "6.0")", R"("torch": "1.13")",
                              R"("torch": "2.16")", R"("framework": "llava", "transformers": "4.46.3")"}) {
    INFO(runtime);
    const Result<Job> job =
        parse_job(tiny_llava(R"("precision": "bf16")", std::string(R"(, "runtime": {)") + runtime + "}"));
    REQUIRE_FALSE(job);
    CHECK(job.error().pointer.starts_with("/runtime/"));
  }
}

}  // namespace
}  // namespace oometer
