#include "models/kit/post_norm_output.h"

#include "ops/ops.h"

namespace oometer {

PostNormOutput::PostNormOutput(const Builder& builder, std::int64_t in_features, std::int64_t hidden_size,
                               double its_dropout)
    : dense(builder.child("dense", "Linear"), in_features, hidden_size, true),
      layer_norm(builder.child("LayerNorm", "LayerNorm"), hidden_size),
      hidden_dropout_prob(its_dropout),
      module(builder.module) {}

Tensor PostNormOutput::operator()(const Tensor& hidden_in, const Tensor& input_in) const {
  ModuleCall call(hidden_in.context(), module);
  Tensor hidden_states = call.argument(hidden_in);
  const Tensor input_tensor = call.argument(input_in);
  hidden_states = dense(hidden_states);
  hidden_states = dropout(hidden_states, hidden_dropout_prob);
  const Tensor sum = add(hidden_states, input_tensor);
  return call.result(layer_norm(sum));
}

}  // namespace oometer
