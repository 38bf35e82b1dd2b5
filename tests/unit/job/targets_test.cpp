#include <catch2/catch_test_macros.hpp>

#include "job/estimate.h"
#include "job/parse.h"

namespace oometer {
namespace {

Result<Job> job_of_preset(const char* preset, const char* data) {
  return parse_job(std::string(R"({"version": 1, "model": {"preset": ")") + preset + R"("}, "data": )" + data + "}");
}

TEST_CASE("Targets are as long as the text unless a job says otherwise, and are written so", "[job]") {
  const Result<Job> same = job_of_preset("t5-small", R"({"sequence_length": 300})");
  REQUIRE(same);
  CHECK(same->data.target_length == 300);
  CHECK(to_json(*same).find("target_length") == std::string::npos);
  const Result<Job> summary = job_of_preset("bart-base", R"({"sequence_length": 1024, "target_length": 128})");
  REQUIRE(summary);
  const Result<Job> again = parse_job(to_json(*summary));
  REQUIRE(again);
  CHECK(again->data == summary->data);
}

TEST_CASE("Logits are of the targets alone", "[job]") {
  const auto peak = [](const char* data) { return estimate(*job_of_preset("t5-small", data))->report.peak.allocated; };
  const std::int64_t both = peak(R"({"sequence_length": 512})");
  CHECK(peak(R"({"sequence_length": 512, "target_length": 64})") < both * 9 / 10);
  CHECK(peak(R"({"sequence_length": 64, "target_length": 512})") > both * 8 / 10);
}

TEST_CASE("A model without a decoder beside an encoder has no targets, and positions have an end", "[job]") {
  const Result<Job> decoder = job_of_preset("llama-3-8b", R"({"target_length": 64})");
  REQUIRE_FALSE(decoder);
  CHECK(decoder.error().pointer == "/data/target_length");
  CHECK(decoder.error().message == "found 64; LlamaForCausalLM has no decoder beside an encoder: leave it out");
  const Result<Job> longer = job_of_preset("bart-base", R"({"target_length": 1025})");
  REQUIRE_FALSE(longer);
  CHECK(longer.error().pointer == "/data/target_length");
}

}  // namespace
}  // namespace oometer
