#include <catch2/generators/catch_generators.hpp>

#include "../jobs.h"

/// What DistributedDataParallel adds to a step (distributed/ddp.h).
namespace oometer {
namespace {

std::string ddp(const std::string& options) {
  return R"(, "parallel": {"strategy": "ddp", "data": 2, "ddp": {)" + options + "}}";
}

/// A model of 4 MiB of gradients: a few buckets of 1 MiB.
const std::string kWide =
    R"({"model": {"config": {"model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "vocab_size": 2048,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}},
        "data": {"micro_batch_size": 1, "sequence_length": 32}, "training": {"precision": "bf16")";

std::vector<std::int64_t> buckets_alive(const Log& log, PhaseName phase, int iteration) {
  std::vector<std::int64_t> bytes;
  for (const PhaseMark& mark : log.phases) {
    if (mark.name != phase || mark.iteration != iteration) continue;
    for (const StorageRecord& storage : log.storages)
      if (storage.alloc_event < mark.first_event && storage.free_event >= mark.first_event &&
          std::string(log.ops[log.events[storage.alloc_event].op]) == "bucket")
        bytes.push_back(storage.bytes);
  }
  return bytes;
}

std::int64_t parameter_bytes(const Simulation& simulation) { return simulation.trainable * 2; }

TEST_CASE("One bucket until the order of arrival is known, then buckets as they filled up", "[distributed]") {
  const Simulation s = simulation_of(kWide + "}" + ddp(R"("bucket_cap_mb": 1)") + "}");
  CHECK(buckets_alive(s.log, PhaseName::backward, 1) == std::vector<std::int64_t>{parameter_bytes(s)});
  const std::vector<std::int64_t> rebuilt = buckets_alive(s.log, PhaseName::backward, 2);
  REQUIRE(rebuilt.size() > 2);
  CHECK(rebuilt.front() == 2048 * 256 * 2);  // lm_head's gradient comes first and is 1 MiB
  std::int64_t total = 0;
  for (const std::int64_t bytes : rebuilt) total += bytes;
  CHECK(total == parameter_bytes(s));
}

TEST_CASE("Without a cap the first bucket has 1 MiB and the next 25", "[distributed]") {
  const Simulation s = simulation_of(kWide + "}" + ddp("") + "}");
  const std::vector<std::int64_t> rebuilt = buckets_alive(s.log, PhaseName::backward, 2);
  REQUIRE(rebuilt.size() == 2);
  CHECK(rebuilt.front() == 1 << 20);
}

TEST_CASE("Between backward and step: gradients and buckets, or buckets alone", "[distributed]") {
  const auto gradients = [](const std::string& options) {
    const Simulation s = simulation_of(kWide + "}" + ddp(options) + "}");
    return alive_at(s.log, Role::gradient, PhaseName::optimizer, 2) / parameter_bytes(s);
  };
  CHECK(gradients("") == 2);
  CHECK(gradients(R"("gradient_as_bucket_view": true)") == 1);
  CHECK(gradients(R"("lazy_bucket_allocation": true)") == 1);
  CHECK(gradients(R"("lazy_bucket_allocation": true, "gradient_as_bucket_view": true)") == 1);
}

TEST_CASE("Lazy buckets are gone between steps", "[distributed]") {
  const std::string views = GENERATE("", R"(, "gradient_as_bucket_view": true)");
  const Simulation s = simulation_of(kWide + "}" + ddp(R"("lazy_bucket_allocation": true)" + views) + "}");
  CHECK(alive_at(s.log, Role::gradient, PhaseName::forward, 2) == 0);
}

TEST_CASE("Frozen parameters have no place in a bucket", "[distributed]") {
  const Simulation s = simulation_of(tiny_llava(R"("stage": "pretrain")", ddp("")));
  CHECK(alive_at(s.log, Role::gradient, PhaseName::forward, 1) == parameter_bytes(s));
}

TEST_CASE("Looking for unused parameters clones the logits in each step, a static graph in the first",
          "[distributed]") {
  const auto clones = [](const std::string& options, int iteration) {
    const Log log = run_log(tiny_llama(R"("precision": "bf16")", ddp(options)));
    int count = 0;
    for (std::size_t p = 0; p < log.phases.size(); ++p) {
      if (log.phases[p].iteration != iteration || log.phases[p].name != PhaseName::forward) continue;
      for (std::uint32_t i = log.phases[p].first_event; i < log.phases[p + 1].first_event; ++i)
        count += log.events[i].kind == EventKind::alloc && std::string(log.ops[log.events[i].op]) == "clone" &&
                 log.storages[log.events[i].storage].bytes == 2 * 64 * 512 * 2;
    }
    return count;
  };
  CHECK(clones("", 1) == 0);
  CHECK(clones(R"("find_unused_parameters": true)", 1) == 1);
  CHECK(clones(R"("find_unused_parameters": true)", 2) == 1);
  CHECK(clones(R"("static_graph": true)", 1) == 1);
  CHECK(clones(R"("static_graph": true)", 2) == 0);
}

TEST_CASE("Only the last micro-step reduces", "[distributed]") {
  const Simulation s =
      simulation_of(kWide + R"(, "gradient_accumulation_steps": 4})" + ddp(R"("gradient_as_bucket_view": true)") + "}");
  // The first micro-step's gradients are tensors of their own beside the bucket.
  std::size_t backward = 0;
  for (const PhaseMark& mark : s.log.phases) backward += mark.name == PhaseName::backward ? 1 : 0;
  CHECK(backward == 6);
  CHECK(alive_at(s.log, Role::gradient, PhaseName::optimizer, 1) == parameter_bytes(s));
  std::int64_t before_last = 0;
  const PhaseMark& last = s.log.phases[6];
  REQUIRE(last.name == PhaseName::backward);
  for (const StorageRecord& storage : s.log.storages)
    if (storage.role == Role::gradient && storage.alloc_event < last.first_event &&
        storage.free_event >= last.first_event)
      before_last += storage.bytes;
  CHECK(before_last == 2 * parameter_bytes(s));
}

TEST_CASE("Parameters that get no gradient stop it in the second step, unless it looks for them", "[distributed]") {
  const std::string training = R"("stage": "full")";
  const Result<Estimate> stopped = estimate(tiny_llava(training, ddp("")));
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().code == "inconsistent");
  CHECK(stopped.error().pointer == "/parallel/ddp");
  CHECK(stopped.error().message.find("find_unused_parameters") != std::string::npos);
  CHECK(estimate(tiny_llava(training, ddp(R"("find_unused_parameters": true)"))));
  CHECK(estimate(tiny_llava(training, ddp(R"("static_graph": true)"))));
}

TEST_CASE("A static graph does not go with accumulated gradients", "[distributed]") {
  const auto answer = [](int steps) {
    return parse_job(
        tiny_llama(R"("gradient_accumulation_steps": )" + std::to_string(steps), ddp(R"("static_graph": true)")));
  };
  CHECK(answer(1));
  REQUIRE_FALSE(answer(2));
  CHECK(answer(2).error().pointer == "/parallel/ddp/static_graph");
}

TEST_CASE("Outputs that the loss does not come from may be the sink's, too", "[distributed]") {
  const std::string clip = R"({"model": {"config": {"model_type": "clip", "projection_dim": 32,
    "text_config": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 7, "num_attention_heads": 4},
    "vision_config": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4,
                      "image_size": 56, "patch_size": 14}}},
    "data": {"micro_batch_size": 4}, "training": {"precision": "bf16"})";
  const Simulation plain = simulation_of(clip + ddp("") + "}");
  for (const char* option : {R"("static_graph": true)", R"("find_unused_parameters": true)"}) {
    const Simulation s = simulation_of(clip + ddp(option) + "}");
    CHECK(alive_at(s.log, Role::gradient, PhaseName::optimizer, 2) ==
          alive_at(plain.log, Role::gradient, PhaseName::optimizer, 2));
  }
}

TEST_CASE("Gradients that are copied by buckets lie beside them until their bucket's are there", "[distributed]") {
  // The first step has one bucket.
  const auto most = [](const std::string& options) {
    const Simulation s = simulation_of(tiny_llama(R"("precision": "bf16")", ddp(options)));
    std::int64_t alive = 0, peak = 0;
    for (std::uint32_t i = 0; i < s.log.phases[4].first_event; ++i) {
      const StorageRecord& storage = s.log.storages[s.log.events[i].storage];
      if (storage.role != Role::gradient) continue;
      if (s.log.events[i].kind == EventKind::alloc) alive += storage.bytes;
      if (s.log.events[i].kind == EventKind::free) alive -= storage.bytes;
      peak = std::max(peak, alive);
    }
    return peak - parameter_bytes(s);
  };
  const std::int64_t largest = 2 * 512 * 64;  // embeddings
  CHECK(most(R"("gradient_as_bucket_view": true)") <= 2 * largest);
  CHECK(most(R"("gradient_as_bucket_view": true, "batched_grad_copy": true)") ==
        most(R"("gradient_as_bucket_view": false)"));
}

}  // namespace
}  // namespace oometer
