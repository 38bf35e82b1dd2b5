#include "nn/flash_attention.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "jobs.h"

namespace oometer {
namespace {

/// What the operator allocates in its first call, in order.
std::vector<std::int64_t> first_call(const Log& log, const std::string& op, std::size_t count) {
  std::vector<std::int64_t> bytes;
  for (const Event& event : log.events) {
    if (event.kind != EventKind::alloc || log.ops[event.op] != op) continue;
    if (bytes.size() < count) bytes.push_back(log.storages[event.storage].bytes);
  }
  return bytes;
}

/// A Llama of four heads of 16, two of keys, in bfloat16.
Log llama_with(const std::string& attention, const std::string& data) {
  return run_log(tiny_llama(kInBf16 + R"(, "attention": ")" + attention + '"', "", data));
}

using SavedBytes = std::vector<std::int64_t>;

TEST_CASE("A full batch runs through flash-attn as it is", "[nn]") {
  const Log log = llama_with("flash_attention_2", R"("micro_batch_size": 2, "sequence_length": 64)");
  // output, logsumexp, the generator's state
  CHECK(first_call(log, "flash_attn", 3) == SavedBytes{2 * 64 * 64 * 2, 2 * 4 * 64 * 4, 16});
  // gradients, softmax_d and dQ of 128 rows in heads of 32, keys and values of every query head
  CHECK(first_call(log, "flash_attn_backward", 7) == SavedBytes{2 * 64 * 64 * 2, 2 * 64 * 32 * 2, 2 * 64 * 32 * 2,
                                                                2 * 4 * 128 * 4, 2 * 128 * 4 * 32 * 4, 2 * 64 * 64 * 2,
                                                                2 * 64 * 64 * 2});
}

TEST_CASE("Padding is taken out for flash-attn and put back", "[nn]") {
  const Log log = llama_with("flash_attention_2", R"("lengths": {"batches": [[64, 20]]})");
  CHECK(first_call(log, "flash_attn", 3) == SavedBytes{84 * 64 * 2, 4 * 84 * 4, 16});
  const std::int64_t rows = 84 + 2 * 128;
  CHECK(first_call(log, "flash_attn_backward", 5) ==
        SavedBytes{84 * 64 * 2, 84 * 32 * 2, 84 * 32 * 2, 4 * rows * 4, rows * 4 * 32 * 4});
  const Log full = llama_with("flash_attention_2", R"("lengths": {"batches": [[64, 64]]})");
  CHECK(first_call(full, "flash_attn", 2) == SavedBytes{2 * 64 * 64 * 2, 2 * 4 * 64 * 4});
}

TEST_CASE("Documents of a single row are sequences of their own to flash-attn", "[nn]") {
  const Log log = llama_with("flash_attention_2", R"("packed": [[40, 20, 4]])");
  const std::int64_t rows = 64 + 3 * 128;
  CHECK(first_call(log, "flash_attn_backward", 4) == SavedBytes{64 * 64 * 2, 64 * 32 * 2, 64 * 32 * 2, 4 * rows * 4});
  // Several rows are not told apart (_is_packed_sequence).
  const Log two = llama_with("flash_attention_2", R"("packed": [[40, 24], [64]], "micro_batch_size": 2)");
  CHECK(first_call(two, "flash_attn_backward", 4).back() == 2 * 4 * 128 * 4);
}

TEST_CASE("flash-attn 3 sums gradients of grouped keys in float32", "[nn]") {
  const Log log = llama_with("flash_attention_3", R"("micro_batch_size": 2, "sequence_length": 64)");
  CHECK(first_call(log, "flash_attn", 3) == SavedBytes{2 * 64 * 64 * 2, 2 * 4 * 64 * 4, 4});
  // softmax_d and its logarithm of 128 rows, dQ, dK, dV in heads of 64, a semaphore
  CHECK(first_call(log, "flash_attn_backward", 9) == SavedBytes{2 * 64 * 64 * 2, 2 * 64 * 32 * 2, 2 * 64 * 32 * 2,
                                                                4 * 256 * 4, 4 * 256 * 4, 4 * 256 * 64 * 4,
                                                                2 * 256 * 64 * 4, 2 * 256 * 64 * 4, 1 * 2 * 4 * 4});
}

TEST_CASE("flash-attn multiplies tokens of the same document only", "[nn]") {
  const auto flops = [](const std::string& attention, const std::string& data) {
    std::vector<std::int64_t> of_kernels;
    const WorkLog log = llama_with(attention, data).work;
    for (const Work& work : log.works)
      if (work.kind == WorkKind::attention && of_kernels.size() < 1) of_kernels.push_back(log.product(work).flops);
    return of_kernels.empty() ? 0 : of_kernels[0];
  };
  const std::string full = R"("micro_batch_size": 1, "sequence_length": 64)";
  CHECK(flops("flash_attention_2", full) == flops("sdpa-flash", full));
  const std::int64_t of_a_pair = 2 * 4 * 2 * 16;  // multiply and add, heads, both products, head_dim
  CHECK(flops("flash_attention_2", full) == of_a_pair * 64 * 64 / 2);
  CHECK(flops("flash_attention_2", R"("packed": [[40, 20, 4]])") == of_a_pair * (40 * 40 + 20 * 20 + 4 * 4) / 2);
  CHECK(flops("flash_attention_3", R"("lengths": {"batches": [[64, 20]]})") == of_a_pair * (64 * 64 + 20 * 20) / 2);
}

TEST_CASE("Kernels that are not modelled are refused by name", "[nn]") {
  for (const char* const name : {"flash_attention_4", "flex_attention", "kernels-community/vllm-flash-attn3"}) {
    const Result<Job> job = parse_job(tiny_llama(kInBf16 + R"(, "attention": ")" + name + '"'));
    REQUIRE_FALSE(job);
    CHECK(job.error().pointer == "/training/attention");
    CHECK(job.error().code == "not-modelled");
  }
  const Result<Job> in_fp32 = parse_job(tiny_llama(kInFp32 + R"(, "attention": "flash_attention_2")"));
  REQUIRE_FALSE(in_fp32);
  CHECK(in_fp32.error().message.find("half precision") != std::string::npos);
}

}  // namespace
}  // namespace oometer
