#include <catch2/catch_test_macros.hpp>

#include "autograd/engine.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "process.h"
#include "tensor/kernel.h"

/// What each kind of operator says that it computes and moves.
namespace oometer {
namespace {

/// A kernel with what it has as a product or a collective.
struct Kernel : Work, WorkProduct {};

/// Kernels since they were last asked for.
class Works {
 public:
  explicit Works(Process& p) : log_(p.context.log.work) { take(); }
  std::vector<Kernel> take() {
    std::vector<Kernel> kernels;
    for (; taken_ < log_.works.size(); ++taken_)
      kernels.push_back({log_.works[taken_], log_.product(log_.works[taken_])});
    return kernels;
  }
  /// There was one.
  Kernel one() {
    const std::vector<Kernel> works = take();
    REQUIRE(works.size() == 1);
    return works[0];
  }

 private:
  const WorkLog& log_;
  std::size_t taken_ = 0;
};

void check(const Work& work, WorkKind kind, std::int64_t read, std::int64_t written) {
  CHECK(work.kind == kind);
  CHECK(work.read == read);
  CHECK(work.written == written);
}

TEST_CASE("A product's work is its sizes, FLOPs and operands", "[ops][work]") {
  Process p;
  const Tensor a = p.input({6, 8}), b = p.input({8, 10}), bias = p.input({10});
  Works works(p);
  mm(a, b);
  const Kernel product = works.one();
  check(product, WorkKind::gemm, 2 * (48 + 80), 2 * 60);
  CHECK((product.m == 6 && product.n == 10 && product.k == 8 && product.batch == 1));
  CHECK((product.flops == 960 && product.counted == 960 && product.dtype == DType::bfloat16));
  linear(a, transpose(b, 0, 1), bias);
  check(works.one(), WorkKind::gemm, 2 * (48 + 80 + 10), 2 * 60);
  bmm(p.input({3, 6, 8}), p.input({3, 8, 10}));
  CHECK(works.one().flops == 3 * 960);
}

TEST_CASE("A product says whose rows are an odd number of elements apart", "[ops][work]") {
  Process p;
  Works works(p);
  const Tensor tokens = p.input({6, 8}), head = p.input({5, 8}), logits = mm(tokens, transpose(head, 0, 1));
  CHECK(works.one().odd_rows == OddRows::result);
  mm(logits, head);
  CHECK(works.one().odd_rows == OddRows::operands);
  mm(transpose(logits, 0, 1), tokens);
  CHECK(works.one().odd_rows == OddRows::operands);
  // An odd number of tokens moves no row of theirs.
  mm(p.input({7, 8}), p.input({8, 4}));
  CHECK(works.one().odd_rows == OddRows::none);
  mm(p.input({1, 5}), p.input({5, 4}));
  CHECK(works.one().odd_rows == OddRows::none);
}

TEST_CASE("A backward's products are told, too", "[ops][work]") {
  Process p;
  const Tensor a = p.input({6, 8}, kBf16, true), b = p.input({8, 10}, kBf16, true);
  const Tensor result = mm(a, b), gradient = p.input({6, 10});
  Works works(p);
  autograd::backward(result, gradient);
  const std::vector<Kernel> products = works.take();
  REQUIRE(products.size() == 2);
  for (const Kernel& product : products) CHECK((product.kind == WorkKind::gemm && product.flops == 960));
}

TEST_CASE("Elementwise operators read their operands and write their result", "[ops][work]") {
  Process p;
  const Tensor x = p.input({4, 32}), row = p.input({32}), wide = expand(p.input({1, 32}), {4, 32});
  Works works(p);
  add(x, x);
  check(works.one(), WorkKind::elementwise, 2 * 256, 256);
  mul(x, row);
  check(works.one(), WorkKind::elementwise, 256 + 64, 256);
  mul(x, wide);  // what is expanded lies in memory once
  check(works.one(), WorkKind::elementwise, 256 + 64, 256);
  Tensor sum = add_scalar(x);
  check(works.one(), WorkKind::elementwise, 256, 256);
  add_(sum, x);
  check(works.one(), WorkKind::elementwise, 2 * 256, 256);
  view(x, {128});
  CHECK(works.take().empty());
}

TEST_CASE("An activation's backward reads the gradient and what was saved", "[ops][work]") {
  Process p;
  const Tensor x = p.input({4, 32}, kBf16, true);
  const Tensor y = silu(x), gradient = p.input({4, 32});
  Works works(p);
  autograd::backward(y, gradient);
  check(works.one(), WorkKind::elementwise, 2 * 256, 256);
}

TEST_CASE("Copies, gathers and reductions", "[ops][work]") {
  Process p;
  const Tensor x = p.input({4, 32}), table = p.input({1000, 8}), rows = p.input({5}, DType::int64);
  Works works(p);
  to(x, kFp32);
  check(works.one(), WorkKind::copy, 256, 512);
  contiguous(transpose(x, 0, 1));
  check(works.one(), WorkKind::copy, 256, 256);
  cat({x, x}, 0);
  check(works.one(), WorkKind::copy, 512, 512);
  embedding(table, rows);
  check(works.one(), WorkKind::index, 80, 80);
  sum(x, {1}, false);
  check(works.one(), WorkKind::reduction, 256, 8);
  softmax(x, kBf16);
  check(works.one(), WorkKind::reduction, 256, 256);
}

TEST_CASE("Causal attention is half the work, and counted in full", "[ops][work]") {
  Process p;
  const Tensor query = p.input({2, 4, 64, 32}, kBf16, true), key = p.input({2, 2, 64, 32}, kBf16, true);
  const std::int64_t product = 2LL * 2 * 4 * 64 * 64 * 32;
  for (const AttentionKernel kernel : {AttentionKernel::flash, AttentionKernel::efficient, AttentionKernel::cudnn}) {
    Works works(p);
    const Tensor output = scaled_dot_product_attention(kernel, query, key, key, {}, {true, true, 0});
    std::vector<Kernel> all = works.take();
    std::erase_if(all, [](const Work& work) { return work.kind != WorkKind::attention; });
    REQUIRE(all.size() == 1);
    CHECK((all[0].counted == 2 * product && all[0].flops == product));
    CHECK((all[0].batch == 8 && all[0].m == 64 && all[0].n == 64 && all[0].k == 32));
    CHECK(all[0].read == 2 * (2 * 4 * 64 * 32 + 2 * 2 * 2 * 64 * 32));
    autograd::backward(output, p.input({2, 4, 64, 32}));
    all = works.take();
    std::erase_if(all, [](const Work& work) { return work.kind != WorkKind::attention; });
    REQUIRE(all.size() == 1);
    CHECK((all[0].counted == 5 * product && all[0].flops == 5 * product / 2));
  }
}

TEST_CASE("A grouped convolution, and the gradient of its weight as FlopCounterMode counts it", "[ops][work]") {
  Process p;
  const Tensor x = p.input({3, 8, 10, 10}, kFp32, true), weight = p.input({16, 4, 3, 3}, kFp32, true);
  ConvolutionOptions options{{1, 1}, {1, 1}, {1, 1}, {0, 0}};
  options.groups = 2;
  Works works(p);
  const Tensor y = convolution(x, weight, {}, options);
  const auto convolutions = [&] {
    std::vector<Kernel> all = works.take();
    std::erase_if(all, [](const Work& work) { return work.kind != WorkKind::convolution; });
    return all;
  };
  const std::int64_t flops = 2LL * 3 * 100 * 16 * 4 * 9;
  const std::vector<Kernel> forward = convolutions();
  REQUIRE(forward.size() == 1);
  CHECK((forward[0].flops == flops && forward[0].counted == flops));
  autograd::backward(y, p.input({3, 16, 10, 10}, kFp32));
  const std::vector<Kernel> backward = convolutions();
  REQUIRE(backward.size() == 2);
  CHECK((backward[0].flops == flops && backward[0].counted == flops));
  CHECK((backward[1].flops == flops && backward[1].counted == 2 * flops));
}

TEST_CASE("FlopCounterMode does not see grouped products", "[ops][work]") {
  Process p;
  const Tensor x = p.input({64, 16}), weight = p.input({4, 24, 16}), offsets = p.input({4}, DType::int32);
  Works works(p);
  grouped_mm(x, weight, offsets);
  const Kernel product = works.one();
  CHECK((product.kind == WorkKind::gemm && product.flops == 2 * 64 * 16 * 24 && product.counted == 0));
  CHECK((product.batch == 4 && product.m == 16));
}

TEST_CASE("A collective's message, and what it reads and writes of it", "[ops][work]") {
  Process p;
  Works works(p);
  collective(p.context, Op::all_gather, 1024, kBf16, 4);
  const Kernel work = works.one();
  check(work, WorkKind::communication, 256, 1024);
  CHECK((work.sent == 1024 && work.n == 4));
  collective(p.context, Op::reduce_scatter, 1024, kBf16, 4);
  check(works.one(), WorkKind::communication, 1024, 256);
  collective(p.context, Op::all_reduce, 1024, kBf16, 1);
  CHECK(works.take().empty());
}

}  // namespace
}  // namespace oometer
