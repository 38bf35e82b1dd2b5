#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "tensor/tensor.h"

namespace oometer {

/// Masks by layer_type: of layers that see all that came before, and of those with a window.
struct CausalMasks {
  Tensor full_attention, sliding_attention;

  const Tensor& of(bool slides) const { return slides ? sliding_attention : full_attention; }
  explicit operator bool() const { return full_attention || sliding_attention; }
};

/// transformers' Cache (5.23, cache_utils.py) as the layers of a model see it: Context::past_key_values.
class KvCache {
 public:
  virtual ~KvCache() = default;

  struct States {
    Tensor keys, values;
  };
  /// Cache.update: takes a layer's new keys and values [b, kv_heads, s, d]; gives all that its attention works on.
  virtual States update(std::size_t layer, const Tensor& keys, const Tensor& values) = 0;

  /// LinearAttentionLayer: what a layer keeps that has no keys and values. None before the first forward is over.
  struct LinearStates {
    Tensor conv;       ///< the last inputs of its convolution [b, channels, kernel]
    Tensor recurrent;  ///< [b, heads, key size, value size]
  };
  LinearStates& linear_states(std::size_t layer) { return linear_states_[layer]; }

  /// get_seq_length: tokens that were seen before this forward.
  virtual std::int64_t length() const = 0;
  /// The same of one layer, where a forward is under way.
  virtual std::int64_t length([[maybe_unused]] std::size_t layer) const { return length(); }
  /// get_mask_sizes: keys that `queries` new tokens will meet in layers with that window (0: those without).
  virtual std::int64_t mask_length(std::int64_t queries, std::int64_t sliding_window) const = 0;
  /// Some of what it holds may be padding, which the model's mask says.
  virtual bool takes_padding() const { return false; }
  /// is_compileable: of one size for good, so that generate() makes the masks itself.
  virtual bool is_compileable() const { return false; }

  /// Each key head of a layer has an entry of its own, `layer * kv_heads + head`, and is attended to by itself; masks
  /// are the kernel's (models/llama/headinfer.h).
  virtual bool is_by_head() const { return false; }

  /// generate() is past its prefill: experts run as batched_mm (GenerationMixin._optimize_model_for_decode).
  bool decodes = false;
  CausalMasks masks;  ///< the 4-D masks that generate() made for this forward, if it did

 private:
  std::map<std::size_t, LinearStates> linear_states_;
};

}  // namespace oometer
