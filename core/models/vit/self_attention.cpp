#include "models/vit/self_attention.h"

#include "models/bert/bert.h"
#include "ops/ops.h"

namespace oometer {

VitSelfAttention::VitSelfAttention(const Builder& builder, const VitConfig& c, const ModelOptions& options,
                                   bool key_bias)
    : query(builder.child("query", "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias),
      key(builder.child("key", "Linear"), c.hidden_size, c.hidden_size, key_bias),
      value(builder.child("value", "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias),
      head_dim(c.head_dim()),
      call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
      module(builder.module) {}

AttentionOutputs VitSelfAttention::operator()(const Tensor& argument) const {
  ModuleCall self(argument.context(), module);
  const Tensor hidden_states = self.argument(argument);
  AttentionInputs states;
  states.key = heads_of(key(hidden_states), head_dim);
  states.value = heads_of(value(hidden_states), head_dim);
  states.query = heads_of(query(hidden_states), head_dim);
  AttentionOutputs attention = call.kind == AttentionKind::eager
                                   ? eager_in_own_type(call, states, {})
                                   : attention_forward(call, states.query, states.key, states.value, {});
  attention.output = self.result(reshape(attention.output, hidden_states.sizes()));
  return attention;
}

}  // namespace oometer
