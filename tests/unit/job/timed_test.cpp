#include "job/timed.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

const std::string kOnA100 = R"(, "gpu": {"name": "a100-80gb"})";

/// A Llama whose products are large.
std::string llama_job(const std::string& training, const std::string& more, int batch = 4) {
  return R"({"version": 1, "model": {"config": {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
          "vocab_size": 32000, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16}},
          "data": {"micro_batch_size": )" +
         std::to_string(batch) + R"(, "sequence_length": 1024}, "training": {)" + training + "}" + more + "}";
}

json llama(const std::string& training, const std::string& more, int batch = 4) {
  return json::parse(timed_estimate_json(llama_job(training, more, batch)));
}

double seconds(const std::string& training, const std::string& more = kOnA100, int batch = 4) {
  const json report = llama(training, more, batch);
  INFO(report.dump().substr(0, 400));
  REQUIRE(report["time"].is_object());
  return report["time"]["step"];
}

TEST_CASE("A step's time is the sum of its parts, within its interval", "[job][time]") {
  const json report = llama(kInBf16, kOnA100), time = report["time"];
  double sum = 0;
  for (const auto& [kind, part] : time["by_kind"].items()) sum += part.get<double>();
  CHECK(sum == Catch::Approx(time["step"].get<double>()).margin(1e-4));
  CHECK(time["low"] < time["step"]);
  CHECK(time["step"] < time["high"]);
  CHECK(time["tokens_per_second"].get<double>() * time["step"].get<double>() == Catch::Approx(4096).epsilon(0.001));
  CHECK(time["mfu"] == time["hfu"]);
  CHECK(time["mfu"] > 0.2);
  CHECK(time["mfu"] < 0.7);
  CHECK(time["flops"]["executed"] == report["work"]["flops"]["executed"]);
  CHECK(time["bytes_moved"] == report["work"]["bytes_moved"]);
}

TEST_CASE("What takes longer takes longer", "[job][time]") {
  const double plain = seconds(kInBf16);
  CHECK(seconds(kInBf16, kOnA100, 8) / plain == Catch::Approx(2).epsilon(0.1));
  CHECK(seconds(R"("precision": "fp32")") > 4 * plain);
  const double checkpointed = seconds(R"("precision": "bf16", "activation_checkpointing": "non-reentrant")");
  CHECK(checkpointed > 1.15 * plain);
  CHECK(checkpointed < 1.4 * plain);
  CHECK(seconds(R"("precision": "bf16", "gradient_accumulation_steps": 5)") > 4.5 * plain);
  CHECK(seconds(kInBf16, R"(, "gpu": {"name": "h100-80gb"})") < plain);
}

TEST_CASE("Where kernels are small the GPU waits for the host, longer for a checkpoint's hooks", "[job][time]") {
  const auto idle = [](const std::string& training, int batch) {
    const json parts = llama(training, R"(, "gpu": {"name": "h200"})", batch)["time"]["by_kind"];
    return parts.value("idle", 0.0);
  };
  const std::string checkpointed = R"("precision": "bf16", "activation_checkpointing": "non-reentrant")";
  CHECK(idle(kInBf16, 16) < 0.5e-3);  // the host is ahead but for the first kernels
  CHECK(idle(kInBf16, 1) > 1e-3);
  CHECK(idle(checkpointed, 1) > 2 * idle(kInBf16, 1));
}

TEST_CASE("How busy the GPU is follows from its kernels", "[job][time]") {
  const auto used = [](const std::string& training, const std::string& more, int batch = 4) {
    return llama(training, more, batch)["time"]["utilization"];
  };
  const json full = used(kInBf16, kOnA100, 16), little = used(kInBf16, R"(, "gpu": {"name": "h200"})", 1);
  for (const json& its : {full, little, used(kInBf16, R"(, "parallel": {"strategy": "ddp", "data": 8})" + kOnA100),
                          used(kInBf16, R"(, "task": "inference", "inference": {"new_tokens": 9})" + kOnA100)}) {
    CHECK(its["gputl"] == its["gract"]);
    CHECK(its["gract"] <= 1);
    CHECK(its["gract"] >= its["smact"]);
    CHECK(its["smact"] > its["smocc"]);
    for (const char* key : {"smocc", "tenso", "drama"}) CHECK(its[key] > 0);
  }
  CHECK(full["gract"] > 0.98);
  CHECK(full["smact"] > 0.95);
  CHECK(little["gract"] < 0.8);
  const json time = llama(kInBf16, kOnA100, 16)["time"];
  CHECK(time["utilization"]["tenso"].get<double>() == Catch::Approx(time["hfu"].get<double>()).epsilon(0.02));
  CHECK(used(R"("precision": "fp32")", kOnA100)["tenso"] == 0);
}

TEST_CASE("Energy and price are of all GPUs, for a step and for tokens", "[job][time]") {
  const auto timed = [](const std::string& more) { return llama(kInBf16, more + kOnA100); };
  const json plain = timed("")["time"];
  for (const char* key : {"energy_kwh", "price", "per_million_tokens", "training"}) CHECK_FALSE(plain.contains(key));
  const json time = timed(R"(, "cost": {"watts": 400, "price_per_hour": 3, "tokens": 1000000000})")["time"];
  const double hours = time["step"].get<double>() / 3600, tokens = time["tokens_per_second"];
  CHECK(time["energy_kwh"].get<double>() == Catch::Approx(0.4 * hours).epsilon(1e-4));
  CHECK(time["price"].get<double>() == Catch::Approx(3 * hours).epsilon(1e-4));
  CHECK(time["per_million_tokens"]["price"].get<double>() == Catch::Approx(3 * 1e6 / tokens / 3600).epsilon(1e-4));
  CHECK(time["training"]["tokens"] == 1'000'000'000);
  CHECK(time["training"]["days"].get<double>() == Catch::Approx(1e9 / tokens / 86400).epsilon(1e-4));
  CHECK(time["training"]["energy_kwh"].get<double>() == Catch::Approx(0.4 * 1e9 / tokens / 3600).epsilon(1e-4));
  const json eight = timed(R"(, "parallel": {"strategy": "ddp", "data": 8}, "cost": {"price_per_hour": 3})")["time"];
  CHECK(eight["price"].get<double>() == Catch::Approx(8 * 3 * eight["step"].get<double>() / 3600).epsilon(1e-4));
  CHECK_FALSE(eight.contains("energy_kwh"));
  CHECK_FALSE(eight.contains("training"));
  const json days = timed(R"(, "cost": {"tokens": 1000000})")["time"];
  CHECK(days["training"].size() == 2);
  CHECK_FALSE(days.contains("per_million_tokens"));
}

TEST_CASE("A price or a power that cannot be is refused by its key", "[job][time]") {
  const auto refused = [](const char* cost) { return llama(kInBf16, std::string(", \"cost\": ") + cost)["error"]; };
  CHECK(refused(R"({"price_per_hour": -2})")["pointer"] == "/cost/price_per_hour");
  CHECK(refused(R"({"price_per_hour": "two"})")["code"] == "wrong-type");
  CHECK(refused(R"({"watts": 0})")["message"].get<std::string>().find("from 1") != std::string::npos);
  CHECK(refused(R"({"tokens": 1.5})")["pointer"] == "/cost/tokens");
  CHECK(refused(R"({"euro": 1})")["pointer"] == "/cost/euro");
}

TEST_CASE("Recomputation is in hfu and not in mfu", "[job][time]") {
  const json time = llama(R"("precision": "bf16", "activation_checkpointing": "non-reentrant")", kOnA100)["time"];
  CHECK(time["hfu"] > time["mfu"]);
}

TEST_CASE("Of collectives counts what computation does not hide", "[job][time]") {
  const double alone = seconds(kInBf16);
  for (const char* strategy : {"ddp", "fsdp1", "fsdp2"}) {
    INFO(strategy);
    const json time = llama(
        kInBf16, R"(, "parallel": {"strategy": ")" + std::string(strategy) + R"(", "data": 8})" + kOnA100)["time"];
    CHECK(time["step"] > alone * (strategy[0] == 'd' ? 1.0 : 0.9));  // shards take the optimizer less
    CHECK(time["step"] < 1.5 * alone);
    CHECK(time["tokens_per_second"] > 5 * 4096 / alone);
    CHECK(time["by_kind"]["communication"] > 0);
  }
}

TEST_CASE("A generation has a prefill and a time per token", "[job][time]") {
  const json time = llama(kInBf16, R"(, "task": "inference", "inference": {"new_tokens": 9})" + kOnA100)["time"];
  CHECK(time["prefill"].get<double>() + 8 * time["per_token"].get<double>() ==
        Catch::Approx(time["step"].get<double>()).margin(1e-4));
  CHECK(time["prefill"] > time["per_token"]);
}

TEST_CASE("The time of what is not known is null, and a note says why", "[job][time]") {
  const auto check = [](const json& report, const char* why) {
    INFO(why);
    REQUIRE(report.contains("time"));
    CHECK(report["time"].is_null());
    CHECK(report["notes"].dump().find(why) != std::string::npos);
  };
  check(llama(kInBf16, R"(, "gpu": {"usable_bytes": 80000000000})"), "describes its GPU");
  check(llama(kInBf16, R"(, "gpu": {"name": "mi300x"})"), "no kernel of the architecture");
  check(llama(kInBf16, R"(, "gpu": {"name": "v100-32gb"})"), "no units for products of this dtype");
  check(llama(R"("precision": "bf16", "save_on_cpu": "pinned")", kOnA100), "host memory");
  check(
      llama(R"("precision": "bf16", "activation_checkpointing": {"mode": "non-reentrant", "offload": true})", kOnA100),
      "host memory");
  check(llama(kInBf16, R"(, "parallel": {"strategy": "fsdp2", "data": 8, "fsdp": {"cpu_offload": true}})" + kOnA100),
        "host memory");
  check(llama(kInBf16, R"(, "parallel": {"strategy": "ddp", "data": 16})" + kOnA100), "between nodes");
  check(llama(kInBf16, R"(, "task": "inference", "inference": {"cache": {"implementation": "offloaded"}})" + kOnA100),
        "generations");
  CHECK(json::parse(timed_estimate_json("{")).contains("error"));
  CHECK(json::parse(time_json("{")).contains("error"));
}

TEST_CASE("The lanes of a step are its time in order", "[job][time]") {
  const auto check = [](const std::string& training, const std::string& more, const char* ends) {
    INFO(training + more);
    const json answer = json::parse(time_json(llama_job(training, more))), time = answer["time"];
    REQUIRE(answer["lanes"].size() == 150);
    double seconds = 0, smact = 0, tenso = 0, drama = 0, idle = 0, communication = 0;
    std::string order;
    for (const json& lane : answer["lanes"]) {
      const auto add = [&](double& sum, const char* key) {
        CHECK(lane[key] <= 1);
        sum += lane[key].get<double>() * lane["seconds"].get<double>();
      };
      CHECK(lane["seconds"].get<double>() == Catch::Approx(time["step"].get<double>() / 150).epsilon(0.01));
      seconds += lane["seconds"].get<double>();
      add(smact, "smact");
      add(tenso, "tenso");
      add(drama, "drama");
      add(idle, "idle");
      add(communication, "communication");
      const std::string phase = lane["phase"];
      if (!order.ends_with(phase)) order += (order.empty() ? "" : " ") + phase;
    }
    CHECK(order == ends);
    const double step = time["step"];
    const auto of = [&](const char* key) { return time["utilization"][key].get<double>(); };
    CHECK(seconds == Catch::Approx(step).epsilon(0.001));
    CHECK(smact / step == Catch::Approx(of("smact")).margin(0.03));  // what no computation hides has few of them
    CHECK(tenso / step == Catch::Approx(of("tenso")).margin(0.002));
    CHECK(drama / step == Catch::Approx(of("drama")).margin(0.002));
    CHECK(idle == Catch::Approx(time["by_kind"].value("idle", 0.0)).margin(0.002 * step));
    CHECK(communication == Catch::Approx(time["by_kind"].value("communication", 0.0)).margin(0.002 * step));
  };
  const std::string optimized = "forward backward optimizer";
  check(kInBf16, kOnA100, optimized.c_str());
  check(R"("precision": "bf16", "activation_checkpointing": "non-reentrant")", R"(, "gpu": {"name": "h200"})",
        optimized.c_str());
  check(R"("precision": "bf16", "gradient_accumulation_steps": 3)", kOnA100,
        ("forward backward forward backward " + optimized).c_str());
  for (const char* strategy : {"ddp", "fsdp2"})
    check(kInBf16, R"(, "parallel": {"strategy": ")" + std::string(strategy) + R"(", "data": 8})" + kOnA100,
          optimized.c_str());
  check(kInBf16, R"(, "task": "inference", "inference": {"new_tokens": 600})" + kOnA100, "prefill decode");
  CHECK_FALSE(json::parse(time_json(llama_job(kInBf16, R"(, "gpu": {"name": "mi300x"})"))).contains("lanes"));
}

TEST_CASE("The time alone is the report's", "[time]") {
  for (const std::string& gpu : {kOnA100, std::string(R"(, "gpu": {"name": "mi300x"})")}) {
    const std::string job = llama_job(kInBf16, gpu);
    const json alone = json::parse(time_json(job)), report = json::parse(timed_estimate_json(job));
    CHECK(alone.at("time") == report.at("time"));
    for (const json& note : alone.at("notes")) CHECK(report["notes"].dump().find(note.dump()) != std::string::npos);
  }
}

}  // namespace
}  // namespace oometer
