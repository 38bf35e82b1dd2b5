#include "models/qwen3/qwen3.h"

#include "ops/ops.h"

namespace oometer {

void make_head_norms(LlamaAttention& self, const Builder& builder, const LlamaConfig& config,
                     const ModelOptions& options) {
  const auto make = [&](const char* name) {
    return LlamaRMSNorm(builder.child(name, config.names->rms_norm), config.head_dim, options.liger.rms_norm);
  };
  self.q_norm = make("q_norm");
  self.k_norm = make("k_norm");
}

AttentionInputs project_and_norm(const LlamaAttention& self, const Tensor& hidden_states) {
  const auto hidden_shape = [&](const Tensor& projected) {
    return view(projected, {projected.size(0), projected.size(1), projected.size(2) / self.head_dim, self.head_dim});
  };
  AttentionInputs states;
  states.query = transpose(self.q_norm(hidden_shape(self.q_proj(hidden_states))), 1, 2);
  states.key = transpose(self.k_norm(hidden_shape(self.k_proj(hidden_states))), 1, 2);
  states.value = heads_of(self.v_proj(hidden_states), self.head_dim);
  return states;
}

}  // namespace oometer
