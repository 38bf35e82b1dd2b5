#include "models/siglip/siglip.h"

#include "nn/checkpointing.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

SiglipVisionEmbeddings::SiglipVisionEmbeddings(const Builder& builder, const ClipVisionConfig& config)
    : patch_embedding(builder.child("patch_embedding", "Conv2d"), config.num_channels, config.hidden_size,
                      config.patch_size, true),
      position_embedding(builder.child("position_embedding", "Embedding"), config.num_positions(), config.hidden_size),
      position_ids(builder.buffer({1, config.num_positions()}, DType::int64)),
      module(builder.module) {}

Tensor SiglipVisionEmbeddings::operator()(const Tensor& pixel_values) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, module);
  if (context.modules) context.modules->read(patch_embedding.weight);  // `target_dtype`
  Tensor pixels = to(pixel_values, patch_embedding.weight.dtype());
  Tensor patch_embeds = patch_embedding(pixels);
  pixels.reset();
  require_input_grad(checkpointing, patch_embeds, patch_embedding.module);
  const Tensor embeddings = transpose(view(patch_embeds, {patch_embeds.size(0), patch_embeds.size(1),
                                                          checked_product(patch_embeds.size(2), patch_embeds.size(3))}),
                                      1, 2);
  const Tensor positions = position_embedding(position_ids);
  return call.result(add(embeddings, positions));
}

namespace {

// Tensor.repeat(batch, 1, 1)
Tensor repeat(const Tensor& x, std::int64_t batch) {
  Record record(Op::repeat, [](Backward& b) { b.give(0, sum_to(b.grad(), b.input_sizes(0))); }, {&x});
  return record.output(empty(x.context(), Op::repeat, {batch, x.size(1), x.size(2)}, x.dtype()));
}

}  // namespace

SiglipMultiheadAttentionPoolingHead::SiglipMultiheadAttentionPoolingHead(const Builder& builder,
                                                                         const ClipLayerConfig& config)
    : num_heads(config.num_attention_heads), module(builder.module) {
  const std::int64_t width = config.hidden_size;
  probe = builder.parameter("probe", {1, 1, width});
  const Builder inner = builder.child("attention", "MultiheadAttention");
  attention = inner.module;
  in_proj_weight = inner.parameter("in_proj_weight", {3 * width, width});
  in_proj_bias = inner.parameter("in_proj_bias", {3 * width});
  out_proj = Linear(inner.child("out_proj", "NonDynamicallyQuantizableLinear"), width, width, true);
  layernorm = LayerNorm(builder.child("layernorm", "LayerNorm"), width);
  mlp = ClipMLP(builder.child("mlp", config.family->mlp), config);
}

Tensor SiglipMultiheadAttentionPoolingHead::operator()(const Tensor& hidden_in,
                                                       const std::function<Tensor(const Tensor& probes)>& make_mask,
                                                       const Tensor& patches_mask) const {
  Context& context = hidden_in.context();
  ModuleCall call(context, module);
  const std::int64_t batch = hidden_in.size(0), width = hidden_in.size(2), head_dim = width / num_heads,
                     heads = checked_product(batch, num_heads);
  const Tensor probes = repeat(probe, batch), attention_mask = make_mask ? make_mask(probes) : Tensor();
  Tensor hidden_state;
  {
    // torch.nn.functional.multi_head_attention_forward with need_weights, its batch second
    const ModuleCall self(context, attention);
    Tensor is_padding, padding, attn_mask = attention_mask;
    if (patches_mask) {
      is_padding = empty(context, Op::bitwise_not, patches_mask.sizes(), DType::boolean);
      padding = empty(context, Op::zeros_like, patches_mask.sizes(), probes.dtype());
    }
    const Tensor key = transpose(hidden_in, 0, 1);
    Tensor projected, packed;
    {  // _in_projection_packed
      const TensorList weights = split(in_proj_weight, {width, 2 * width}, 0),
                       biases = split(in_proj_bias, {width, 2 * width}, 0);
      projected = linear(transpose(probes, 0, 1), weights[0], biases[0]);
      packed = linear(key, weights[1], biases[1]);
    }
    packed = view(packed, {key.size(0), batch, 2, width});
    packed = contiguous(permute(packed, {2, 0, 1, 3}));
    const auto by_head = [&](const Tensor& x) { return transpose(view(x, {x.size(0), heads, head_dim}), 0, 1); };
    const Tensor q = by_head(projected);
    Tensor k = by_head(select(packed, 0, 0)), v = by_head(select(packed, 0, 1));
    packed.reset();
    if (padding) {
      const std::int64_t length = key.size(0);
      attn_mask = expand(view(padding, {batch, 1, 1, length}), {batch, num_heads, 1, length});
      attn_mask = reshape(attn_mask, {heads, 1, length});
    }
    Tensor q_scaled = mul_scalar(q);
    Tensor weights;
    if (attn_mask)
      weights = baddbmm(attn_mask, q_scaled, transpose(k, 1, 2), false);
    else
      weights = bmm(autocast_lower(q_scaled), autocast_lower(transpose(k, 1, 2)));
    q_scaled.reset();  // del q_scaled, k
    k.reset();
    weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
    Tensor attn_output = bmm(autocast_lower(weights), autocast_lower(v));
    v.reset();
    attn_output = view(contiguous(transpose(attn_output, 0, 1)), {batch, width});
    if (context.modules) context.modules->read(out_proj.weight);
    attn_output = linear(attn_output, out_proj.weight, out_proj.bias);
    const Tensor averaged = mean(view(weights, {batch, num_heads, 1, key.size(0)}), 1, false);
    hidden_state = transpose(view(attn_output, {1, batch, width}), 0, 1);
  }
  const Tensor residual = hidden_state;
  hidden_state = layernorm(hidden_state);
  {
    const Tensor output = mlp(hidden_state);
    hidden_state = add(residual, output);
  }
  return call.result(select(hidden_state, 1, 0));
}

SiglipVisionModel::SiglipVisionModel(const Builder& builder, const ClipVisionConfig& config,
                                     const ModelOptions& options)
    : embeddings(builder.child("embeddings", config.family->embeddings), config),
      encoder(builder.child("encoder", config.family->encoder), vision_layers(config, options.attention),
              config.num_hidden_layers, options.checkpointing),
      post_layernorm(builder.child("post_layernorm", "LayerNorm"), config.hidden_size),
      use_head(config.has_head),
      module(builder.module) {
  if (use_head)
    head = SiglipMultiheadAttentionPoolingHead(builder.child("head", "SiglipMultiheadAttentionPoolingHead"),
                                               vision_layers(config, options.attention));
}

ClipVisionOutput SiglipVisionModel::operator()(const Tensor& pixel_values,
                                               const std::vector<std::int64_t>& wanted) const {
  ModuleCall call(pixel_values.context(), module);
  ClipVisionOutput output;
  const Tensor hidden_states = wrapped_call(pixel_values, embeddings.module, embeddings);
  const Tensor encoder_outputs = encoder(hidden_states, {}, wanted, output.hidden_states);  // until forward returns
  output.last_hidden_state = call.result(post_layernorm(encoder_outputs));
  if (use_head)
    output.pooler_output = call.result(
        wrapped_call(output.last_hidden_state, head.module, [&](const Tensor& states) { return head(states); }));
  for (Tensor& tensor : output.hidden_states) tensor = call.result(tensor);
  return output;
}

}  // namespace oometer
