#include "train/objectives/label_smoother.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "process.h"

namespace oometer {
namespace {

TEST_CASE("Label smoothing makes log-probabilities of all classes twice, and keeps one", "[train]") {
  Process p;
  const Tensor logits = p.input({2, 8, 1024}, DType::float32, true), labels = p.input({2, 8}, DType::int64);
  p.mark();
  const Tensor loss = smoothed_loss(logits, labels, false, {});
  CHECK(loss.numel() == 1);
  const Bytes made = p.allocations();
  constexpr std::int64_t kAll = 2 * 8 * 1024 * 4;
  CHECK(std::count(made.begin(), made.end(), kAll) == 2);  // log_softmax, and its negative for gather's sizes
}

TEST_CASE("A causal model's labels are shifted, which copies the logits", "[train]") {
  Process p;
  const Tensor logits = p.input({2, 8, 1024}, DType::float32, true), labels = p.input({2, 8}, DType::int64);
  p.mark();
  const Tensor loss = smoothed_loss(logits, labels, true, {});
  const Bytes made = p.allocations();
  constexpr std::int64_t kShorter = 2 * 7 * 1024 * 4;
  CHECK(std::count(made.begin(), made.end(), kShorter) == 3);
}

}  // namespace
}  // namespace oometer
