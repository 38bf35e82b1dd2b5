#include "models/idefics3/perceiver.h"

#include <utility>

#include "nn/activation.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

Idefics2MLP::Idefics2MLP(const Builder& builder, std::int64_t hidden_size, std::int64_t intermediate_size,
                         std::int64_t output_size, Activation hidden_act)
    : gate_proj(builder.child("gate_proj", "Linear"), hidden_size, intermediate_size, false),
      up_proj(builder.child("up_proj", "Linear"), hidden_size, intermediate_size, false),
      down_proj(builder.child("down_proj", "Linear"), intermediate_size, output_size, false),
      act_fn(hidden_act),
      module(builder.module) {}

Tensor Idefics2MLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor x = call.argument(argument);
  Tensor product;
  {
    Tensor gate = gate_proj(x);
    gate = activate(act_fn, gate);
    const Tensor up = up_proj(x);
    product = mul(gate, up);
  }
  return call.result(down_proj(product));
}

Idefics2PerceiverAttention::Idefics2PerceiverAttention(const Builder& builder, const Idefics3Config& c,
                                                       AttentionKind attention)
    : q_proj(builder.child("q_proj", "Linear"), c.text.hidden_size, c.perceiver.n_heads * c.perceiver.head_dim, false),
      k_proj(builder.child("k_proj", "Linear"), c.text.hidden_size,
             c.perceiver.num_key_value_heads * c.perceiver.head_dim, false),
      v_proj(builder.child("v_proj", "Linear"), c.text.hidden_size,
             c.perceiver.num_key_value_heads * c.perceiver.head_dim, false),
      o_proj(builder.child("o_proj", "Linear"), c.perceiver.n_heads * c.perceiver.head_dim, c.text.hidden_size, false),
      head_dim(c.perceiver.head_dim),
      call{attention, false, c.perceiver.attention_dropout},
      module(builder.module) {}

AttentionOutputs Idefics2PerceiverAttention::operator()(const Tensor& latents_in, const Tensor& context_in) const {
  ModuleCall self(latents_in.context(), module);
  const Tensor latents = self.keyword(latents_in), context = self.keyword(context_in);
  const Tensor hidden_states = cat({context, latents}, -2);
  Tensor queries = q_proj(latents), keys = k_proj(hidden_states), values = v_proj(hidden_states);
  for (Tensor* states : {&queries, &keys, &values}) *states = heads_of(*states, head_dim);
  AttentionOutputs attention = attention_forward(call, queries, keys, values, {});
  const Shape& sizes = attention.output.sizes();
  attention.output = reshape(attention.output, {sizes[0], sizes[1], checked_product(sizes[2], sizes[3])});
  attention.output = self.result(o_proj(attention.output));
  return attention;
}

Idefics2PerceiverLayer::Idefics2PerceiverLayer(const Builder& builder, const Idefics3Config& c, AttentionKind attention)
    : input_latents_norm(builder.child("input_latents_norm", "Idefics2RMSNorm"), c.text.hidden_size),
      input_context_norm(builder.child("input_context_norm", "Idefics2RMSNorm"), c.text.hidden_size),
      self_attn(builder.child("self_attn", "Idefics2PerceiverAttention"), c, attention),
      post_attention_layernorm(builder.child("post_attention_layernorm", "Idefics2RMSNorm"), c.text.hidden_size),
      mlp(builder.child("mlp", "Idefics2MLP"), c.text.hidden_size, 4 * c.text.hidden_size, c.text.hidden_size,
          c.perceiver.hidden_act),
      module(builder.module) {}

Tensor Idefics2PerceiverLayer::operator()(const Tensor& latents_in, const Tensor& context_in) const {
  ModuleCall call(latents_in.context(), module);
  Tensor residual = call.argument(latents_in);
  Tensor latents = input_latents_norm(residual);
  const Tensor context = input_context_norm(call.argument(context_in));
  AttentionOutputs attention = self_attn(latents, context);
  latents = std::move(attention.output);  // the weights stay in `_` until the layer returns
  latents = add(residual, latents);
  residual = latents;
  latents = post_attention_layernorm(latents);
  latents = mlp(latents);
  return call.result(add(residual, latents));
}

Idefics2PerceiverResampler::Idefics2PerceiverResampler(const Builder& builder, const Idefics3Config& c,
                                                       AttentionKind attention)
    : latents(builder.parameter("latents", {c.perceiver.n_latents, c.text.hidden_size})), module(builder.module) {
  layers.reserve(static_cast<std::size_t>(c.perceiver.depth));
  for (std::int32_t i = 0; i < c.perceiver.depth; ++i)
    layers.emplace_back(builder.child("layers", "Idefics2PerceiverLayer", i), c, attention);
  norm = LlamaRMSNorm(builder.child("norm", "Idefics2RMSNorm"), c.text.hidden_size);
}

Tensor Idefics2PerceiverResampler::operator()(const Tensor& context_in, const Tensor& attention_mask) const {
  Context& torch = context_in.context();
  ModuleCall call(torch, module);
  const Tensor context = call.keyword(context_in);
  if (torch.modules) torch.modules->read(latents);
  const std::int64_t images = context.size(0);
  const Tensor expanded = expand(unsqueeze(latents, 0), {images, latents.size(0), latents.size(1)});
  const Tensor latent_attention_mask = empty(torch, Op::ones_like, {images, latents.size(0)}, DType::boolean);
  {
    // create_bidirectional_mask: nothing is masked, which it looks for
    const Tensor joined =
        empty(torch, Op::cat, {images, attention_mask.size(1) + latents.size(0)}, attention_mask.dtype());
    const Tensor all = empty(torch, Op::all, {}, DType::boolean);
  }
  Tensor compressed_context = expanded;
  for (const Idefics2PerceiverLayer& perceiver_layer : layers)
    compressed_context = perceiver_layer(compressed_context, context);
  compressed_context = norm(compressed_context);
  return call.result(compressed_context);
}

Idefics2Connector::Idefics2Connector(const Builder& builder, const Idefics3Config& c, AttentionKind attention)
    : modality_projection(builder.child("modality_projection", "Idefics2MLP"), c.vision.hidden_size,
                          c.text.intermediate_size, c.text.hidden_size, c.text.hidden_act),
      perceiver_resampler(builder.child("perceiver_resampler", "Idefics2PerceiverResampler"), c, attention),
      module(builder.module) {}

Tensor Idefics2Connector::operator()(const Tensor& argument, const Tensor& attention_mask) const {
  ModuleCall call(argument.context(), module);
  Tensor image_hidden_states = modality_projection(call.argument(argument));
  image_hidden_states = perceiver_resampler(image_hidden_states, attention_mask);
  return call.result(image_hidden_states);
}

}  // namespace oometer
