#include "tensor/save_on_cpu.h"

#include <catch2/catch_test_macros.hpp>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "process.h"
#include "tensor/node.h"

namespace oometer {
namespace {

TEST_CASE("Saved tensors lie on the host until backward asks for them", "[autograd]") {
  Process p;
  const Tensor x = p.input({1000}, DType::float32, true);
  Tensor y;
  {
    const Scoped<SavesOn> saving(p.context.saves_on, SavesOn::pageable);
    Tensor a = silu(x);
    y = silu(a);
  }
  CHECK(p.alive(Role::tensor) == 4000);  // y alone
  CHECK(p.context.saved_on_host == 8000);
  const Tensor gradient = empty_like(Op::ones_like, y);
  p.mark();
  autograd::backward(y, gradient);
  CHECK(p.events() == Bytes{4000, 4000, -4000, 4000, 4000, -4000, -4000});
}

TEST_CASE("Pinned memory is contiguous and comes in powers of two", "[autograd]") {
  Process p;
  const Tensor x = p.input({30, 20}, DType::float32, true);
  const Scoped<SavesOn> saving(p.context.saves_on, SavesOn::pinned);
  p.mark();
  const Tensor y = silu(transpose(x, 0, 1));
  CHECK(p.events() == Bytes{2400, -2400, 2400});  // a copy on the way, and the result
  CHECK(p.context.saved_on_host == 4096);
  const Scoped<SavesOn> pageable(p.context.saves_on, SavesOn::pageable);
  p.mark();
  const Tensor z = silu(transpose(x, 0, 1));
  CHECK(p.events() == Bytes{2400});
  CHECK(p.context.saved_on_host == 4096 + 2400);
  CHECK(p.context.most_saved_on_host == 6496);
}

TEST_CASE("A checkpoint's input may lie on the host, and what it runs again does not", "[autograd]") {
  Process p;
  const auto block = [](const Tensor& t) {
    Tensor u = silu(t);
    u = silu(u);
    return u;
  };
  Tensor hidden = silu(p.input({1000}, DType::float32, true));
  Tensor y;
  {
    const Scoped<SavesOn> saving(p.context.saves_on, SavesOn::pinned);
    y = checkpoint(CheckpointMode::non_reentrant, hidden, block);
  }
  hidden.reset();
  CHECK(p.context.saved_on_host == 4096);
  CHECK(p.alive(Role::tensor) == 4000);
  autograd::backward(y, empty_like(Op::ones_like, y));
  CHECK(p.context.saved_on_host == 4096);
}

}  // namespace
}  // namespace oometer
