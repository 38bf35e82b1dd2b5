#include "autograd/checkpoint.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "autograd/engine.h"
#include "ops/liger.h"
#include "process.h"

namespace oometer {
namespace {

/// A region of three operators, of which the last saves nothing of its result.
Tensor region(const Tensor& x) {
  Tensor y = silu(x);
  y = gelu(y);
  return add(x, y);
}

struct Recomputed {
  std::int64_t kept = 0;        ///< alive between forward and backward
  std::int64_t recomputed = 0;  ///< bytes made while running again
  std::vector<std::string> again;
};

Recomputed run_region(CheckpointMode mode) {
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  const Tensor first = silu(x);
  Tensor y = checkpoint(mode, first, region);
  const Tensor loss = sum_all(y);
  y.reset();
  Recomputed result;
  result.kept = p.alive(Role::tensor);
  autograd::backward(loss);
  CHECK(x->grad);
  for (const StorageRecord& storage : p.log().storages)
    if (storage.recomputed) {
      result.recomputed += storage.bytes;
      result.again.emplace_back(p.log().ops[p.log().events[storage.alloc_event].op]);
    }
  return result;
}

TEST_CASE("A checkpointed region keeps its input alone", "[autograd]") {
  // Without: the region's input, and silu's result; the loss.
  CHECK(run_region(CheckpointMode::none).kept == 2 * 1024 + 4);
  CHECK(run_region(CheckpointMode::non_reentrant).kept == 1024 + 4);
  CHECK(run_region(CheckpointMode::reentrant).kept == 1024 + 4);
}

TEST_CASE("Running again stops at the last tensor wanted, unless it is reentrant", "[autograd]") {
  CHECK(run_region(CheckpointMode::none).recomputed == 0);
  // gelu's input is the last that anything saved: gelu and add are not run.
  CHECK(run_region(CheckpointMode::non_reentrant).again == std::vector<std::string>{"silu"});
  const Recomputed reentrant = run_region(CheckpointMode::reentrant);
  REQUIRE(reentrant.again.size() >= 3);
  CHECK(reentrant.again[0] == "silu");
  CHECK(reentrant.again[1] == "gelu");
  CHECK(reentrant.again[2] == "add");
}

TEST_CASE("Under no_grad a checkpoint is its function", "[autograd]") {
  const auto mode = GENERATE(CheckpointMode::non_reentrant, CheckpointMode::reentrant);
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  const NoGrad no_grad(p.context);
  const Tensor y = checkpoint(mode, x, region);
  CHECK_FALSE(y.requires_grad());
  CHECK(p.alive(Role::tensor) == 1024);
}

TEST_CASE("A reentrant region whose input wants no gradient gives none to its weights", "[autograd]") {
  Process p;
  const Linear fc(p.builder(kFp32), 256, 256, false);
  const Tensor x = p.input({4, 256}, kFp32);
  CHECK_FALSE(checkpoint(CheckpointMode::reentrant, x, [&](const Tensor& t) { return fc(t); }).requires_grad());
  CHECK(checkpoint(CheckpointMode::non_reentrant, x, [&](const Tensor& t) { return fc(t); }).requires_grad());
}

TEST_CASE("Autocast is as it was when a region runs again", "[autograd]") {
  const auto mode = GENERATE(CheckpointMode::non_reentrant, CheckpointMode::reentrant);
  Process p;
  const Linear fc(p.builder(kFp32), 256, 256, false);
  const Tensor x = p.input({4, 256}, kFp32, true);
  Tensor loss;
  {
    const AutocastRegion autocast(p.context, true);
    const Tensor y = checkpoint(mode, x, [&](const Tensor& t) { return silu(fc(t)); });
    CHECK(y.dtype() == DType::bfloat16);
    loss = sum_all(y);
  }
  autograd::backward(loss);
  bool low_precision = false;
  for (const StorageRecord& storage : p.log().storages)
    low_precision = low_precision || (storage.recomputed && storage.dtype == DType::bfloat16);
  CHECK(low_precision);
  CHECK(p.alive(Role::tensor) == x->grad.nbytes() + loss.nbytes());
}

TEST_CASE("Nothing of a checkpoint outlives its backward", "[autograd]") {
  const auto mode = GENERATE(CheckpointMode::none, CheckpointMode::non_reentrant, CheckpointMode::reentrant);
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  {
    Tensor y = silu(x);
    for (int i = 0; i < 5; ++i) y = checkpoint(mode, y, region);
    const Tensor loss = sum_all(y);
    y.reset();
    autograd::backward(loss);
  }
  CHECK(p.alive(Role::tensor) == x->grad.nbytes());
}

TEST_CASE("A view that a region saves when it runs again keeps nothing of its graph", "[autograd]") {
  Process p;
  const Tensor x = p.input({4, 256}, kFp32, true);
  const Tensor first = silu(x);
  const Tensor y = checkpoint(CheckpointMode::non_reentrant, first, [](const Tensor& hidden) {
    Tensor up = gelu(hidden);
    up = gelu(up);
    up = add(up, hidden);  // its gradient, written over what was saved, waits for the region's input to have all
    return liger_silu_mul(silu(hidden), up);
  });
  autograd::backward(sum_all(y));
  std::uint32_t freed = 0, last = 0;
  for (const StorageRecord& storage : p.log().storages) {
    const std::string name = p.log().ops[p.log().events[storage.alloc_event].op];
    if (storage.recomputed && name == "gelu" && freed == 0) freed = storage.free_event;
    if (name == "gelu_backward") last = storage.alloc_event;
  }
  CHECK(freed > 0);
  CHECK(freed < last);
}

TEST_CASE("What a region saved for a graph that led nowhere is not kept when it runs again", "[autograd]") {
  for (const bool uses : {false, true}) {
    Process p;
    const Tensor x = p.input({256}, DType::float32, true);
    Tensor y = checkpoint(CheckpointMode::non_reentrant, x, [&](const Tensor& hidden) {
      Tensor aside = exp(hidden);  // saves its result
      Tensor result = pow(hidden, 2);
      if (uses) result = add(result, aside);
      return result;
    });
    p.mark();
    autograd::backward(y);
    // Run again: exp and pow; without the sum nobody asks for exp's result, so it goes as its name does.
    const std::vector<std::int64_t> events = p.events();
    const auto first_free = std::find_if(events.begin(), events.end(), [](std::int64_t bytes) { return bytes < 0; });
    CAPTURE(uses, events);
    CHECK(first_free - events.begin() == (uses ? 5 : 2));
  }
}

}  // namespace
}  // namespace oometer
