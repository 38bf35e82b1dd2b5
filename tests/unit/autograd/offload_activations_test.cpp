#include "autograd/offload_activations.h"

#include <catch2/catch_test_macros.hpp>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "process.h"

namespace oometer {
namespace {

/// A stack of `layers` that each save their own input alone.
Tensor run_layers(const Tensor& x, int layers) {
  Tensor y = x;
  for (int i = 0; i < layers; ++i) y = silu(y);
  return y;
}

struct Run {
  std::int64_t after_forward = 0;  ///< bytes alive on the device, all but the leaf
  std::int64_t on_host = 0;
};

Run run(std::int64_t elements, int layers, bool checkpoints = false) {
  Process p;
  const Tensor x = p.input({elements}, kFp32, true);
  const Handle<OffloadActivations> hooks(new OffloadActivations(p.context));
  Run result;
  {
    const OffloadRegion offloading(p.context, *hooks);
    Tensor y = checkpoints ? checkpoint(CheckpointMode::non_reentrant, run_layers(x, layers),
                                        [](const Tensor& in) { return run_layers(in, 3); })
                           : run_layers(x, layers);
    const Tensor loss = sum_all(y);
    y.reset();
    result.after_forward = p.alive(Role::tensor);
    result.on_host = p.context.saved_on_host;
    autograd::backward(loss);
  }
  hooks->let_go();
  CHECK(x->grad);
  CHECK(p.alive(Role::tensor) == x->grad.nbytes());
  return result;
}

TEST_CASE("What autograd saves goes to the host, but for the last five", "[autograd]") {
  // The leaf is saved by the first layer, the results of all but the last by the next.
  const Run few = run(1024, 4), many = run(1024, 12);
  CHECK(few.after_forward == 3 * 4096 + 4);
  CHECK(many.after_forward == 5 * 4096 + 4);
  CHECK(few.on_host == 4 * 4096);
  CHECK(many.on_host == 12 * 4096);
}

TEST_CASE("Tensors of less than 1024 bytes stay on the device", "[autograd]") {
  CHECK(run(255, 12).after_forward == 11 * 1020 + 4);
  CHECK(run(255, 12).on_host == 0);
  CHECK(run(256, 12).on_host == 12 * 1024);
}

TEST_CASE("A checkpoint's argument goes to the host, what runs again does not", "[autograd]") {
  CHECK(run(1024, 1, true).on_host == 2 * 4096);
  CHECK(run(1024, 12, true).after_forward == 5 * 4096 + 4);
}

}  // namespace
}  // namespace oometer
