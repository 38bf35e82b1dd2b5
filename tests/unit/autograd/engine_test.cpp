#include "autograd/engine.h"

#include <catch2/catch_test_macros.hpp>

#include "process.h"
#include "tensor/node.h"

namespace oometer {
namespace {

/// Names of the operators that allocated since the mark, in order.
std::vector<std::string> operators(const Log& log, std::size_t from) {
  std::vector<std::string> names;
  for (std::size_t i = from; i < log.events.size(); ++i)
    if (log.events[i].kind == EventKind::alloc) names.emplace_back(log.ops[log.events[i].op]);
  return names;
}

TEST_CASE("Nothing is recorded without a gradient to give, or under no_grad", "[autograd]") {
  Process p;
  const Tensor frozen = p.input({4}), leaf = p.input({4}, DType::bfloat16, true);
  CHECK_FALSE(silu(frozen).requires_grad());
  CHECK(silu(leaf).requires_grad());
  const NoGrad no_grad(p.context);
  CHECK_FALSE(silu(leaf).requires_grad());
}

TEST_CASE("What was saved goes when its node has run, not when the whole backward ends", "[autograd]") {
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  Tensor y = silu(x);
  y = silu(y);
  Tensor loss = sum_all(y);
  y.reset();
  p.mark();
  autograd::backward(loss);
  // ones; the second silu's gradient; its input goes; the first silu's gradient, which the leaf keeps.
  CHECK(p.events() == Bytes{4, 1024, -1024, 1024, -1024, -4});
  CHECK(x->grad);
}

TEST_CASE("A graph that is dropped without a backward frees what it saved", "[autograd]") {
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  {
    Tensor y = silu(x);
    y = exp(y);
  }
  CHECK(p.alive(Role::tensor) == 0);
}

TEST_CASE("The newest operator's backward runs first, a leaf's accumulation before any", "[autograd]") {
  Process p;
  const Tensor a = p.input({8}, kFp32, true), b = p.input({8}, kFp32, true);
  const Tensor first = silu(a), second = gelu(b);
  const Tensor loss = sum_all(add(first, second));
  const std::size_t begin = p.log().events.size();
  autograd::backward(loss);
  CHECK(operators(p.log(), begin) == std::vector<std::string>{"ones_like", "gelu_backward", "silu_backward"});
}

TEST_CASE("A gradient nobody else holds is stolen by its leaf", "[autograd]") {
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  const Tensor loss = sum_all(silu(x));
  p.mark();
  autograd::backward(loss);
  CHECK(p.allocations() == Bytes{4, 1024});
}

TEST_CASE("A gradient that two leaves get is cloned for the first", "[autograd]") {
  Process p;
  const Tensor a = p.input({256}, kFp32, true), b = p.input({256}, kFp32, true);
  const Tensor s = add(a, b);
  const Tensor loss = sum_all(silu(s));
  p.mark();
  autograd::backward(loss);
  // silu's gradient goes to both; while the first takes it the second still holds it.
  CHECK(p.allocations().size() >= 3);
  CHECK(a->grad->storage != b->grad->storage);
}

TEST_CASE("Operators whose outputs get no gradient allocate none, and others go on without them", "[autograd]") {
  Process p;
  const Tensor x = p.input({64, 32}, kFp32, true);
  const Tensor used = silu(x), unused = transpose(silu(x), 0, 1);
  // What hands on the gradients of all outputs, as DDP's sink does, has one for the first alone.
  TensorList given{used, unused};
  Record record(
      Op::clone,
      [](Backward& b) {
        for (unsigned i = 0; i < b.node.edges.size(); ++i) b.give(i, std::move(b.grads[i]));
      },
      given);
  const Tensor first = record.output(empty_like(Op::clone, used)),
               second = record.output(empty_like(Op::clone, unused));
  const std::size_t mark = p.context.log.events.size();
  autograd::backward(sum_all(first));
  CHECK(operators(p.context.log, mark) == std::vector<std::string>{"sum", "ones_like", "silu_backward"});
  CHECK(x->grad.sizes() == x.sizes());
}

TEST_CASE("A gradient in another memory order than its leaf is copied into the leaf's", "[autograd]") {
  Process p;
  const Tensor x = p.input({4, 8}, kFp32, true);
  const Tensor loss = sum_all(silu(contiguous(transpose(x, 0, 1))));
  autograd::backward(loss);
  CHECK(x->grad.strides() == x.strides());
}

TEST_CASE("Gradients of two uses are added in place if nobody else sees the first", "[autograd]") {
  const auto adds = [](bool dispatch_mode) {
    Process p(recorded_behaviours(dispatch_mode));
    const Tensor x = p.input({256}, kFp32, true);
    const Tensor y = silu(x);
    const Tensor loss = sum_all(add(silu(y), gelu(y)));
    const std::size_t begin = p.log().events.size();
    autograd::backward(loss);
    const std::vector<std::string> names = operators(p.log(), begin);
    return std::count(names.begin(), names.end(), "add");
  };
  CHECK(adds(false) == 0);
  CHECK(adds(true) == 1);
}

TEST_CASE("A gradient that others still hold is not added to in place", "[autograd]") {
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  const Tensor y = silu(x);
  // The residual's gradient is the incoming one itself, which silu's backward still reads.
  const Tensor loss = sum_all(add(y, view(y, {256})));
  const std::size_t begin = p.log().events.size();
  autograd::backward(loss);
  const std::vector<std::string> names = operators(p.log(), begin);
  CHECK(std::count(names.begin(), names.end(), "add") == 1);
}

TEST_CASE("A second backward adds to the gradient without a new one", "[autograd]") {
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  autograd::backward(sum_all(silu(x)));
  const TensorImpl* grad = x->grad.get();
  autograd::backward(sum_all(silu(x)));
  CHECK(x->grad.get() == grad);
  CHECK(p.alive(Role::tensor) == 1024);
}

TEST_CASE("A parameter's gradient belongs to its module", "[autograd]") {
  Process p;
  const Builder child = p.builder(kFp32).child("fc", "Linear");
  const Linear fc(child, 8, 4, true);
  const Tensor x = p.input({2, 8}, kFp32);
  autograd::backward(sum_all(fc(x)));
  CHECK(p.alive(Role::gradient) == 4 * (8 * 4 + 4));
  CHECK(p.context.record(fc.weight->grad)->module == child.module);
}

TEST_CASE("A gradient takes its tensor's shape and type", "[autograd]") {
  Process p;
  const Tensor scale = p.input({1, 8}, DType::bfloat16, true), x = p.input({4, 8}, kFp32);
  const Tensor wide = to(scale, kFp32);
  autograd::backward(sum_all(mul(wide, x)));
  CHECK(scale->grad.sizes() == Shape{1, 8});
  CHECK(scale->grad.dtype() == DType::bfloat16);
}

TEST_CASE("A hundred thousand operators deep, backward and drop need no deep stack", "[autograd]") {
  Process p;
  const Tensor x = p.input({1}, kFp32, true);
  {
    Tensor y = x;
    for (int i = 0; i < 100'000; ++i) y = silu(y);
    autograd::backward(y);
  }
  CHECK(x->grad);
  x->grad.reset();
  {
    Tensor y = x;
    for (int i = 0; i < 100'000; ++i) y = view(y, {1});
    for (int i = 0; i < 100'000; ++i) y = silu(y);
  }
  CHECK(p.alive(Role::tensor) == 0);
}

TEST_CASE("Backward of a tensor without a graph does nothing", "[autograd]") {
  Process p;
  const Tensor x = p.input({8});
  p.mark();
  autograd::backward(x);
  CHECK(p.events().empty());
}

struct Listener : GradientListener {
  std::vector<const TensorImpl*> heard;
  void gradient_ready(const Tensor& parameter) override {
    CHECK(parameter->grad);
    heard.push_back(parameter.get());
  }
};

TEST_CASE("A listener hears of every gradient once, the last layer's first", "[autograd]") {
  Process p;
  Listener listener;
  p.context.listen(kModel, listener);
  const Linear a(p.builder(), 8, 8, false), b(p.builder(), 8, 8, false);
  autograd::backward(sum_all(b(a(p.input({2, 8})))));
  CHECK(listener.heard == std::vector<const TensorImpl*>{b.weight.get(), a.weight.get()});
}

}  // namespace
}  // namespace oometer
