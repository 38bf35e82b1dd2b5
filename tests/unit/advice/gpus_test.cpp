#include "advice/gpus.h"

#include <nlohmann/json.hpp>

#include "advice/trial.h"
#include "job/catalogue.h"
#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

const json kJob = json::parse(R"({"model": {"preset": "llama-2-7b"}, "data": {"sequence_length": 512},
  "training": {"activation_checkpointing": "non-reentrant"}, "gpu": {"name": "a100-40gb"},
  "parallel": {"strategy": "deepspeed", "zero_stage": 3, "data": 4}})");

}  // namespace

TEST_CASE("Every GPU of the catalogue has a row, those that fit first", "[advice]") {
  const Result<std::vector<GpuRow>> rows = on_every_gpu(kJob.dump());
  REQUIRE(rows);
  CHECK(rows->size() == gpu_catalogue().size());
  bool fitted = true;
  for (const GpuRow& row : *rows) {
    const bool fits = row.trial && row.trial->fits;
    CHECK((fitted || !fits));
    fitted = fits;
  }
}

TEST_CASE("What a row says of a GPU is what a run there says", "[advice]") {
  const Result<std::vector<GpuRow>> rows = on_every_gpu(kJob.dump());
  REQUIRE(rows);
  std::size_t checked = 0;
  for (const GpuRow& row : *rows) {
    if (row.gpu.id != "a100-40gb" && row.gpu.id != "rtx-4090" && row.gpu.id != "t4") continue;
    ++checked;
    INFO(row.gpu.id);
    const json there = patched(kJob, {{"gpu", {{"name", row.gpu.id}}}});
    const std::optional<Trial> trial = try_job(there);
    REQUIRE(trial);
    REQUIRE(row.trial);
    CHECK(row.trial->total == trial->total);
    CHECK(row.trial->verdict == trial->verdict);
    const auto fits = [&](std::int64_t batch) {
      return try_job(patched(there, {{"data", {{"micro_batch_size", batch}}}}))->fits;
    };
    const json alone = json::parse(gpu_json(there.dump()));
    CHECK(alone.at("id") == row.gpu.id);
    CHECK(alone.at("peak") == trial->total);
    CHECK(alone.at("largest_micro_batch") == (row.largest_micro_batch ? json(*row.largest_micro_batch) : json()));
    CHECK(alone.at("needed").is_null() == !row.needed);
    if (row.largest_micro_batch) CHECK(fits(*row.largest_micro_batch));
    CHECK_FALSE(fits(row.largest_micro_batch.value_or(0) + 1));
    if (row.needed) {
      CHECK(try_job(patched(kJob, json::parse(row.needed->change)))->fits);
      if (row.needed->gpus > 1 && row.needed->label.empty())
        CHECK_FALSE(try_job(patched(there, {{"parallel", {{"data", row.needed->gpus / 2}}}}))->fits);
    }
  }
  CHECK(checked == 3);
}

TEST_CASE("A GPU on which a job is refused says why", "[advice]") {
  const json job = json::parse(R"({"model": {"preset": "llama-2-7b"}, "training": {"attention": "sdpa-flash"}})");
  const json answer = json::parse(gpus_json(job.dump()));
  for (const json& row : answer.at("gpus")) {
    if (row.at("id") != "t4") continue;
    CHECK(row.at("verdict").is_null());
    CHECK(row.at("refused").get<std::string>().find("compute capability") != std::string::npos);
  }
  CHECK(json::parse(gpus_json("{")).contains("error"));
  CHECK(json::parse(gpu_json("{")).contains("error"));
}

}  // namespace oometer
