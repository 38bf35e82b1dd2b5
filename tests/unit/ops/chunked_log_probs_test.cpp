#include "ops/chunked_log_probs.h"

#include <catch2/catch_test_macros.hpp>

#include "autograd/engine.h"
#include "process.h"

namespace oometer {
namespace {

TEST_CASE("Log-probabilities in tiles make one buffer, numbers a token, and gradients in float32", "[ops]") {
  Process p;
  const Tensor hidden = p.input({100, 64}, DType::bfloat16, true), weight = p.parameter({1000, 64});
  const Tensor targets = p.input({100}, DType::int64);
  p.mark();
  Tensor log_probs = chunked_log_probs(hidden, weight, targets, 512).log_probs;
  // Seven statistics, the tile, a workspace for each of two products, log(sum_exp), log_z, the result.
  CHECK(p.allocations() == Bytes{400, 400, 400, 400, 400, 400, 400, 100 * 512 * 2, 8519680, 8519680, 400, 400, 400});
  CHECK(p.alive(Role::tensor) == 800);
  const Tensor gradient = empty_like(Op::ones_like, log_probs);
  log_probs.reset();
  p.mark();
}

TEST_CASE("Its gradients are converted while all of them are there", "[ops]") {
  Process p;
  const Tensor hidden = p.input({100, 64}, DType::bfloat16, true), weight = p.parameter({1000, 64});
  const Tensor targets = p.input({100}, DType::int64);
  Tensor log_probs = chunked_log_probs(hidden, weight, targets, 1024).log_probs;
  const Tensor gradient = empty_like(Op::ones_like, log_probs);
  p.mark();
  autograd::backward(log_probs, gradient);
  CHECK(p.allocations() ==
        Bytes{100 * 64 * 4, 1000 * 64 * 4, 100 * 1024 * 2, 8519680, 8519680, 8519680, 100 * 64 * 2, 1000 * 64 * 2});
}

TEST_CASE("A head's bias has a gradient of its own, summed tile by tile", "[ops]") {
  Process p;
  const Tensor hidden = p.input({100, 64}, DType::bfloat16, true), weight = p.parameter({1000, 64});
  const Tensor bias = p.parameter({1000}), targets = p.input({100}, DType::int64);
  Tensor log_probs = chunked_log_probs(hidden, weight, targets, 1024, {}, bias).log_probs;
  const Tensor gradient = empty_like(Op::ones_like, log_probs);
  p.mark();
  autograd::backward(log_probs, gradient);
  CHECK(p.allocations() == Bytes{100 * 64 * 4, 1000 * 64 * 4, 1000 * 4, 100 * 1024 * 2, 8519680, 8519680, 8519680,
                                 1000 * 4, 100 * 64 * 2, 1000 * 64 * 2, 1000 * 2});
}

TEST_CASE("A frozen head has no gradient, and autocast takes copies of what is float32", "[ops]") {
  Process p;
  const AutocastRegion region(p.context, true);
  const Tensor hidden = p.input({5000, 64}, DType::float32, true), weight = p.input({1000, 64}, DType::float32);
  const Tensor targets = p.input({5000}, DType::int64);
  const ChunkedLogProbs results = chunked_log_probs(hidden, weight, targets, 1024, {.entropy = true, .is_top1 = true});
  CHECK(results.is_top1.dtype() == DType::boolean);
  CHECK_FALSE(results.is_top1.requires_grad());
  const Tensor gradient = empty_like(Op::ones_like, results.log_probs);
  p.mark();
  autograd::backward(results.log_probs, gradient);
  const Bytes all = p.allocations();
  CHECK(all.front() == 5000 * 64 * 4);
  CHECK(all[1] == 4096 * 1024 * 2);
  CHECK(all[2] == 4096 * 64 * 2);
  CHECK(all[3] == 1000 * 64 * 2);
}

}  // namespace
}  // namespace oometer
