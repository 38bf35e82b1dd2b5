#include "models/gemma4_text/per_layer_inputs.h"

#include "models/gemma4_text/attention.h"
#include "ops/ops.h"

namespace oometer {

Gemma4PerLayerTable::Gemma4PerLayerTable(const Builder& decoder, const Gemma4TextConfig& c, const char* embedding_class)
    : module_(decoder.module), layers_(c.num_hidden_layers), width_(c.hidden_size_per_layer_input) {
  const Builder embedding = decoder.child("embed_tokens_per_layer", embedding_class);
  embed_tokens_per_layer_ = Embedding(embedding, c.vocab_size_per_layer_input, layers_ * width_);
  embed_scale_ = embedding.buffer({}, embedding.dtype);
  per_layer_model_projection_ =
      Linear(decoder.child("per_layer_model_projection", "Linear"), c.hidden_size, layers_ * width_, false);
  per_layer_projection_norm_ = gemma4_norm(decoder, "per_layer_projection_norm", c, width_);
}

Tensor Gemma4PerLayerTable::look_up(const Tensor& input_ids) const {
  const Tensor embeddings = embed_tokens_per_layer_(input_ids, [this](Tensor& result) {
    const ModuleScope inner(result.context(), embed_tokens_per_layer_.module);
    const Tensor scale = to(embed_scale_, embed_tokens_per_layer_.weight.dtype());
    result = mul(result, scale);
  });
  return by_layer(embeddings);
}

Tensor Gemma4PerLayerTable::by_layer(const Tensor& x) const { return view(x, {x.size(0), x.size(1), layers_, width_}); }

}  // namespace oometer
