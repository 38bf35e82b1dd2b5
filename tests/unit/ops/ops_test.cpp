#include "ops/ops.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "autograd/engine.h"
#include "process.h"

/// Each operator: what it allocates, keeps, and allocates in its backward. The numbers are those that PyTorch 2.15's
/// own host code asks of its allocator (A100 unless said).
namespace oometer {
namespace {

/// What autograd::backward allocates for a result, its own gradient left out.
Bytes backward_of(Process& p, const Tensor& result) {
  const Tensor gradient = empty_like(Op::ones_like, result);
  p.mark();
  autograd::backward(result, gradient);
  return p.allocations();
}

TEST_CASE("Views allocate nothing", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 6, 4});
  p.mark();
  CHECK(view(x, {12, 4}).sizes() == Shape{12, 4});
  CHECK(reshape(x, {2, 24}).sizes() == Shape{2, 24});
  CHECK(transpose(x, 1, 2).strides() == Shape{24, 1, 4});
  CHECK(unsqueeze(x, -1).sizes() == Shape{2, 6, 4, 1});
  CHECK(expand(unsqueeze(x, 0), {3, 2, 6, 4}).strides() == Shape{0, 24, 4, 1});
  CHECK(slice(x, 1, 2, 3).sizes() == Shape{2, 3, 4});
  CHECK(select(x, 1, 0).sizes() == Shape{2, 4});
  CHECK(contiguous(x).get() == x.get());
  CHECK(p.events().empty());
}

TEST_CASE("Integers that are added as longer ones are copied first", "[ops]") {
  Process p;
  const auto added = [&](DType from, DType to) {
    const Tensor x = p.input({4, 300}, from);
    p.mark();
    const Tensor total = reduce(Op::sum, x, {1}, false, to);
    return p.allocations();
  };
  CHECK(added(DType::int64, DType::int64) == Bytes{32});
  CHECK(added(DType::int32, DType::int64) == Bytes{32, 4 * 300 * 8});
  CHECK(added(DType::int64, DType::int32) == Bytes{16, 4 * 300 * 4});
  CHECK(added(DType::boolean, DType::int64) == Bytes{32, 4 * 300 * 8});
}

TEST_CASE("A reshape copies where strides do not allow a view", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 6, 4});
  const Tensor t = transpose(x, 1, 2);
  p.mark();
  CHECK(reshape(t, {8, 6}).is_contiguous());
  CHECK(p.allocations() == Bytes{96});
  p.mark();
  CHECK(reshape(transpose(x, 0, 1), {6, 2, 2, 2}).strides() == Shape{4, 24, 2, 1});
  CHECK(p.allocations().empty());
}

TEST_CASE("A slice's gradient is as large as what it was cut from", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 577, 64}, kBf16, true);
  CHECK(backward_of(p, slice(x, 1, 1, 576)) == Bytes{2 * 577 * 64 * 2});
  const Tensor y = p.input({2, 577, 64}, kBf16, true);
  CHECK(backward_of(p, select(y, 1, 0)) == Bytes{2 * 577 * 64 * 2});
}

TEST_CASE("An expanded tensor's gradient is summed", "[ops]") {
  Process p;
  const Tensor x = p.input({1, 64}, kFp32, true);
  CHECK(backward_of(p, expand(x, {8, 64})) == Bytes{256});
  CHECK(x->grad.sizes() == Shape{1, 64});
}

TEST_CASE("Conversions cost nothing to the same type", "[ops]") {
  Process p;
  const Tensor x = p.input({256}, kBf16, true);
  CHECK(to(x, kBf16).get() == x.get());
  p.mark();
  const Tensor wide = to(x, kFp32);
  CHECK(p.allocations() == Bytes{1024});
  CHECK(p.saved(Role::input).empty());
  CHECK(backward_of(p, wide) == Bytes{512});
}

TEST_CASE("Sums and differences keep nothing and pass the gradient on", "[ops]") {
  Process p;
  const Tensor x = p.input({256}, kFp32, true), frozen = p.input({256}, kFp32);
  const Tensor y = silu(x);
  const Tensor sum = add(y, frozen);
  CHECK(p.saved().empty());
  CHECK(backward_of(p, sum) == Bytes{1024});  // silu's
}

TEST_CASE("A product keeps each side only for the other's gradient", "[ops]") {
  Process p;
  const Tensor x = silu(p.input({256}, kFp32, true));
  const Tensor frozen = mul_scalar(p.input({256}, kFp32)), trained = silu(p.input({256}, kFp32, true));
  {
    const Tensor y = mul(x, frozen);
    CHECK(p.saved() == Bytes{1024});
    CHECK_FALSE(p.context.record(x)->saved);
    CHECK(p.context.record(frozen)->saved);
  }
  const Tensor z = mul(x, trained);
  CHECK(p.context.record(x)->saved);
  CHECK(p.context.record(trained)->saved);
}

TEST_CASE("A broadcast side's gradient is made whole, then summed", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 256}, kFp32), weight = p.input({256}, kFp32, true);
  CHECK(backward_of(p, mul(weight, x)) == Bytes{64 * 256 * 4, 256 * 4});
}

TEST_CASE("Types meet as PyTorch promotes them", "[ops]") {
  Process p;
  const Tensor half = p.input({4}, DType::float16), brain = p.input({4}), wide = p.input({4}, kFp32);
  CHECK(add(half, brain).dtype() == kFp32);
  CHECK(add(brain, wide).dtype() == kFp32);
  CHECK(mul(brain, p.input({}, kFp32)).dtype() == kBf16);
  CHECK(add(brain, brain).dtype() == kBf16);
}

TEST_CASE("Activations keep their input or their result, one tensor", "[ops]") {
  struct Row {
    Tensor (*function)(const Tensor&);
    bool keeps_input;
  };
  const Row row = GENERATE(Row{silu, true}, Row{gelu, true}, Row{relu, false}, Row{sigmoid, false}, Row{tanh, false});
  Process p;
  const Tensor x = p.input({256}, kBf16, true);
  p.mark();
  const Tensor y = row.function(x);
  CHECK(p.allocations() == Bytes{512});
  CHECK(p.context.record(x)->saved == row.keeps_input);
  CHECK(p.context.record(y)->saved == !row.keeps_input);
  CHECK(backward_of(p, y) == Bytes{512});
}

TEST_CASE("pow and rsqrt: three tensors in backward", "[ops]") {
  Process p;
  const Tensor x = p.input({256}, kFp32, true);
  CHECK(backward_of(p, pow(x, 2)) == Bytes{1024, 1024, 1024});
  const Tensor y = p.input({256}, kFp32, true);
  CHECK(backward_of(p, rsqrt(y)) == Bytes{1024, 1024, 1024});
}

TEST_CASE("Dropout keeps a mask of booleans; none at zero", "[ops]") {
  Process p;
  const Tensor x = p.input({256}, kBf16, true);
  CHECK(dropout(x, 0).get() == x.get());
  p.mark();
  const Tensor y = dropout(x, 0.1);
  CHECK(p.allocations() == Bytes{256, 512});
  CHECK(p.saved() == Bytes{256});
}

TEST_CASE("Row sums need no scratch; column sums do from 1024 rows on", "[ops]") {
  struct Row {
    std::int64_t rows, columns;
    Bytes expected;  // after the result
  };
  const Row row = GENERATE(Row{1024, 512, {4194304, 16}}, Row{1280, 256, {2621440, 8}},
                           Row{16384, 4096, {113246208, 128}}, Row{4096, 32, {65536, 4}}, Row{65536, 16, {131072, 4}},
                           Row{32768, 64, {4194304, 4}}, Row{1020, 512, {}});
  const DType dtype = GENERATE(kBf16, kFp32);
  Process p;
  const Tensor x = p.input({row.rows, row.columns}, dtype);
  p.mark();
  const Tensor columns = reduce(Op::sum, x, {0}, false, dtype);
  Bytes expected{row.columns * element_size(dtype)};
  expected.insert(expected.end(), row.expected.begin(), row.expected.end());
  CAPTURE(row.rows, row.columns);
  CHECK(p.allocations() == expected);
  p.mark();
  const Tensor rows = reduce(Op::sum, x, {1}, true, dtype);
  CHECK(p.allocations() == Bytes{row.rows * element_size(dtype)});
}

TEST_CASE("An H100's column sums are staged for its 132 multiprocessors", "[ops]") {
  Process p(recorded_behaviours(), kH100);
  const Tensor x = p.input({16384, 4096});
  p.mark();
  const Tensor columns = reduce(Op::sum, x, {0}, false, kBf16);
  REQUIRE(p.allocations().size() == 3);
  CHECK(p.allocations()[1] == 138412032);
}

TEST_CASE("Booleans are counted in a copy of integers", "[ops]") {
  Process p;
  const Tensor x = p.input({1000}, DType::boolean);
  p.mark();
  CHECK(sum_all(x).dtype() == DType::int64);
  const Bytes events = p.events();
  REQUIRE(events.size() >= 3);
  CHECK(Bytes(events.begin(), events.begin() + 3) == Bytes{8, 8000, -8000});
}

TEST_CASE("A whole tensor's sum is staged, its semaphores last", "[ops]") {
  Process p;
  const Tensor x = p.input({160000});
  p.mark();
  const Tensor total = sum_all(x);
  CHECK(p.events() == Bytes{2, 80, 4, -4, -80});
}

TEST_CASE("mean's gradient is a new tensor of the input's size, sum's a view", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 256}, kFp32, true), y = p.input({64, 256}, kFp32, true);
  CHECK(backward_of(p, mean(x, -1, true)) == Bytes{64 * 256 * 4});
  const Tensor total = sum(silu(y), {-1}, true);
  CHECK(backward_of(p, total) == Bytes{64 * 256 * 4});  // silu's
}

TEST_CASE("A linear layer without bias: output and a workspace; the weight's gradient first", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 64, 128}, kBf16, true), weight = p.parameter({256, 128});
  p.mark();
  const Tensor y = linear(x, weight, {});
  CHECK(p.events() == Bytes{2 * 64 * 256 * 2, kWorkspace, -kWorkspace});
  CHECK(y.sizes() == Shape{2, 64, 256});
  CHECK(backward_of(p, y) == Bytes{256 * 128 * 2, kWorkspace, 2 * 64 * 128 * 2, kWorkspace});
}

TEST_CASE("A linear layer with bias: cuBLASLt's workspace; the input's gradient first", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 64, 128}, kBf16, true), weight = p.parameter({256, 128}), bias = p.parameter({256});
  p.mark();
  const Tensor y = linear(x, weight, bias);
  CHECK(p.events() == Bytes{2 * 64 * 256 * 2, kLtWorkspace, -kLtWorkspace});
  CHECK(backward_of(p, y) == Bytes{2 * 64 * 128 * 2, kWorkspace, 256 * 128 * 2, kWorkspace, 256 * 2});
}

TEST_CASE("A linear layer with bias is cuBLASLt's of one row too, not of one feature", "[ops]") {
  Process p;
  const Tensor x = p.input({1, 1, 128}), one = p.input({1, 4, 1}), weight = p.parameter({256, 128}),
               narrow = p.parameter({256, 1}), bias = p.parameter({256});
  p.mark();
  { const Tensor y = linear(x, weight, bias); }
  CHECK(p.allocations() == Bytes{256 * 2, kLtWorkspace});
  p.mark();
  { const Tensor y = linear(one, narrow, bias); }
  CHECK(p.allocations() == Bytes{4 * 256 * 2, kWorkspace});
}

TEST_CASE("A linear layer with bias copies an input that is not contiguous, and adds the bias in place", "[ops]") {
  Process p;
  const Tensor features = p.input({2, 65, 128}, kBf16, true), weight = p.parameter({256, 128}),
               bias = p.parameter({256});
  const Tensor x = slice(features, 1, 1, 64);
  p.mark();
  const Tensor y = linear(x, weight, bias);
  CHECK(p.events() == Bytes{2 * 64 * 128 * 2, 2 * 64 * 256 * 2, kWorkspace, -kWorkspace});
  CHECK(p.saved() == Bytes{2 * 64 * 128 * 2});
}

TEST_CASE("A frozen weight keeps no input and has no gradient", "[ops]") {
  Process p;
  const Tensor x = silu(p.input({64, 128}, kBf16, true)), weight = p.parameter({256, 128});
  weight->leaf_requires_grad = false;
  const Tensor y = mm(x, transpose(weight, 0, 1));
  CHECK_FALSE(p.context.record(x)->saved);
  CHECK(p.context.record(weight)->saved);
  p.mark();
  autograd::backward(y, empty_like(Op::ones_like, y));
  CHECK(p.allocations()[1] == 64 * 128 * 2);
  CHECK_FALSE(weight->grad);
}

TEST_CASE("cuBLAS's workspace is 32 MiB on Hopper, cuBLASLt's stays one", "[ops]") {
  Process p(recorded_behaviours(), kH100);
  const Tensor x = p.input({64, 128}), weight = p.parameter({256, 128}), bias = p.parameter({256});
  p.mark();
  { const Tensor y = linear(x, weight, {}); }
  CHECK(p.allocations()[1] == 33'554'432);
  p.mark();
  { const Tensor y = linear(x, weight, bias); }
  CHECK(p.allocations()[1] == kLtWorkspace);
}

TEST_CASE("Before torch 2.15 a handle's cuBLAS workspace is made once and kept", "[ops]") {
  Runtime runtime;
  runtime.torch = {2, 14, 0};
  Process p(resolve_behaviours(runtime));
  const Tensor x = p.input({64, 128}, kBf16, true), weight = p.parameter({128, 128});
  p.mark();
  Tensor y = linear(x, weight, {});
  CHECK(p.events() == Bytes{64 * 128 * 2, kWorkspace});
  p.mark();
  y = linear(y, weight, {});
  CHECK(p.allocations() == Bytes{64 * 128 * 2});
  // Autograd's own thread has a handle of its own.
  p.mark();
  autograd::backward(y, empty_like(Op::ones_like, y));
  const Bytes events = p.events();
  CHECK(std::count(events.begin(), events.end(), kWorkspace) == 1);
  CHECK(std::count(events.begin(), events.end(), -kWorkspace) == 0);
}

TEST_CASE("A batched product's operands are copied only where rows and columns both have gaps", "[ops]") {
  Process p;
  const Tensor a = p.input({4, 8, 16}), b = p.input({4, 16, 8});
  p.mark();
  { const Tensor y = bmm(a, b); }
  CHECK(p.allocations() == Bytes{4 * 8 * 8 * 2, kWorkspace});
  p.mark();
  { const Tensor y = bmm(a, transpose(p.input({4, 8, 16}), 1, 2)); }
  CHECK(p.allocations() == Bytes{1024, 4 * 8 * 8 * 2, kWorkspace});
}

TEST_CASE("Layer normalisation keeps input, mean and deviation; three gradients", "[ops]") {
  Process p;
  const Tensor x = p.input({50, 128}, kBf16, true), weight = p.parameter({128}), bias = p.parameter({128});
  p.mark();
  const Tensor y = layer_norm(x, weight, bias);
  CHECK(p.allocations() == Bytes{50 * 128 * 2, 200, 200});
  CHECK(p.saved() == Bytes{200, 200});
  CHECK(p.context.record(x)->saved);
  CHECK(backward_of(p, y) == Bytes{50 * 128 * 2, 256, 256});
}

TEST_CASE("Softmax in another type converts first; its backward holds a product besides the result", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 256}, kBf16, true);
  p.mark();
  const Tensor y = softmax(x, kFp32);
  CHECK(p.events() == Bytes{65536, 65536, -65536});
  const Tensor gradient = empty_like(Op::ones_like, y);
  p.mark();
  autograd::backward(y, gradient);
  const Bytes events = p.events();
  REQUIRE(events.size() >= 3);
  CHECK(Bytes(events.begin(), events.begin() + 3) == Bytes{65536, 65536, -65536});
  const Tensor half = p.input({64, 256}, DType::float16);
  p.mark();
  { const Tensor z = softmax(half, kFp32); }
  CHECK(p.allocations() == Bytes{65536});
}

TEST_CASE("Cross entropy: the log-probabilities stay, backward needs two of them", "[ops]") {
  Process p;
  const Tensor logits = p.input({32, 1000}, kFp32, true), target = p.input({32}, DType::int64);
  p.mark();
  const Tensor loss = cross_entropy(logits, target);
  CHECK(p.allocations() == Bytes{128000, 4, 4});
  CHECK(p.saved() == Bytes{4, 128000});
  CHECK(backward_of(p, loss) == Bytes{128000, 128000});
}

TEST_CASE("Embedding: the gradient alone up to 3072 indices, then sorting", "[ops]") {
  const std::int64_t count = GENERATE(3072, 3073, 4096, 16384);
  Process p;
  const Tensor weight = p.parameter({32064, 64}), indices = p.input({count}, DType::int64);
  const Tensor y = embedding(weight, indices);
  CHECK(p.context.record(indices)->saved);
  const Bytes backward = backward_of(p, y);
  const std::int64_t gradient = 32064 * 64 * 2;
  CAPTURE(count);
  if (count <= 3072) {
    CHECK(backward == Bytes{gradient});
    return;
  }
  REQUIRE(backward.size() > 6);
  CHECK(Bytes(backward.begin(), backward.begin() + 3) == Bytes{8 * count, 8 * count, 8 * count});
  CHECK(backward[3] == (count == 3073 ? 55295 : count == 4096 ? 72191 : 271871));
  CHECK(backward[4] == gradient);
  const std::int64_t segments = count, partials = count / 10 + segments;
  CHECK(backward.back() == 4 * partials * 64);
  CHECK(p.alive(Role::gradient) == gradient);
}

TEST_CASE("A product folds its first operand where all but its last dimension are one in a view", "[ops]") {
  // torch.matmul(torch.empty(sizes).transpose(1, 2), weight) under FlopCounterMode, 2.15
  const auto is_one_matrix = [](std::int64_t batch) {
    Process p;
    const Tensor weight = p.input({8, 4}), x = transpose(p.input({batch, 8, 6}), 1, 2);
    const Tensor product = matmul(x, weight);
    CHECK(product.sizes() == Shape{batch, 6, 4});
    return std::string(p.log().ops[p.log().work.works.back().op]) == "mm";
  };
  CHECK(is_one_matrix(1));
  CHECK_FALSE(is_one_matrix(2));
}

TEST_CASE("Patch embedding unfolds one image at a time; with cuDNN nothing is unfolded", "[ops]") {
  Process p;
  const Tensor pixels = p.input({3, 3, 28, 28}), weight = p.parameter({64, 3, 14, 14});
  p.mark();
  const Tensor y = convolution(pixels, weight, {});
  CHECK(y.sizes() == Shape{3, 64, 2, 2});
  CHECK(p.allocations() == Bytes{3 * 64 * 4 * 2, 3 * 14 * 14 * 4 * 2, kWorkspace, kWorkspace, kWorkspace});

  Process with_cudnn(resolve_behaviours({}));
  const Tensor kernel = with_cudnn.parameter({64, 3, 14, 14}), images = with_cudnn.input({3, 3, 28, 28});
  with_cudnn.mark();
  const Tensor z = convolution(images, kernel, {});
  CHECK(with_cudnn.allocations() == Bytes{3 * 64 * 4 * 2});
}

struct Heads {
  Tensor query, key, value;
  Heads(Process& p, std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t length,
        std::int64_t head_dim, DType dtype = kBf16)
      : query(p.input({batch, heads, length, head_dim}, dtype, true)),
        key(p.input({batch, kv_heads, length, head_dim}, dtype, true)),
        value(p.input({batch, kv_heads, length, head_dim}, dtype, true)) {}

  Tensor run(AttentionKernel kernel) const {
    return scaled_dot_product_attention(kernel, query, key, value, {}, {true, query.size(1) != key.size(1), 0});
  }
};

TEST_CASE("cuDNN's attention writes in its query's order of heads and tokens", "[ops]") {
  Process p;
  const auto output_of = [&](const Tensor& query, std::int64_t head_dim) {
    const Tensor key = p.input({2, 4, 64, query.size(3)}), value = p.input({2, 4, 64, head_dim});
    return scaled_dot_product_attention(AttentionKernel::cudnn, query, key, value, {}, {true, false, 0});
  };
  const Tensor by_heads = p.input({2, 4, 64, 32}), by_tokens = transpose(p.input({2, 64, 4, 32}), 1, 2);
  CHECK(output_of(by_heads, 32).strides() == Shape{4 * 64 * 32, 64 * 32, 32, 1});
  CHECK(output_of(by_tokens, 32).strides() == Shape{64 * 4 * 32, 32, 4 * 32, 1});
  CHECK(output_of(by_heads, 16).strides() == Shape{4 * 64 * 16, 64 * 16, 16, 1});
  CHECK(output_of(by_tokens, 16).strides() == Shape{64 * 4 * 16, 16, 4 * 16, 1});
}

TEST_CASE("A product with a bias asks for the cuBLAS handle, whose workspace was kept until 2.14", "[ops]") {
  for (const int minor : {6, 11, 14, 15}) {
    INFO("torch 2." << minor);
    Runtime runtime;
    runtime.torch = {2, minor, 0};
    Process p(resolve_behaviours(runtime), kH100);
    const Tensor x = p.input({8, 16}), weight = p.parameter({32, 16}), bias = p.parameter({32});
    p.mark();
    const Tensor y = linear(x, weight, bias);
    const Bytes made = p.allocations();
    CHECK((std::find(made.begin(), made.end(), 32 << 20) != made.end()) == (minor < 15));
  }
}

TEST_CASE("Flash attention: output, log-sum-exp, random state; a small batch is split over the keys", "[ops]") {
  Process p;
  const Heads large(p, 2, 32, 32, 1024, 128), tiny(p, 2, 4, 4, 512, 64), odd(p, 2, 4, 4, 577, 96);
  p.mark();
  { const Tensor y = large.run(AttentionKernel::flash); }
  CHECK(p.allocations() == Bytes{2 * 32 * 1024 * 128 * 2, 4 * 2 * 32 * 1024, 16, 8});
  p.mark();
  { const Tensor y = tiny.run(AttentionKernel::flash); }
  const std::int64_t rows = 2 * 4 * 512;
  CHECK(p.allocations() == Bytes{rows * 64 * 2, 4 * rows, 4 * 2 * rows, 4 * 2 * rows * 64, 16, 8});
  p.mark();
  { const Tensor y = odd.run(AttentionKernel::flash); }
  CHECK(p.allocations()[2] == 4 * 5 * 2 * 4 * 577);
}

TEST_CASE("Flash attention's backward: three gradients, two accumulators, and two more for grouped queries", "[ops]") {
  Process p;
  const Heads heads(p, 2, 32, 32, 1000, 128), grouped(p, 2, 32, 8, 1000, 128);
  const std::int64_t q = 2 * 32 * 1000 * 128 * 2, kv = q / 4, rows = 2 * 32 * 1024;
  // The output lies as the queries do, [b, h, s, d] here, and so does its gradient: the kernel wants copies of both,
  // and the gradients lie as their leaves.
  CHECK(backward_of(p, heads.run(AttentionKernel::flash)) == Bytes{q, q, q, q, q, 4 * rows, 4 * rows * 128});
  const Bytes events = backward_of(p, grouped.run(AttentionKernel::flash));
  REQUIRE(events.size() >= 9);
  CHECK(Bytes(events.begin(), events.begin() + 9) == Bytes{q, q, q, kv, kv, 4 * rows, 4 * rows * 128, q, q});
}

TEST_CASE("A head that is no multiple of 8 is padded in copies, which are what is saved", "[ops]") {
  Process p;
  const Heads heads(p, 2, 32, 32, 1024, 124);
  p.mark();
  const Tensor y = heads.run(AttentionKernel::flash);
  const std::int64_t padded = 2 * 32 * 1024 * 128 * 2;
  const Bytes allocations = p.allocations();
  CHECK(Bytes(allocations.begin(), allocations.begin() + 3) == Bytes{padded, padded, padded});
  CHECK(y.size(3) == 124);
  CHECK(p.saved().size() == 7);
}

TEST_CASE("Efficient attention: seed and offset first, rows in 32s; its backward's scratch", "[ops]") {
  Process p;
  const std::int64_t length = GENERATE(77, 150, 577, 1000, 3000);
  const Heads heads(p, 2, 4, 4, length, 64);
  p.mark();
  const Tensor y = heads.run(AttentionKernel::efficient);
  const std::int64_t rows32 = (length + 31) / 32 * 32, rows64 = (length + 63) / 64 * 64;
  const std::int64_t q = 2 * 4 * length * 64 * 2;
  CAPTURE(length);
  CHECK(p.allocations() == Bytes{8, 8, q, 4 * 8 * rows32});
  const Bytes backward = backward_of(p, y);
  REQUIRE(backward.size() >= 5);
  CHECK(Bytes(backward.begin(), backward.begin() + 5) ==
        Bytes{q, q, q, 4 * 8 * length, 8 * (4 * rows64 * 64 + 16 * rows64 / 64)});
}

TEST_CASE("Efficient attention in fp32 makes its delta from a product", "[ops]") {
  Process p;
  const Heads heads(p, 2, 4, 4, 512, 64, kFp32);
  const Bytes backward = backward_of(p, heads.run(AttentionKernel::efficient));
  const std::int64_t rows = 8 * 512, q = rows * 64 * 4;
  REQUIRE(backward.size() >= 7);
  CHECK(Bytes(backward.begin() + 3, backward.begin() + 6) == Bytes{q, 4 * rows, 4 * rows});
}

TEST_CASE("Math attention computes halves in fp32 and keeps the whole matrix", "[ops]") {
  Process p;
  const Heads heads(p, 1, 4, 4, 256, 64);
  const Tensor y = heads.run(AttentionKernel::math);
  CHECK(y.dtype() == kBf16);
  const Bytes saved = p.saved();
  CHECK(saved.back() == 4 * 4 * 256 * 256);
  CHECK(std::count(saved.begin(), saved.end(), 4 * 4 * 256 * 256) == 1);
}

TEST_CASE("Joining gives back views of the gradient; the unbound batch is stacked again", "[ops]") {
  Process p;
  const Tensor a = silu(p.input({4, 8}, kFp32, true)), b = silu(p.input({4, 8}, kFp32, true));
  p.mark();
  const Tensor joined = cat({a, b}, 1);
  CHECK(p.allocations() == Bytes{256});
  CHECK(joined.sizes() == Shape{4, 16});
  CHECK(p.saved(Role::tensor).empty());
  const Tensor x = p.input({2, 3, 8}, kFp32, true);
  CHECK(backward_of(p, cat_unbound(x)) == Bytes{192});
}

TEST_CASE("Scattering image features clones the embeddings and sums up the mask", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 640, 256}), mask = p.input({2, 640, 1}, DType::boolean), source = p.input({1152, 256});
  p.mark();
  const Tensor y = masked_scatter(x, mask, source);
  const std::int64_t n = 2 * 640 * 256;
  CHECK(p.allocations() == Bytes{2 * n, 8 * n, n, 6911});
}

TEST_CASE("Autocast casts a weight once a region, an activation every time", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 128}, kFp32), weight = p.parameter({128, 128}, kFp32);
  std::int64_t casts_of_weight = 0;
  {
    const AutocastRegion region(p.context, true);
    p.mark();
    for (int i = 0; i < 3; ++i) {
      const Tensor y = linear(x, weight, {});
      CHECK(y.dtype() == kBf16);
    }
    const Bytes events = p.events();
    casts_of_weight = std::count(events.begin(), events.end(), 128 * 128 * 2);
    CHECK(std::count(events.begin(), events.end(), -128 * 128 * 2) == 0);
    p.mark();
  }
  CHECK(casts_of_weight == 1);
  // Leaving the region drops the copy.
  CHECK(p.events() == Bytes{-128 * 128 * 2});
}

TEST_CASE("Autocast does not cache what is frozen", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 128}, kFp32), weight = p.parameter({128, 128}, kFp32);
  weight->leaf_requires_grad = false;
  const AutocastRegion region(p.context, true);
  p.mark();
  for (int i = 0; i < 3; ++i) const Tensor y = linear(x, weight, {});
  const Bytes events = p.events();
  CHECK(std::count(events.begin(), events.end(), 128 * 128 * 2) == 3);
}

TEST_CASE("Autocast widens what its fp32 list names", "[ops]") {
  Process p;
  const Tensor x = p.input({64, 128}), weight = p.parameter({128}, kFp32), bias = p.parameter({128}, kFp32);
  const AutocastRegion region(p.context, true);
  CHECK(layer_norm(x, weight, bias).dtype() == kFp32);
  CHECK(pow(x, 2).dtype() == kFp32);
  CHECK(silu(x).dtype() == kBf16);
}

}  // namespace
}  // namespace oometer
