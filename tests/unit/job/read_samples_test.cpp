#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>

#include "job/order_spread.h"
#include "jobs.h"

namespace oometer {
namespace {

Result<Job> with_data(const std::string& data) { return parse_job(tiny_llama(kInBf16, "", data)); }

TEST_CASE("Samples of a job read back equal", "[job]") {
  const std::string data = GENERATE(
      R"("lengths": {"batches": [[40, 64], [12]]})",
      R"("lengths": {"batches": [[40, 64], [12, 9]]}, "micro_batch_size": 2, "padding": 16, "steps": 7)",
      R"("lengths": {"uniform": [5, 64], "seed": 3}, "padding": "max", "sequence_length": 128, "padding_side": "left")",
      R"("lengths": {"histogram": [[5, 1], [60, 30]]}, "micro_batch_size": 4, "scored": "completion")",
      R"("lengths": {"quantiles": [[0, 5], [0.25, 9], [1, 60]], "grouped": true})",
      R"("packed": [[40, 20, 4], [64]], "micro_batch_size": 2, "scored": {"tokens": 3})",
      R"("lengths": {"batches": [[40, 64], [12, 9]]}, "packed": "bfd", "sequence_length": 64)",
      R"("lengths": {"uniform": [5, 64]}, "packed": "wrapped", "scored": {"fraction": 0.5})");
  const Job job = job_of(tiny_llama(kInBf16, "", data));
  CHECK(job.samples.are_given());
  const std::string written = to_json(job);
  INFO(written);
  const Job again = job_of(written);
  CHECK(again.data == job.data);
  CHECK(again.samples == job.samples);
}

TEST_CASE("A full micro-batch is as large as the largest of the samples'", "[job]") {
  const Job job = job_of(tiny_llama(kInBf16, "", R"("lengths": {"batches": [[40, 33, 7], [65]]}, "padding": 8)"));
  CHECK(job.data.micro_batch_size == 3);
  CHECK(job.data.sequence_length == 72);
  CHECK(job_of(tiny_llama(kInBf16, "", R"("packed": [[40, 20, 4], [70]])")).data.sequence_length == 70);
}

TEST_CASE("Samples that cannot be are refused by name", "[job]") {
  struct Row {
    const char *data, *pointer, *words;
  };
  const Row row = GENERATE(
      Row{R"("lengths": {"batches": [[40, 0]]})", "/data/lengths/batches", "at least 1 token"},
      Row{R"("lengths": {"batches": []})", "/data/lengths/batches", "expected micro-batches"},
      Row{R"("lengths": {"batches": [[]]})", "/data/lengths/batches", "expected micro-batches"},
      Row{R"("lengths": {"batches": [40]})", "/data/lengths/batches", "found 40"},
      Row{R"("lengths": {"batches": [[2.5]]})", "/data/lengths/batches", "found 2.5"},
      Row{R"("lengths": {"uniform": [0, 5]})", "/data/lengths/uniform/0", "0"},
      Row{R"("lengths": {"uniform": [9, 5]})", "/data/lengths/uniform", "expected [least, most]"},
      Row{R"("lengths": {"histogram": [[5, 0]]})", "/data/lengths/histogram", "at least one"},
      Row{R"("lengths": {"histogram": [[0, 4]]})", "/data/lengths/histogram", "at least 1 token"},
      Row{R"("lengths": {"histogram": {"5": 1}})", "/data/lengths/histogram", "expected [[length, count], ...]"},
      Row{R"("lengths": {"histogram": [[5, -1]]})", "/data/lengths/histogram", "expected [[length, count], ...]"},
      Row{R"("lengths": {})", "/data/lengths", "expected one of them"},
      Row{R"("lengths": {"uniform": [1, 5], "batches": [[5]]})", "/data/lengths", "found 2 of"},
      Row{R"("lengths": {"batches": [[5]], "seed": 1})", "/data/lengths/seed", "uniform, histogram or quantiles"},
      Row{R"("lengths": {"quantiles": [[0, 5], [0.5, 9]]})", "/data/lengths/quantiles", "to the longest (share 1)"},
      Row{R"("lengths": {"quantiles": [[0, 5], [0.5, 4], [1, 9]]})", "/data/lengths/quantiles",
          "[[share, length], ...]"},
      Row{R"("lengths": {"batches": [[5]], "grouped": true})", "/data/lengths/grouped", "batches have an order"},
      Row{R"("lengths": {"batches": [[5, 5]]}, "micro_batch_size": 3)", "/data/micro_batch_size", "expected 2"},
      Row{R"("lengths": {"batches": [[500]]}, "sequence_length": 400)", "/data/lengths", "expected at most 400"},
      Row{R"("packed": "bfd")", "/data/packed", "data.lengths"}, Row{R"("packed": "best")", "/data/packed", "bfd"},
      Row{R"("packed": [[5]], "lengths": {"uniform": [1, 5]})", "/data/packed", "beside lengths"},
      Row{R"("packed": [[5, 0]])", "/data/packed", "at least 1 token"},
      Row{R"("steps": 5)", "/data/steps", "data.lengths or data.packed"},
      Row{R"("lengths": {"uniform": [1, 5]}, "steps": 0)", "/data/steps", "0"},
      Row{R"("lengths": {"uniform": [1, 5]}, "padding": 0)", "/data/padding", "0"},
      Row{R"("lengths": {"uniform": [1, 5]}, "padding": "short")", "/data/padding", "longest"},
      Row{R"("scored": {"tokens": 1, "fraction": 0.5})", "/data/scored", "expected"});
  INFO(row.data);
  const Result<Job> job = with_data(row.data);
  REQUIRE_FALSE(job);
  CHECK(job.error().pointer == row.pointer);
  CHECK(job.error().message.find(row.words) != std::string::npos);
  INFO(job.error().message);
}

TEST_CASE("Samples whose images do not fit into them are refused", "[job]") {
  const Result<Job> job = parse_job(tiny_llava(kInBf16, "", R"("lengths": {"batches": [[64, 15]]})"));
  REQUIRE_FALSE(job);
  CHECK(job.error().pointer == "/data/lengths");
  CHECK(job.error().message.find("16 tokens of its images") != std::string::npos);
}

TEST_CASE("Reserved memory depends on the order of samples", "[job]") {
  using nlohmann::json;
  const std::string text = tiny_llama(kInBf16, "", R"("lengths": {"uniform": [300, 2000], "seed": 3}, "steps": 6)");
  const json answer = json::parse(order_spread_json(text));
  const json spread = answer.at("spread");
  CHECK(spread["orders"].get<int>() > 100);
  CHECK(spread["low"] < spread["high"]);
  EstimateOptions with_orders;
  with_orders.orders = true;
  const json report = json::parse(estimate_json(text, with_orders));
  CHECK(report["spread"] == spread);
  CHECK(report["peak"]["reserved"] <= spread["high"]);
  CHECK_FALSE(json::parse(estimate_json(text)).contains("spread"));
  CHECK(order_spread_json(tiny_llama()) == "{}");
  CHECK(json::parse(order_spread_json("{")).contains("error"));
}

TEST_CASE("A report of samples has the peaks of each step", "[job]") {
  const auto report = nlohmann::json::parse(
      estimate_json(tiny_llama(kInBf16, "", R"("lengths": {"batches": [[40, 64], [12, 9]]}, "steps": 5)"), {}));
  REQUIRE(report["steps"].size() == 5);
  std::int64_t most = 0;
  for (const auto& step : report["steps"]) most = std::max(most, step["reserved"].get<std::int64_t>());
  CHECK(report["peak"]["reserved"] == most);
  CHECK_FALSE(nlohmann::json::parse(estimate_json(tiny_llama(), {})).contains("steps"));
}

}  // namespace
}  // namespace oometer
