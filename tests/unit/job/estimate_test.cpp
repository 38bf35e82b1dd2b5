#include "job/estimate.h"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>

#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

constexpr const char* kZero2 = R"(, "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 2})";

void each_module(const json& module, const auto& visit) {
  visit(module);
  for (const json& child : module.at("children")) each_module(child, visit);
}

}  // namespace

TEST_CASE("a module's tensors and its parts of flat buffers sum to what it holds", "[job]") {
  for (const std::string& job :
       {tiny_llava(), tiny_llava(R"("stage": "finetune", "precision": "bf16")", kZero2), tiny_llama()}) {
    EstimateOptions options;
    options.full_tree = true;
    const json report = json::parse(estimate_json(job, options));
    bool flat = false;
    each_module(report.at("modules").at(0), [&](const json& module) {
      std::int64_t held = -module.at("allocator_rounding").get<std::int64_t>();
      for (const auto& [factor, bytes] : report.at("breakdown").items()) held += module.at(factor).get<std::int64_t>();
      std::int64_t sum = 0;
      std::int64_t before = std::numeric_limits<std::int64_t>::max();
      const std::string path = module.at("path");
      for (const json& tensor : json::parse(tensors_json(job, path))) {
        const auto bytes = tensor.at("bytes").get<std::int64_t>();
        CHECK(bytes <= before);
        CHECK(tensor.at("module").get<std::string>().starts_with(path));
        flat = flat || tensor.contains("flat");
        before = bytes;
        sum += bytes;
      }
      INFO(path);
      CHECK(sum == held);
    });
    CHECK(flat == (job.find("deepspeed") != std::string::npos));
  }
}

namespace {

json with(const json& job, const char* pointer, const json& value) {
  json changed = job;
  changed[json::json_pointer(pointer)] = value;
  return changed;
}

json report_of(const json& job) { return json::parse(estimate_json(job.dump())); }

json all_ranks(const json& job) { return report_of(with(job, "/parallel/rank", "all")); }

/// A row for each rank that was run, the worst one's figures in the report.
void check_rows(const json& job, std::size_t expected) {
  CAPTURE(job.dump());
  CHECK(report_of(job).at("ranks").empty());  // nobody asked
  const json report = all_ranks(job);
  const json& ranks = report.at("ranks");
  REQUIRE(ranks.size() == expected);
  int reported = 0;
  bool worst_fits = true;
  std::int64_t most_reserved = 0, before = -1;
  for (const json& row : ranks) {
    // Each is what a job that names the rank gives.
    const json one = report_of(with(job, "/parallel/rank", row.at("rank")));
    CHECK(one.at("ranks").empty());
    CHECK(row.at("allocated") == one.at("peak").at("allocated"));
    CHECK(row.at("reserved") == one.at("peak").at("reserved"));
    CHECK(row.at("host_bytes") == one.at("host_bytes"));
    CHECK(row.at("fits") == one.at("fits"));
    CHECK(row.at("rank").get<std::int64_t>() > before);
    before = row.at("rank");
    worst_fits = worst_fits && row.at("fits").get<bool>();
    most_reserved = std::max(most_reserved, row.at("reserved").get<std::int64_t>());
    if (!row.at("reported").get<bool>()) continue;
    ++reported;
    json same = report, other = one;
    same.erase("ranks");
    other.erase("ranks");
    CHECK(same == other);
  }
  CHECK(reported == 1);
  CHECK(report.at("fits") == worst_fits);
  if (worst_fits) CHECK(report.at("peak").at("reserved") == most_reserved);
}

}  // namespace

TEST_CASE("a job that runs on less than it would take says what it needs at least", "[job]") {
  const json job = json::parse(
      R"({"model": {"preset": "llava-1.5-7b"}, "data": {"micro_batch_size": 8, "sequence_length": 2048},
          "training": {"activation_checkpointing": "non-reentrant", "optimizer": {"implementation": "foreach"}}})");
  constexpr std::int64_t kStep = 16 << 20;
  const auto on = [&](std::int64_t bytes) {
    return report_of(with(job, "/gpu", {{"usable_bytes", bytes}, {"compute_capability", "8.0"}}));
  };
  const json plenty = on(std::int64_t{1} << 40);
  CHECK_FALSE(plenty.at("peak").contains("least"));
  const std::int64_t total = plenty.at("peak").at("total");
  const json tight = on(total - 2 * kStep);
  REQUIRE(tight.at("fits"));
  const std::int64_t least = tight.at("peak").at("least");
  CHECK(least <= total - 2 * kStep);
  CHECK(on(least).at("fits"));
  const json too_little = on(least - 2 * kStep);
  CHECK_FALSE(too_little.at("fits"));
  CHECK_FALSE(too_little.at("peak").contains("least"));
}

TEST_CASE("where ranks differ and all are asked for each has a row, and the report is the worst one's", "[job]") {
  // Partitions of a large vocabulary: the first and the last rank have its matrices alone.
  const json zero2 = json::parse(
      R"({"model": {"config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "vocab_size": 65536,
          "num_hidden_layers": 2, "num_attention_heads": 4}}, "data": {"micro_batch_size": 1, "sequence_length": 16},
          "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 3}})");
  check_rows(zero2, 3);
  check_rows(with(zero2, "/parallel/zero_stage", 1), 3);
  check_rows(with(zero2, "/parallel/data", 8), 8);
  // Of many: the first, the last, and the one that is likely to need most.
  const json many = all_ranks(with(zero2, "/parallel/data", 64)).at("ranks");
  CHECK(many.size() <= 3);
  CHECK(many.front().at("rank") == 0);
  CHECK(many.back().at("rank") == 63);
  // On a device that some ranks fit and one does not, that one decides.
  const json ranks = all_ranks(zero2).at("ranks");
  std::int64_t least = ranks[0].at("reserved"), most = least;
  for (const json& row : ranks) {
    least = std::min(least, row.at("reserved").get<std::int64_t>());
    most = std::max(most, row.at("reserved").get<std::int64_t>());
  }
  REQUIRE(least < most);
  const json gpu = {{"usable_bytes", least}, {"compute_capability", "9.0"}};
  check_rows(with(zero2, "/gpu", gpu), 3);
}

TEST_CASE("sharded rows and flat parameters end on the last ranks", "[job]") {
  const json fsdp2 =
      json::parse(tiny_llama(R"("precision": "bf16")", R"(, "parallel": {"strategy": "fsdp2", "data": 2})"));
  check_rows(with(fsdp2, "/parallel/data", 3), 2);
  const json fsdp1 = with(fsdp2, "/parallel/strategy", "fsdp1");
  check_rows(with(fsdp1, "/parallel/data", 3), 3);
  check_rows(with(with(fsdp1, "/parallel/fsdp", {{"use_orig_params", false}}), "/parallel/data", 7), 2);
}

TEST_CASE("where ranks are alike none has a row", "[job]") {
  CHECK(all_ranks(json::parse(tiny_llama())).at("ranks").empty());
  const json ddp = json::parse(tiny_llama(R"("precision": "bf16")", R"(, "parallel": {"strategy": "ddp", "data": 3})"));
  CHECK(all_ranks(ddp).at("ranks").empty());
  const json fsdp2 = with(ddp, "/parallel", {{"strategy", "fsdp2"}, {"data", 2}});
  CHECK(all_ranks(fsdp2).at("ranks").empty());  // every parameter's rows are even
  const json fsdp1 = with(fsdp2, "/parallel/strategy", "fsdp1");
  CHECK(all_ranks(with(fsdp1, "/parallel/fsdp", {{"use_orig_params", false}})).at("ranks").empty());
  CHECK(all_ranks(with(fsdp1, "/parallel/fsdp", {{"sharding", "NO_SHARD"}})).at("ranks").empty());
  const json zero3 = with(ddp, "/parallel", {{"strategy", "deepspeed"}, {"zero_stage", 3}, {"data", 3}});
  CHECK(all_ranks(zero3).at("ranks").empty());
  CHECK(all_ranks(with(zero3, "/parallel/data", 1)).at("ranks").empty());
  // But for gradients that are all-reduced, whose padding the last rank makes.
  json reduced = zero3;
  reduced["parallel"].erase("zero_stage");
  reduced["parallel"]["ds_config"] = {{"zero_optimization", {{"stage", 3}, {"reduce_scatter", false}}}};
  check_rows(reduced, 2);
}

TEST_CASE("a report tells what the model makes of an image", "[job]") {
  const auto image = [](const char* preset) {
    const json job = {{"version", 1}, {"model", {{"preset", preset}}}};
    return json::parse(estimate_json(job.dump())).value("image", json());
  };
  CHECK(image("llava-1.5-7b") == json{{"height", 336}, {"width", 336}, {"tokens", 576}});
  CHECK(image("llama-2-7b").is_null());
}

TEST_CASE("A job that trains nothing is refused before it runs, whatever it runs under", "[job]") {
  const std::string parallel =
      GENERATE(R"({"strategy": "none"})", R"({"strategy": "ddp", "data": 4})",
               R"({"strategy": "deepspeed", "zero_stage": 1, "data": 4})",
               R"({"strategy": "deepspeed", "zero_stage": 3, "data": 4})", R"({"strategy": "fsdp2", "data": 4})");
  const Result<Estimate> answer = estimate(
      tiny_llama(R"("stage": "custom", "freeze": ["model", "lm_head"], "activation_checkpointing": "non-reentrant")",
                 R"(, "parallel": )" + parallel));
  REQUIRE_FALSE(answer);
  CHECK(answer.error().pointer == "/training");
}

TEST_CASE("tensors are asked of a module that there is", "[job]") {
  CHECK(tensors_json(tiny_llama(), "model.layers.7").find(R"({"error":{"code":"invalid")") == 0);
  CHECK(tensors_json("{", "").find(R"({"error":{"code":"not-json")") == 0);
}

TEST_CASE("Of replicas that infer each GPU holds what one alone would", "[job]") {
  const auto report = [](const json& parallel) {
    json job = json::parse(tiny_llama());
    job["task"] = "inference";
    job["parallel"] = parallel;
    return json::parse(estimate_json(job.dump()));
  };
  const json one = report({{"data", 1}}), four = report({{"data", 4}});
  CHECK(four.at("peak") == one.at("peak"));
  CHECK(four.at("notes").size() == one.at("notes").size() + 1);
  CHECK(report({{"strategy", "fsdp2"}, {"data", 2}}).at("error").at("message").get<std::string>().find("tensor") !=
        std::string::npos);
}

TEST_CASE("Packages whose kernels would run in place of transformers' own code are named", "[job]") {
  const auto names = [](const char* preset, std::string_view packages) {
    const std::string job = std::string(R"({"version": 1, "model": {"preset": ")") + preset + R"("}})";
    const Result<Estimate> result = estimate(job);
    REQUIRE(result);
    const std::vector<std::string>& assumptions = result->input.assumptions;
    return std::any_of(assumptions.begin(), assumptions.end(),
                       [&](const std::string& text) { return text.find(packages) != std::string::npos; });
  };
  CHECK(names("qwen3.5-0.8b", "the kernels of fla and causal_conv1d"));
  CHECK(names("falcon-h1-0.5b", "the kernels of mamba_ssm and causal_conv1d"));
  CHECK_FALSE(names("llama-3-8b", "the kernels of"));
}

}  // namespace oometer
