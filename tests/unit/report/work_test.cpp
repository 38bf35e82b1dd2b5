#include "report/work.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "jobs.h"
#include "tensor/op.h"

namespace oometer {
namespace {

WorkSum work_of_job(const std::string& job) { return work_of(run_log(job), 2).all; }

std::string llama_with(const std::string& more) { return tiny_llama(kInBf16 + ", " + more); }

TEST_CASE("Recomputation is executed, and is no part of the model's FLOPs", "[report][work]") {
  const WorkSum plain = work_of_job(tiny_llama());
  CHECK(plain.model == plain.hardware);
  for (const char* mode : {"reentrant", "non-reentrant"}) {
    const WorkSum sum = work_of_job(llama_with(R"("activation_checkpointing": ")" + std::string(mode) + "\""));
    CHECK(sum.model == plain.model);
    CHECK(sum.hardware > plain.hardware);
  }
}

TEST_CASE("Micro-steps that are not run are counted", "[report][work]") {
  const auto flops = [](int steps) {
    return work_of_job(llama_with(R"("gradient_accumulation_steps": )" + std::to_string(steps))).executed;
  };
  const std::int64_t one = flops(1);
  for (const int steps : {2, 3, 4, 17}) CHECK(flops(steps) == steps * one);
}

TEST_CASE("Decoded tokens that are not run are counted", "[report][work]") {
  for (const int tokens : {5, 6, 9, 40}) {
    const Job job = job_of(
        tiny_llama(kInBf16, R"(, "task": "inference", "inference": {"new_tokens": )" + std::to_string(tokens) + "}"));
    const Behaviours behaviours = resolve_behaviours(job.runtime);
    const WorkTotals some = work_of(simulate(job, behaviours).log, 1),
                     all = work_of(simulate(job, behaviours, false).log, 1);
    if (tokens % 2 == 0)
      CHECK(some.all.executed == all.all.executed);
    else  // half a step's growth
      CHECK(std::abs(some.all.executed - all.all.executed) < all.all.executed / 1000);
  }
}

TEST_CASE("What ranks send one another", "[report][work]") {
  const auto job = [](const std::string& parallel) { return tiny_llama(kInFp32, R"(, "parallel": )" + parallel); };
  const Simulation alone = simulation_of(tiny_llama(kInFp32));
  const std::int64_t weights = 4 * alone.parameters;
  CHECK(work_of(alone.log, 2).all.sent == 0);
  const Log ddp = run_log(job(R"({"strategy": "ddp", "data": 2})"));
  CHECK(work_of(ddp, 2).by_op[static_cast<OpId>(Op::all_reduce)].sent == weights);
  // Gathered for forward and for backward, and reduced, each padded a little.
  const std::int64_t fsdp = work_of_job(job(R"({"strategy": "fsdp2", "data": 2})")).sent;
  CHECK(fsdp > 2 * weights);
  CHECK(fsdp < 3 * weights + weights / 20);
}

}  // namespace
}  // namespace oometer
