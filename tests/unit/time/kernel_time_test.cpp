#include "time/kernel_time.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "job/catalogue.h"
#include "tensor/op.h"
#include "trace/log.h"

namespace oometer {
namespace {

Work of(Op op, WorkKind kind, DType dtype, std::int64_t bytes = 0) {
  return {.op = static_cast<OpId>(op), .kind = kind, .dtype = dtype, .read = bytes, .written = 0};
}

KernelTime time_of(const char* gpu, Work work, const WorkProduct& product = {}) {
  WorkLog log;
  log.products.push_back(product);
  work.product = 1;
  return KernelTimes(*find_speed(gpu)).of(log, work);
}

WorkProduct square(std::int64_t n) {
  return {.batch = 1, .m = n, .n = n, .k = n, .flops = 2 * n * n * n, .counted = 2 * n * n * n};
}

TEST_CASE("A GPU's speed is known by its id, or not at all", "[time]") {
  int known = 0;
  for (const Gpu& gpu : gpu_catalogue()) {
    const GpuSpeed* speed = find_speed(gpu.id);
    INFO(gpu.id);
    CHECK((speed != nullptr) == (gpu.vendor == Vendor::nvidia));
    if (speed == nullptr) continue;
    ++known;
    CHECK(speed->memory > 0);
    CHECK(speed->fp32 > 0);
    CHECK(speed->link > 0);
    CHECK((speed->bf16 > 0) == (gpu.major >= 8));
    const Chip rates = rates_of(*speed).rates;
    for (const double rate : {rates.half.flops, rates.single.flops, rates.attention_64.flops, rates.attention_128.flops,
                              rates.elementwise, rates.reduction}) {
      CHECK(rate > 0.2);
      CHECK(rate < 1.2);
    }
  }
  CHECK(known == 49);
  CHECK(find_speed("") == nullptr);
}

TEST_CASE("A large product takes its FLOPs' time, a small one its launch", "[time]") {
  const KernelTime large =
      time_of("a100-80gb", of(Op::mm, WorkKind::gemm, DType::bfloat16, 6 * 8192 * 8192), square(8192));
  CHECK(large.is_measured);
  CHECK(large.is_compute_bound);
  // aiconfigurator's bin of M = N = K = 8192 on an A100: 0.77 to 0.79 of 312 TFLOP/s.
  CHECK(large.seconds == Catch::Approx(2.0 * 8192 * 8192 * 8192 / (0.78 * 312e12)).epsilon(0.05));
  CHECK(time_of("a100-80gb", of(Op::mm, WorkKind::gemm, DType::bfloat16, 96), square(4)).seconds < 10e-6);
  const KernelTime single = time_of("a100-80gb", of(Op::mm, WorkKind::gemm, DType::float32), square(8192));
  CHECK(single.seconds > 10 * large.seconds);
  CHECK_FALSE(time_of("a100-80gb", of(Op::matmul_4bit, WorkKind::gemm, DType::bfloat16), square(8192)).is_measured);
  CHECK_FALSE(time_of("a100-80gb-pcie", of(Op::mm, WorkKind::gemm, DType::bfloat16), square(8192)).is_measured);
}

TEST_CASE("A product whose rows are an odd number of elements apart is slow on Hopper", "[time]") {
  // BART's head: 8,192 tokens of 768, 50,265 words. Profiled on an H200: 6.7 ms, and 4.5 and 4.3 of its gradients.
  WorkProduct head{.m = 8192, .n = 50265, .k = 768, .flops = 2LL * 8192 * 50265 * 768, .counted = 0};
  const Work work = of(Op::mm, WorkKind::gemm, DType::bfloat16, 2LL * 8192 * 50265);
  CHECK(time_of("h200", work, head).seconds < 1.2e-3);
  head.odd_rows = OddRows::result;
  CHECK(time_of("h200", work, head).seconds == Catch::Approx(6.7e-3).epsilon(0.03));
  CHECK(time_of("h200", work, head).is_measured);
  head.odd_rows = OddRows::operands;
  CHECK(time_of("h200", work, head).seconds == Catch::Approx(4.4e-3).epsilon(0.03));
  CHECK_FALSE(time_of("a100-80gb", work, head).is_measured);
  const Work single = of(Op::mm, WorkKind::gemm, DType::float32);
  CHECK(time_of("h200", single, head).seconds ==
        time_of("h200", single, {.m = 8192, .n = 50265, .k = 768, .flops = head.flops}).seconds);
}

TEST_CASE("What computes nothing takes the time of its bytes", "[time]") {
  constexpr std::int64_t kGigabyte = 1'000'000'000;
  const double one = time_of("h100-80gb", of(Op::add, WorkKind::elementwise, DType::bfloat16, kGigabyte)).seconds;
  const double two = time_of("h100-80gb", of(Op::add, WorkKind::elementwise, DType::bfloat16, 2 * kGigabyte)).seconds;
  CHECK(one > 1.0 / 3350);
  CHECK(two / one == Catch::Approx(2).epsilon(0.02));
  CHECK(time_of("h100-80gb", of(Op::softmax, WorkKind::reduction, DType::bfloat16, kGigabyte)).seconds > one);
}

TEST_CASE("What PyTorch does not vectorize, and its optimizers, move less in a second", "[time]") {
  const auto seconds = [](Op op, WorkKind kind, std::int64_t read, std::int64_t written) {
    Work work = of(op, kind, DType::bfloat16, read);
    work.written = written;
    return time_of("h200", work).seconds;
  };
  // Qwen2-VL-2B's 2.209e9 parameters of 14 bytes took 12.0 ms on an H200 (tests/measured/time/profiles.jsonl).
  constexpr std::int64_t kParameters = 2'209'000'000;
  const double adam = seconds(Op::fused_adam, WorkKind::optimizer, 8 * kParameters, 6 * kParameters);
  CHECK(adam == Catch::Approx(12.0e-3).epsilon(0.02));
  // Of Qwen3-8B's norms in the same file 8,192 x 4,096 numbers are squared in 63 us (4.13 TB/s) and widened in 99
  // (2.04).
  constexpr std::int64_t kNumbers = 8192 * 4096;
  CHECK(seconds(Op::pow, WorkKind::elementwise, 4 * kNumbers, 4 * kNumbers) == Catch::Approx(65e-6).epsilon(0.05));
  const double row = seconds(Op::mul, WorkKind::elementwise, 4 * kNumbers + 4 * 8192, 4 * kNumbers);
  CHECK(row == Catch::Approx(160e-6).epsilon(0.05));
}

TEST_CASE("Rows of one index are added one after another", "[time]") {
  // GPT-OSS's biases of 32 experts: 16,384 rows of 5,760, of which 512 go to each.
  Work work = of(Op::index_put, WorkKind::index, DType::bfloat16);
  work.read = 16384 * 5760 * 2;
  work.written = 32 * 5760 * 2;
  CHECK(time_of("h200", work).seconds == Catch::Approx(530e-6).epsilon(0.02));
  work.written = work.read;
  CHECK(time_of("h200", work).seconds < 200e-6);
}

TEST_CASE("Torch's flash attention on an H100 is FlashAttention-2", "[time]") {
  const WorkProduct heads{.batch = 32, .m = 8192, .n = 8192, .k = 128, .flops = 1LL << 43, .counted = 1LL << 44};
  const Work work = of(Op::flash_attention, WorkKind::attention, DType::bfloat16);
  const double ampere = time_of("a100-80gb", work, heads).seconds, hopper = time_of("h100-80gb", work, heads).seconds;
  CHECK(ampere / hopper > 1.4);
  CHECK(ampere / hopper < 2.0);
  CHECK_FALSE(
      time_of("a100-80gb", of(Op::efficient_attention, WorkKind::attention, DType::bfloat16), heads).is_measured);
}

TEST_CASE("An all_reduce sends what an all_gather sends twice", "[time]") {
  const auto seconds = [](const char* gpu, Op op, std::int64_t ranks) {
    return time_of(gpu, of(op, WorkKind::communication, DType::bfloat16), {.n = ranks, .sent = 1 << 30}).seconds;
  };
  const double reduced = seconds("a100-80gb", Op::all_reduce, 8), gathered = seconds("a100-80gb", Op::all_gather, 8);
  CHECK(reduced > 1.5 * gathered);
  CHECK(reduced < 2.5 * gathered);
  CHECK(seconds("a100-80gb-pcie", Op::all_reduce, 8) > 10 * reduced);
}

TEST_CASE("Memory-efficient attention does not use what Hopper has for it", "[time]") {
  const WorkProduct heads{.batch = 96, .m = 512, .n = 512, .k = 64, .flops = 6442450944, .counted = 6442450944};
  const auto seconds = [&](const char* gpu, Op op) {
    return time_of(gpu, of(op, WorkKind::attention, DType::bfloat16), heads).seconds;
  };
  // T5's on an H200: tests/measured/time/profiles.jsonl
  CHECK(seconds("h200", Op::efficient_attention) == Catch::Approx(137e-6).epsilon(0.2));
  CHECK(seconds("h200", Op::cudnn_attention) < 70e-6);
}

TEST_CASE("What gather's backward adds it adds one by one", "[time]") {
  constexpr std::int64_t kElements = 16 * 12 * 512 * 512;
  const Work work = of(Op::gather, WorkKind::index, DType::bfloat16, 2 * kElements);
  CHECK(time_of("h200", work, {.n = kElements}).seconds == Catch::Approx(0.94e-3).epsilon(0.02));
}

}  // namespace
}  // namespace oometer
