#include "job/host.h"

#include <nlohmann/json.hpp>

#include "advice/advice.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

json offloaded_llama(const json& host) {
  return {{"version", 1},
          {"model", {{"preset", "llama-3-8b"}}},
          {"training", {{"precision", "bf16"}, {"activation_checkpointing", "non-reentrant"}}},
          {"parallel",
           {{"strategy", "deepspeed"},
            {"data", 8},
            {"ds_config", {{"zero_optimization", {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}}}}}}},
          {"host", host}};
}

json host_answer(const json& job) { return json::parse(estimate_json(job.dump())); }

TEST_CASE("without its memory the host is no part of a report", "[job]") {
  CHECK(!host_answer(offloaded_llama(json::object())).contains("host"));
}

TEST_CASE("a job that fits the GPU does not fit where the host runs out", "[job]") {
  const json little = host_answer(offloaded_llama({{"memory", 100 * kGiB}}));
  CHECK(little.at("headroom") > 0);
  CHECK(little.at("fits") == false);
  CHECK(little.at("verdict") == "does-not-fit");
  CHECK(little.at("host").at("verdict") == "does-not-fit");
  CHECK(little.at("host").at("phase") == "training");
  CHECK(little.at("out_of_memory").is_null());
  const json enough = host_answer(offloaded_llama({{"memory", "512GiB"}}));
  CHECK(enough.at("fits") == true);
  CHECK(enough.at("host").at("memory") == 512 * kGiB);
  CHECK(enough.at("host").at("verdict") == "fits");
  // 18 bytes a parameter, once for all processes: 8.03 billion.
  CHECK(enough.at("host").at("needs") > 18 * 8'030'000'000);
  CHECK(enough.at("host").at("needs") == little.at("host").at("needs"));
  const json tight = host_answer(offloaded_llama({{"memory", enough.at("host").at("needs").get<std::int64_t>() + 1}}));
  CHECK(tight.at("fits") == true);
  CHECK(tight.at("verdict") == "tight");
  // Each process reads all weights when it resumes.
  const json not_again = host_answer(offloaded_llama({{"memory", "220GiB"}}));
  CHECK(not_again.at("fits") == true);
  CHECK(not_again.at("host").at("verdict") == "tight");
  CHECK(not_again.at("host").at("high") < 220 * kGiB);
}

TEST_CASE("a machine with fewer GPUs has fewer of the processes", "[job]") {
  const json eight = host_answer(offloaded_llama({{"memory", "512GiB"}})).at("host"),
             two = host_answer(offloaded_llama({{"memory", "512GiB"}, {"gpus", 2}})).at("host");
  CHECK(two.at("processes") == 2);
  CHECK(4 * two.at("needs").get<std::int64_t>() == eight.at("needs").get<std::int64_t>());
}

TEST_CASE("pinned memory is rounded up to powers of two, and kept", "[job]") {
  HostMemory host;
  host.keep(HostPart::parameters, 1000, true);
  CHECK(host[HostPart::parameters] == 1024);
  host.release_pinned(HostPart::parameters, 1000);
  CHECK(host[HostPart::parameters] == 0);
  CHECK(host[HostPart::pinned_cache] == 1024);
  host.keep(HostPart::gradients, 2000, true);
  CHECK(host.sum() == 1024 + 2048);
  host.keep(HostPart::gradients, 513, true);
  CHECK(host[HostPart::pinned_cache] == 0);
  CHECK(host.sum() == 1024 + 2048);
  CHECK(host.pinned() == 1024 + 2048);
  host.keep(HostPart::optimizer_states, 100);
  CHECK(host.sum() == 1024 + 2048 + 100);
}

TEST_CASE("the host's memory is bytes or a text with its unit", "[job]") {
  const auto memory = [](const json& given) { return host_answer(offloaded_llama({{"memory", given}})); };
  CHECK(memory("1.5TB").at("host").at("memory") == 1'500'000'000'000);
  CHECK(memory("512 GiB").at("host").at("memory") == 512 * kGiB);
  for (const json& wrong :
       {json("512"), json("GiB"), json("1..5TB"), json("much"), json("1MiB"), json(5), json(true)}) {
    CAPTURE(wrong);
    CHECK(memory(wrong).at("error").at("pointer") == "/host/memory");
  }
}

TEST_CASE("a trainer's data workers are the host's", "[job]") {
  json job = json::parse(tiny_llama());
  job["training"] = {{"precision", "bf16"},
                     {"loop", {{"name", "transformers.Trainer"}, {"args", {{"dataloader_num_workers", 4}}}}}};
  const Result<Job> parsed = parse_job(job.dump());
  REQUIRE(parsed);
  CHECK(parsed->host.data_workers == 4);
  const Result<Job> again = parse_job(to_json(*parsed));
  REQUIRE(again);
  CHECK(again->host.data_workers == 4);
}

TEST_CASE("what the host needs can be asked alone, and is what a report says", "[job]") {
  EstimateOptions with_host;
  with_host.report.host = true;
  for (const json& host : {json::object(), json{{"memory", "64GiB"}, {"gpus", 4}, {"data_workers", 2}}}) {
    const std::string job = offloaded_llama(host).dump();
    CHECK(json::parse(host_json(job)).at("host") == json::parse(estimate_json(job, with_host)).at("host"));
  }
  CHECK(json::parse(host_json("{")).contains("error"));
}

TEST_CASE("no offload is advised that the host cannot hold", "[advice]") {
  const auto advises_offload = [](const char* memory) {
    json job = offloaded_llama({{"memory", memory}});
    job["parallel"] = {{"strategy", "deepspeed"}, {"zero_stage", 3}, {"data", 2}};
    const Result<Advice> advice = advise(job.dump());
    REQUIRE(advice);
    const json answer = json::parse(to_json(*advice));
    for (const json& change : answer.at("changes"))
      if (change.at("label").get<std::string>().find("ptimizer in host memory") != std::string::npos &&
          change.at("verdict") != "does-not-fit")
        return true;
    return false;
  };
  CHECK(advises_offload("1TiB"));
  CHECK(!advises_offload("64GiB"));
}

}  // namespace
}  // namespace oometer
