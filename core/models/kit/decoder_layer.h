#pragma once

#include "nn/rows.h"
#include "tensor/tensor.h"

namespace oometer {

struct PositionEmbeddings {
  Tensor cos, sin;
  Tensor position_ids{};       ///< for layers that make their own (Behaviours::rotary), and for flash attention
  const Rows* rows = nullptr;  ///< what stands in them; null: each row is one document that fills it
  Tensor cu_seq_lens{};        ///< where documents begin, for flash attention
};

/// One of a decoder's layers, of the family's own class.
class DecoderLayer {
 public:
  virtual ~DecoderLayer() = default;
  virtual Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                            const Tensor& attention_mask) const = 0;
};

}  // namespace oometer
