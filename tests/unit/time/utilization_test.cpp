#include "time/utilization.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "process.h"
#include "tensor/op.h"

namespace oometer {
namespace {

Occupation of(const char* gpu, const Device& device, const Work& made, const WorkProduct& product = {}) {
  WorkLog log;
  log.products.push_back(product);
  Work work = made;
  work.product = 1;
  return Occupations(*find_speed(gpu), device).of(log, work, KernelTimes(*find_speed(gpu)).of(log, work).seconds);
}

Work elementwise(std::int64_t bytes) {
  return {.op = static_cast<OpId>(Op::relu), .kind = WorkKind::elementwise, .read = bytes, .written = bytes};
}

Work product_in(DType dtype) { return {.op = static_cast<OpId>(Op::mm), .kind = WorkKind::gemm, .dtype = dtype}; }

WorkProduct sized(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.batch = 1, .m = m, .n = n, .k = k, .flops = 2 * m * n * k, .counted = 2 * m * n * k};
}

TEST_CASE("An elementwise kernel has a block for 2 KiB", "[time]") {
  const Occupation one = of("a100-40gb", kA100, elementwise(4));
  CHECK(one.multiprocessors == Catch::Approx(1.0 / 108));
  CHECK(one.warps == Catch::Approx(4.0 / (108 * 64)));
  CHECK(of("a100-40gb", kA100, elementwise(54 * 2048)).multiprocessors == Catch::Approx(0.5));
  const Occupation large = of("a100-40gb", kA100, elementwise(1 << 30));
  CHECK(large.multiprocessors == 1);
  CHECK(large.warps == 1);
  CHECK(large.memory == Catch::Approx(0.865).epsilon(0.01));  // what elementwise kernels reach of an A100's
  CHECK(large.tensor_cores == 0);
}

TEST_CASE("A product is spread over tiles, and few warps share its multiprocessors", "[time]") {
  CHECK(of("a100-40gb", kA100, product_in(DType::float32), sized(64, 96, 4096)).multiprocessors ==
        Catch::Approx(6.0 / 108));
  const Occupation single = of("a100-40gb", kA100, product_in(DType::float32), sized(4096, 4096, 4096));
  CHECK(single.multiprocessors == 1);
  CHECK(single.warps == Catch::Approx(0.25));
  CHECK(single.tensor_cores == 0);
  const Occupation half = of("h100-80gb", Device{9, 0, 132}, product_in(DType::bfloat16), sized(8192, 8192, 8192));
  CHECK(half.tensor_cores == Catch::Approx(0.8).epsilon(0.03));
  CHECK(half.warps == Catch::Approx(12.0 / 64));
  CHECK(half.memory < 0.2);
  CHECK(of("p100-16gb", Device{6, 0, 56}, product_in(DType::float16), sized(512, 512, 512)).tensor_cores == 0);
}

TEST_CASE("An optimizer's chunks are of 65,536 elements of a tensor", "[time]") {
  const auto chunks = [](Op op, std::int64_t bytes) {
    return 108 * of("a100-40gb", kA100, {.op = static_cast<OpId>(op), .kind = WorkKind::optimizer, .written = bytes})
                     .multiprocessors;
  };
  CHECK(chunks(Op::foreach_add, 4 * 65'536 * 10) == Catch::Approx(10));
  CHECK(chunks(Op::fused_adam, 3 * 4 * 65'536 * 10) == Catch::Approx(10));
  CHECK(chunks(Op::foreach_add, 0) == Catch::Approx(1));
}

TEST_CASE("Collectives take few multiprocessors, over PCIe fewer", "[time]") {
  const Occupation nvlink = Occupations(*find_speed("a100-80gb"), kA100).of_communication();
  CHECK(nvlink.multiprocessors == Catch::Approx(24.0 / 108));
  CHECK(Occupations(*find_speed("a100-80gb-pcie"), kA100).of_communication().multiprocessors ==
        Catch::Approx(4.0 / 108));
}

TEST_CASE("A GPU that waits counts as active for a little of each kernel", "[time]") {
  CHECK(active_while_idle(0, 100) == 0);
  CHECK(active_while_idle(1, 100) == Catch::Approx(100 * 2.5e-6));
  CHECK(active_while_idle(1e-6, 100) == 1e-6);
}

}  // namespace
}  // namespace oometer
