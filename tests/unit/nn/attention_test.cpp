#include "nn/attention.h"

#include <catch2/catch_test_macros.hpp>

#include "process.h"

namespace oometer {
namespace {

constexpr AttentionKernel kCudnn = AttentionKernel::cudnn, kFlash = AttentionKernel::flash,
                          kEfficient = AttentionKernel::efficient, kMath = AttentionKernel::math;

struct Query {
  std::int64_t head_dim, value_dim;
  AttentionKernel training, inference;
};

/// torch._fused_sdp_choice of 2.15 on a device of compute capability 9.0 and 10.0, bfloat16.
TEST_CASE("On Hopper cuDNN's attention is chosen as PyTorch chooses it", "[nn]") {
  Process p(resolve_behaviours({}), kH100);
  const auto choice = [&](std::int64_t head_dim, std::int64_t value_dim, bool trains, double dropout = 0,
                          DType dtype = kBf16, std::int64_t tokens = 128, const Tensor& mask = {}) {
    const Tensor query = p.input({2, 8, tokens, head_dim}, dtype, trains);
    const Tensor key = p.input({2, 8, 128, head_dim}, dtype, trains);
    const Tensor value = p.input({2, 8, 128, value_dim}, dtype, trains);
    return choose_kernel({AttentionKind::sdpa, !mask, dropout}, query, key, value, mask);
  };
  p.context.training = true;
  const Query table[] = {
      {64, 64, kCudnn, kCudnn},           {128, 128, kCudnn, kCudnn}, {72, 72, kCudnn, kCudnn},
      {160, 160, kFlash, kCudnn},         {192, 192, kFlash, kCudnn}, {192, 128, kCudnn, kCudnn},
      {200, 128, kEfficient, kCudnn},     {256, 256, kCudnn, kCudnn}, {256, 128, kEfficient, kCudnn},
      {264, 264, kEfficient, kEfficient}, {132, 132, kFlash, kFlash}, {132, 64, kMath, kMath},
  };
  for (const Query& q : table) {
    INFO(q.head_dim << " and " << q.value_dim);
    CHECK(choice(q.head_dim, q.value_dim, true) == q.training);
    CHECK(choice(q.head_dim, q.value_dim, false) == q.inference);
  }
  CHECK(choice(64, 64, true, 0.125) == kCudnn);
  CHECK(choice(64, 64, true, 0.1) == kFlash);
  CHECK(choice(64, 64, true, 0, kFp32) == kEfficient);
  CHECK(choice(64, 64, true, 0, kBf16, 1) == kFlash);
  CHECK(choice(64, 64, false, 0, kBf16, 1) == kCudnn);
  const Tensor mask = p.input({2, 1, 128, 128}, DType::boolean), learned = p.input({2, 1, 128, 128}, kBf16, true);
  CHECK(choice(64, 64, true, 0, kBf16, 128, mask) == kCudnn);
  CHECK(choice(64, 64, true, 0, kBf16, 128, learned) == kEfficient);
}

/// torch._fused_sdp_choice of 2.13 and 2.14 with one head of keys.
TEST_CASE("Heads of keys that are spread without enable_gqa keep fused kernels away before 2.14", "[nn]") {
  const auto choice = [](const char* torch, bool enable_gqa, std::int64_t key_heads = 1) {
    Runtime runtime;
    runtime.torch = *parse_version(torch);
    Process p(resolve_behaviours(runtime), kH100);
    const Tensor query = p.input({1, 6, 128, 64}, kBf16, true);
    const Tensor key = p.input({1, key_heads, 128, 64}, kBf16, true);
    return choose_kernel({AttentionKind::sdpa, true, 0}, query, key, key, {}, enable_gqa);
  };
  CHECK(choice("2.13", false) == kMath);
  CHECK(choice("2.14", false) != kMath);
  CHECK(choice("2.13", true) != kMath);
  CHECK(choice("2.13", false, 6) != kMath);
}

}  // namespace
}  // namespace oometer
