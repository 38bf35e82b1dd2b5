#include "advice/sharing.h"

#include <array>
#include <nlohmann/json.hpp>

#include "job/estimate.h"
#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

std::string sharing_job(std::int64_t batch, const char* gpu = "rtx-4090") {
  return json{{"model", {{"preset", "qwen3-0.6b"}}},
              {"data", {{"micro_batch_size", batch}, {"sequence_length", 1000}}},
              {"training", {{"activation_checkpointing", "non-reentrant"}, {"lora", {{"rank", 16}}}}},
              {"gpu", {{"name", gpu}}}}
      .dump();
}

std::int64_t total_of(const std::string& job) {
  const Result<Estimate> alone = estimate(std::string_view(job));
  REQUIRE(alone);
  return alone->report.total;
}

}  // namespace

TEST_CASE("Jobs on one GPU each have an allocator and a context", "[advice]") {
  const std::array jobs{sharing_job(1), sharing_job(2)};
  const Result<Sharing> together = share(jobs, "");
  REQUIRE(together);
  CHECK(together->gpu.id == "rtx-4090");
  REQUIRE(together->tenants.size() == 2);
  CHECK(together->tenants[0].total == total_of(jobs[0]));
  CHECK(together->tenants[1].total == total_of(jobs[1]));
  CHECK(together->total == together->tenants[0].total + together->tenants[1].total);
  CHECK(together->headroom == together->gpu.usable_bytes - together->total);
  CHECK(together->verdict == Verdict::fits);
  CHECK(together->memory_fractions.empty());
}

TEST_CASE("Jobs that each still run beside all that the others hold are tight", "[advice]") {
  std::size_t limited_jobs = 0;
  for (std::int64_t batch = 1; batch <= 7; ++batch) {
    const std::array jobs{sharing_job(batch), sharing_job(batch)};
    const Result<Sharing> together = share(jobs, "");
    REQUIRE(together);
    const Tenant& one = together->tenants[0];
    INFO(batch << ": " << one.total << " " << one.least);
    CHECK(one.least <= one.total);
    if (together->verdict == Verdict::fits) CHECK(2 * one.total <= together->gpu.usable_bytes);
    if (together->verdict == Verdict::tight) CHECK(one.total + one.least <= together->gpu.usable_bytes);
    if (together->verdict == Verdict::does_not_fit) CHECK(one.total + one.least > together->gpu.usable_bytes);
    // Within its fraction a job runs on a device of its own: PyTorch takes the fraction of the device's memory.
    for (const double fraction : together->memory_fractions) {
      json limited = json::parse(jobs[0]);
      limited["gpu"] = {
          {"usable_bytes", static_cast<std::int64_t>(fraction * static_cast<double>(together->gpu.usable_bytes)) +
                               one.outside_allocator},
          {"compute_capability", "8.9"}};
      const Result<Estimate> alone = estimate(std::string_view(limited.dump()));
      REQUIRE(alone);
      CHECK(alone->report.fits);
      ++limited_jobs;
    }
  }
  CHECK(limited_jobs > 0);
}

TEST_CASE("Two jobs that keep a GPU busy take twice as long", "[advice]") {
  const std::array jobs{sharing_job(4, "a100-80gb"), sharing_job(4, "a100-80gb")};
  const Result<Sharing> together = share(jobs, "");
  REQUIRE(together);
  for (const Tenant& one : together->tenants) {
    REQUIRE(one.busy);
    REQUIRE(one.slowdown);
    CHECK(one.slowdown->factor >= 1);
    CHECK(one.slowdown->factor <= 2);
    CHECK(one.slowdown->factor == std::max(1.0, *one.busy / std::max(0.5, 1 - *one.busy)));
  }
}

TEST_CASE("Jobs that cannot share say which and why", "[advice]") {
  const std::array one{sharing_job(1)};
  CHECK_FALSE(share(one, ""));
  const std::array broken{sharing_job(1), sharing_job(0)};
  const Result<Sharing> answer = share(broken, "");
  REQUIRE_FALSE(answer);
  CHECK(answer.error().pointer == "/1/data/micro_batch_size");
  const std::array fine{sharing_job(1), sharing_job(1)};
  CHECK_FALSE(share(fine, "no-such-gpu"));
  CHECK(json::parse(share_json(fine, "")).at("jobs").size() == 2);
  CHECK(json::parse(share_json(broken, "")).contains("error"));
}

}  // namespace oometer
