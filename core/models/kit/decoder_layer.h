#pragma once

#include <memory>

#include "nn/rows.h"
#include "tensor/tensor.h"

namespace oometer {

/// Keys and values that later layers of the same type take for their own (KVSharingDict, transformers 5.23,
/// cache_utils.py).
struct SharedKeyValues {
  struct States {
    Tensor key, value;
  };
  States full_attention, sliding_attention;

  States& of(bool slides) { return slides ? sliding_attention : full_attention; }
};

/// What a decoder gives each of its layers beside hidden states and a mask.
struct PositionEmbeddings {
  Tensor cos, sin;
  Tensor position_ids{};       ///< for layers that make their own (Behaviours::rotary), and for flash attention
  const Rows* rows = nullptr;  ///< what stands in them; null: each row is one document that fills it
  Tensor cu_seq_lens{};        ///< where documents begin, for flash attention
  Tensor padding_mask{};       ///< for layers that have attention and a mixer both (FalconH1DecoderLayer)
  Tensor alibi{};              ///< of each head and key, of a class that has it (build_alibi_tensor)
  Tensor per_layer_input{};    ///< [b, s, width] of PerLayerInputs; null: the class has none
  std::shared_ptr<Tensor> topk_indices{};  ///< where a layer leaves the tokens that it saw; null: none does
  Tensor prev_topk_indices{};              ///< of the layer before
  std::shared_ptr<SharedKeyValues> shared_kv_states{};  ///< null: no layer takes another's
};

/// One of a decoder's layers, of the family's own class.
class DecoderLayer {
 public:
  virtual ~DecoderLayer() = default;
  virtual Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                            const Tensor& attention_mask) const = 0;
};

}  // namespace oometer
