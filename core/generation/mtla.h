#pragma once

#include <vector>

#include "generation/cache.h"

namespace oometer {

/// MTLA's cache (arXiv 2505.13544; github.com/D-Keqi/mtla at 498b1d3, mtla/mtla_hf/modeling_mtla.py,
/// TemporalLatentCache): one entry for `stride` tokens, to whose latent each of them is added; ceil(n / stride) in all.
class TemporalCache : public GrowingCache {
 public:
  TemporalCache(Context& context, std::int64_t stride) : GrowingCache({}), context_(context), stride_(stride) {}

  /// `latents` [b, tokens, kv_lora_rank] and `positions` [b, tokens, qk_rope_head_dim]: a prompt's, of which every
  /// stride-th and the last one are kept, or one token's.
  States update(std::size_t layer, const Tensor& latents, const Tensor& positions) override;
  std::int64_t length() const override { return length(0); }
  std::int64_t length(std::size_t layer) const override { return layer < layers_.size() ? layers_[layer].tokens : 0; }
  void grow(std::int64_t tokens) override;

 private:
  struct Layer {
    States states;
    std::int64_t tokens = 0;
    ModuleId module = 0;
  };

  void extend(Layer& layer);
  Tensor entries(const Tensor& like, std::int64_t tokens, Op op);

  Context& context_;
  std::int64_t stride_;
  List<Layer> layers_;
};

}  // namespace oometer
