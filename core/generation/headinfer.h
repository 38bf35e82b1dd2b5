#pragma once

#include <vector>

#include "generation/cache.h"

namespace oometer {

/// HeadInfer's cache (arXiv 2502.12574; github.com/wdlctc/headinfer at b57e449, headinfer/cache.py, OffloadedCache): an
/// entry for each key head of each layer. While one head's attention runs, the one before it goes to host memory and
/// the next one comes, on streams of their own.
class HeadCache : public GrowingCache {
 public:
  explicit HeadCache(Context& context) : GrowingCache({}), context_(context) {}

  States update(std::size_t entry, const Tensor& keys, const Tensor& values) override;
  std::int64_t length() const override { return heads_.empty() ? 0 : heads_[0].sizes[2]; }
  bool is_by_head() const override { return true; }
  void grow(std::int64_t tokens) override;
  std::int64_t host_bytes() const override;

 private:
  struct Head {
    States device;  ///< null: it lies in host memory
    Shape sizes;    ///< [b, 1, tokens, d], of keys and of values
    DType dtype = DType::float32;
    ModuleId module = 0;
  };

  void take(std::size_t entry);
  void evict_before(std::size_t entry);
  void append(Head& head, std::int64_t tokens);
  Tensor states(const Head& head, Op op);

  Context& context_;
  List<Head> heads_;
};

}  // namespace oometer
