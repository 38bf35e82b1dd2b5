#include "models/kit/layer_norm_layer.h"

#include "models/kit/text_family.h"

namespace oometer {

std::unique_ptr<TextLayer> layer_norm_layer(const Builder& builder, const TextConfig& config,
                                            const ModelOptions& options, const char* up, const char* down) {
  const LlamaClassNames& names = *config.names;
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, names.rms_norm), torch_layer_norm, {config.hidden_size}, true);
  };
  layer->self_attn = TextAttention(builder.child("self_attn", names.attention), config, options);
  layer->mlp = PlainMLP(builder.child("mlp", names.mlp), config, up, down, config.mlp_bias);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

}  // namespace oometer
