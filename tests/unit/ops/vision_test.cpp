#include "ops/vision.h"

#include <catch2/catch_test_macros.hpp>

#include "../process.h"
#include "autograd/engine.h"
#include "ops/losses.h"
#include "ops/ops.h"
#include "ops/upsample.h"

/// Operators of which graphs are made (core/graph); their reference cases are in tests/reference/graphs.jsonl.
namespace oometer {
namespace {

TEST_CASE("Windows begin as a tensor like the image, and an image folded of them keeps their memory", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 3, 4, 4}, DType::float32, true);
  p.mark();
  Tensor windows = im2col(x, {2, 12, 9});
  CHECK(p.events() == Bytes{384, 864, -384});
  p.mark();
  const Tensor folded = col2im(windows, {2, 3, 4, 4});
  CHECK(p.events() == Bytes{864});
  CHECK(folded.nbytes() == 384);
  CHECK(p.saved(Role::input).empty());
  windows.reset();
}

TEST_CASE("A mean of squared differences keeps the memory of a number for each element", "[ops]") {
  Process p;
  const Tensor logits = p.input({2, 100}, DType::bfloat16, true), labels = p.input({2, 100}, DType::bfloat16);
  p.mark();
  const Tensor loss = mse_loss(logits, labels);
  CHECK(p.events() == Bytes{400, 400, -400});
  CHECK(loss.sizes() == Shape{});
  CHECK(loss.dtype() == DType::bfloat16);
}

TEST_CASE("Images are stretched in the order in which they lie, in float32 under autocast, and saved by no one",
          "[ops]") {
  Process p;
  const Tensor x = p.input({2, 3, 4, 4}, DType::bfloat16, true), last = permute(p.input({2, 4, 4, 3}), {0, 3, 1, 2});
  p.mark();
  const Tensor y = upsample_bilinear2d(x, 8, 8), z = upsample_bilinear2d(last, 8, 8);
  CHECK(p.allocations() == Bytes{768, 768});
  CHECK(y.is_contiguous());
  CHECK(is_channels_last(z));
  CHECK(is_channels_last(cat({z, z}, 1)));
  CHECK(p.saved(Role::input).empty());
  p.context.autocast.enabled = true;
  CHECK(upsample_bilinear2d(x, 8, 8).dtype() == DType::float32);
}

TEST_CASE("resizing to the nearest keeps nothing and copies a gradient that is a part of another", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 3, 4, 4}, DType::float32, true), other = p.input({2, 5, 8, 8}, DType::float32);
  p.mark();
  const Tensor both = cat({upsample_nearest2d(x, 8, 8), other}, 1);
  CHECK(p.allocations() == Bytes{1536, 4096});
  CHECK(p.saved(Role::input).empty());
  const Tensor gradient = p.input(both.sizes(), DType::float32);
  p.mark();
  autograd::backward(both, gradient);
  CHECK(p.allocations() == Bytes{384, 1536});
}

TEST_CASE("bicubic resizing with antialiasing copies what lies in another order", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 3, 4, 4}, DType::bfloat16, true), last = permute(p.input({2, 4, 4, 3}), {0, 3, 1, 2});
  p.mark();
  const Tensor y = upsample_bicubic2d_aa(x, 8, 8);
  CHECK(p.allocations() == Bytes{768});
  const Tensor z = upsample_bicubic2d_aa(last, 8, 8);
  CHECK(p.allocations() == Bytes{768, 768, 768, 192});
  CHECK(p.saved(Role::input).empty());
}

TEST_CASE("RMSNorm keeps its input and a number a row where it is one kernel, five tensors before torch 2.9", "[ops]") {
  for (const bool fused : {true, false}) {
    Behaviours behaviours = recorded_behaviours();
    behaviours.fused_rms_norm = fused;
    Process p(behaviours);
    const Tensor x = p.input({4, 8}, DType::float32, true), weight = p.parameter({8}, DType::float32);
    p.mark();
    const Tensor y = rms_norm(x, weight, 1);
    CHECK(p.allocations() ==
          (fused ? std::vector<std::int64_t>{128, 16} : std::vector<std::int64_t>{128, 16, 16, 128, 128}));
  }
}

TEST_CASE("A variance keeps its input; its blocks leave one another 16 bytes each", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 8, 32, 32}, DType::float32, true);
  p.mark();
  const Tensor all = var(x, {0, 1, 2, 3}, false);
  CHECK(p.events() == Bytes{4, 1024, 4, -4, -1024});
  CHECK(p.saved(Role::input) == std::vector<std::int64_t>{x.nbytes()});
  p.mark();
  const TensorList both = var_mean(x, {1}, true);
  CHECK(p.allocations() == std::vector<std::int64_t>{4 * 64 * 1024, 4 * 64 * 1024});
}

TEST_CASE("The largest along a dimension keeps its indices, the larger of two both of them", "[ops]") {
  Process p;
  const Tensor x = p.input({4, 16}, DType::float32, true), y = p.input({1, 16}, DType::float32, true);
  p.mark();
  const TensorList largest = max(x, 1, false);
  CHECK(p.allocations() == std::vector<std::int64_t>{16, 32});
  CHECK(largest[0].requires_grad());
  CHECK_FALSE(largest[1].requires_grad());
  CHECK(p.saved(Role::input).empty());
  const Tensor larger = maximum(Op::maximum, x, y);
  CHECK(p.saved(Role::input) == std::vector<std::int64_t>{64, 256});
}

TEST_CASE("What was expanded stays in its place when it is made dense", "[ops]") {
  Process p;
  const Tensor row = p.input({3, 1, 8}, DType::float32);
  CHECK(empty_like(Op::empty, expand(row, {3, 2, 8})).is_contiguous());
}

}  // namespace
}  // namespace oometer
