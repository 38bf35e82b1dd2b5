#include "ops/liger.h"

#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "autograd/engine.h"
#include "process.h"

namespace oometer {
namespace {

TEST_CASE("Liger's RMSNorm keeps its input and a number a row, and writes its gradient over the one that came",
          "[ops]") {
  Process p;
  const Tensor x = p.input({2, 256, 128}, DType::bfloat16, true), weight = p.parameter({128});
  p.mark();
  Tensor y = liger_rms_norm(x, weight);
  CHECK(p.allocations() == Bytes{131072, 2048});
  const Tensor gradient = empty_like(Op::ones_like, y);
  p.mark();
  autograd::backward(y, gradient);
  // A row of fp32 sums for each of 108 multiprocessors, their sum, the weight's gradient; x's is dY itself.
  CHECK(p.allocations() == Bytes{108 * 128 * 4, 512, 256});
}

TEST_CASE("Liger's RMSNorm makes no sums for a frozen weight", "[ops]") {
  Process p;
  const Tensor x = p.input({512, 128}, DType::bfloat16, true), weight = p.input({128});
  const Tensor y = liger_rms_norm(x, weight);
  const Tensor gradient = empty_like(Op::ones_like, y);
  p.mark();
  autograd::backward(y, gradient);
  CHECK(p.allocations().empty());
}

TEST_CASE("Liger's RMSNorm that is not in place makes a gradient of its own", "[ops]") {
  Process p;
  const Tensor x = p.input({512, 128}, DType::bfloat16, true), weight = p.input({128});
  const Tensor y = liger_rms_norm(x, weight, false);
  const Tensor gradient = empty_like(Op::ones_like, y);
  p.mark();
  autograd::backward(y, gradient);
  CHECK(p.allocations() == Bytes{131072});
}

TEST_CASE("Liger's LayerNorm keeps two numbers a row, and sums both gradients in rows", "[ops]") {
  Process p;
  const Tensor x = p.input({512, 128}, DType::bfloat16, true), weight = p.parameter({128}), bias = p.parameter({128});
  p.mark();
  const Tensor y = liger_layer_norm(x, weight, bias);
  CHECK(p.allocations() == Bytes{131072, 2048, 2048});
  const Tensor gradient = empty_like(Op::ones_like, y);
  p.mark();
  autograd::backward(y, gradient);
  CHECK(p.allocations() == Bytes{108 * 128 * 4, 108 * 128 * 4, 131072, 512, 256, 512, 256});
}

TEST_CASE("Liger's experts make gradients of all their weights, trained or not", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 128}, DType::bfloat16, true), gate_up = p.input({4, 512, 128}),
               down = p.input({4, 128, 256});
  const Tensor index = p.input({64, 2}, DType::int32), weights = p.input({64, 2}, DType::bfloat16, true);
  const Tensor y = liger_fused_moe(x, gate_up, down, index, weights);
  const Tensor gradient = empty_like(Op::ones_like, y);
  p.mark();
  autograd::backward(y, gradient);
  CHECK(p.allocations() ==
        Bytes{128 * 512 * 2, 128 * 256 * 2, 256, 4 * 128 * 256 * 2, 128 * 128 * 2, 64 * 128 * 2, 4 * 512 * 128 * 2});
}

TEST_CASE("Liger's rotary embedding turns heads in place", "[ops]") {
  Process p;
  const auto heads = [&] { return transpose(p.input({2, 64, 4, 32}, DType::bfloat16, true), 1, 2); };
  const Tensor q = heads(), k = heads(), cos = p.input({1, 64, 32}), sin = p.input({1, 64, 32});
  p.mark();
  const auto [q_turned, k_turned] = liger_rotary_pos_emb(q, k, cos, sin);
  CHECK(p.events().empty());
  CHECK(q_turned.sizes() == q.sizes());
  // Heads that lie otherwise are copied.
  const Tensor other = p.input({2, 4, 64, 32}, DType::bfloat16, true);
  p.mark();
  liger_rotary_pos_emb(other, k, cos, sin);
  CHECK(p.allocations() == Bytes{2 * 4 * 64 * 32 * 2});
}

TEST_CASE("Liger's SwiGLU makes its result, and its gradients in place of what it saved", "[ops]") {
  Process p;
  const Tensor a = p.input({512, 256}, DType::bfloat16, true), b = p.input({512, 256}, DType::bfloat16, true);
  p.mark();
  Tensor c = liger_silu_mul(silu(a), silu(b));
  CHECK(p.allocations() == Bytes{262144, 262144, 262144});
  const Tensor gradient = empty_like(Op::ones_like, c);
  c.reset();
  (void)gradient;
}

TEST_CASE("Liger's fused loss has logits of one chunk and the gradients in forward", "[ops]") {
  Process p;
  const Tensor hidden = p.input({1024, 512}, DType::bfloat16, true), weight = p.parameter({2000, 512}),
               target = p.input({1024}, DType::int64);
  p.mark();
  const Tensor loss = liger_fused_linear_cross_entropy(hidden, weight, target, {});
  Bytes allocations = p.allocations();
  // As recorded: gradients, losses, mask and its count, logits of 256 tokens, three products a chunk, the loss.
  CHECK(Bytes(allocations.begin(), allocations.begin() + 7) == Bytes{1048576, 2048000, 4096, 1024, 8, 8192, 1024000});
  CHECK(Bytes(allocations.begin() + 7, allocations.end() - 1) == Bytes(12, kWorkspace));
  CHECK(allocations.back() == 4);
  CHECK(p.saved() == Bytes{1048576, 2048000});
  p.mark();
  autograd::backward(loss);
  CHECK(p.allocations() == Bytes{4, 4, 1, 1});  // both gradients are taken as they are
}

TEST_CASE("Liger's fused loss sums the head's gradient in fp32 where it is told to", "[ops]") {
  Process p;
  const Tensor hidden = p.input({1024, 512}, DType::bfloat16, true), weight = p.parameter({2000, 512}),
               target = p.input({1024}, DType::int64);
  p.mark();
  const Tensor loss = liger_fused_linear_cross_entropy(hidden, weight, target, {.accumulates_in_fp32 = true});
  const Bytes allocations = p.allocations();
  CHECK(allocations[1] == 2000 * 512 * 4);
  CHECK(allocations.back() == 2000 * 512 * 2);
  CHECK(p.saved() == Bytes{1048576, 2048000});
}

TEST_CASE("Liger's fused loss gives a head nothing whose input wants nothing", "[ops]") {
  Process p;
  const Tensor hidden = p.input({64, 32}), weight = p.parameter({100, 32}), target = p.input({64}, DType::int64);
  const Tensor loss = liger_fused_linear_cross_entropy(hidden, weight, target, {});
  autograd::backward(loss);
  CHECK_FALSE(weight->grad);
}

TEST_CASE("Before Ampere the fused loss makes the head's gradient anew for each chunk", "[ops]") {
  Process p(recorded_behaviours(), {7, 5, 40});
  const Tensor hidden = p.input({1024, 512}, DType::float16, true), weight = p.parameter({2000, 512}, DType::float16),
               target = p.input({1024}, DType::int64);
  p.mark();
  const Tensor loss = liger_fused_linear_cross_entropy(hidden, weight, target, {});
  const Bytes allocations = p.allocations();
  CHECK(std::count(allocations.begin(), allocations.end(), 2000 * 512 * 4) == 4);
}

TEST_CASE("Liger's cross-entropy writes its gradient over the logits", "[ops]") {
  Process p;
  const Tensor logits = p.input({64, 100}, DType::float32, true), target = p.input({64}, DType::int64);
  const Tensor loss = liger_cross_entropy(logits, target);
  p.mark();
  autograd::backward(loss);
  CHECK(p.allocations() == Bytes{4, 4, 1, 1});
}

}  // namespace
}  // namespace oometer
