#include "nn/gemm_4bit.h"

#include <catch2/catch_test_macros.hpp>

namespace oometer {
namespace {

constexpr Device kSm80{8, 0, 108}, kSm90{9, 0, 132}, kSm89{8, 9, 128}, kSm86{8, 6, 72}, kSm75{7, 5, 40},
    kSm100{10, 0, 148}, kSm120{12, 0, 170}, kSm70{7, 0, 80};

}  // namespace

// Each is what _gemm_4bit_use_custom_cuda answers (bitsandbytes 0.50.2); 400,000 random products were compared.
TEST_CASE("a product with few rows makes no copy of a weight in 4 bits", "[quantization]") {
  constexpr auto bf16 = DType::bfloat16;
  for (const Device& device : {kSm80, kSm90, kSm89, kSm86, kSm75, kSm100, kSm120, kSm70}) {
    CHECK(multiplies_in_4bit(device, bf16, 1, 4096, 4096));
    CHECK(multiplies_in_4bit(device, DType::float32, 4, 4096, 4096));
    CHECK_FALSE(multiplies_in_4bit(device, bf16, 1537, 4096, 4096));
    CHECK_FALSE(multiplies_in_4bit(device, bf16, 4, 4096, 4100));  // no whole blocks
  }
}

TEST_CASE("how many rows that may be depends on the GPU, the type and the shape", "[quantization]") {
  const auto most = [](const Device& device, DType dtype, std::int64_t n, std::int64_t k) {
    std::int64_t rows = 0;
    for (std::int64_t m = 1; m <= 2048; ++m)
      if (multiplies_in_4bit(device, dtype, m, n, k)) rows = m;
    return rows;
  };
  constexpr auto bf16 = DType::bfloat16, fp16 = DType::float16, fp32 = DType::float32;
  CHECK(most(kSm80, bf16, 14336, 4096) == 64);
  CHECK(most(kSm80, bf16, 704, 256) == 1536);
  CHECK(most(kSm90, bf16, 4096, 4096) == 7);
  CHECK(most(kSm90, bf16, 28672, 4096) == 64);
  CHECK(most(kSm89, bf16, 4096, 4096) == 8);
  CHECK(most(kSm89, bf16, 14336, 4096) == 128);
  CHECK(most(kSm86, bf16, 4096, 4096) == 64);
  CHECK(most(kSm75, fp16, 4096, 4096) == 64);
  CHECK(most(kSm75, bf16, 4096, 4096) == 7);
  CHECK(most(kSm100, bf16, 4096, 14336) == 4);
  CHECK(most(kSm120, bf16, 28672, 4096) == 128);
  CHECK(most(kSm70, fp16, 4096, 4096) == 7);
  CHECK(most(kSm80, fp32, 4096, 4096) == 7);
}

}  // namespace oometer
