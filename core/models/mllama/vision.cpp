#include "ops/vision.h"

#include <utility>

#include "models/mllama/mllama.h"
#include "nn/checkpointing.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"

/// The tower: MllamaVisionModel.
namespace oometer {

MllamaPrecomputedAspectRatioEmbedding::MllamaPrecomputedAspectRatioEmbedding(const Builder& builder,
                                                                             const MllamaVisionConfig& config)
    : embedding(builder.child("embedding", "Embedding"), config.max_aspect_ratio_id + 1,
                config.max_num_tiles * config.hidden_size),
      max_num_tiles(config.max_num_tiles),
      module(builder.module) {
  builder.children_are_through();
  gate = builder.parameter("gate", {1});
}

Tensor MllamaPrecomputedAspectRatioEmbedding::operator()(const Tensor& hidden_states,
                                                         const Tensor& aspect_ratio_ids) const {
  ModuleCall call(hidden_states.context(), module);
  const std::int64_t hidden_size = hidden_states.size(3);
  Tensor embeddings = embedding(aspect_ratio_ids);
  embeddings = reshape(embeddings, {embeddings.size(0), max_num_tiles, 1, hidden_size});
  {
    const Tensor opened = tanh(gate);
    embeddings = mul(embeddings, opened);
  }
  return call.result(add(call.argument(hidden_states), embeddings));
}

MllamaPrecomputedPositionEmbedding::MllamaPrecomputedPositionEmbedding(const Builder& builder,
                                                                       const MllamaVisionConfig& config)
    : max_num_tiles(config.max_num_tiles), module(builder.module) {
  const std::int64_t patches = config.num_patches();
  gate = builder.parameter("gate", {1});
  const Tensor position_embedding =
      empty(*builder.context, Op::randn, {patches, config.hidden_size}, builder.dtype);  // a name of __init__
  embedding = builder.parameter("embedding", {patches, config.hidden_size});
  tile_embedding = Embedding(builder.child("tile_embedding", "Embedding"), config.max_aspect_ratio_id + 1,
                             max_num_tiles * patches * config.hidden_size);
}

Tensor MllamaPrecomputedPositionEmbedding::operator()(const Tensor& argument, const Tensor& aspect_ratio_ids) const {
  ModuleCall call(argument.context(), module);
  const std::int64_t patches = argument.size(2), hidden_size = argument.size(3);
  Tensor hidden_states = call.argument(argument), gated_position_embedding;
  {
    Tensor closed = tanh(gate);
    closed = neg(closed);  // 1 - x: the same memory, forward and backward
    gated_position_embedding = mul(closed, embedding);
  }
  hidden_states = add(hidden_states, view(gated_position_embedding, {1, 1, patches, hidden_size}));
  Tensor tile_position_embedding = tile_embedding(aspect_ratio_ids);
  tile_position_embedding =
      reshape(tile_position_embedding, {hidden_states.size(0), max_num_tiles, patches, hidden_size});
  Tensor gated_tile_position_embedding;
  {
    const Tensor opened = tanh(gate);
    gated_tile_position_embedding = mul(opened, tile_position_embedding);
  }
  hidden_states = add(hidden_states, gated_tile_position_embedding);
  return call.result(hidden_states);
}

MllamaVisionEncoderLayer::MllamaVisionEncoderLayer(const Builder& builder, const MllamaVisionConfig& config,
                                                   bool is_gated, AttentionKind attention)
    : call{attention, false}, head_dim(config.hidden_size / config.attention_heads), module(builder.module) {
  const std::int64_t width = config.hidden_size;
  const Builder attn = builder.child("self_attn", "MllamaVisionAttention");
  self_attn = attn.module;
  const auto projection = [&](const char* name) { return Linear(attn.child(name, "Linear"), width, width, false); };
  q_proj = projection("q_proj");
  k_proj = projection("k_proj");
  v_proj = projection("v_proj");
  o_proj = projection("o_proj");
  ClipLayerConfig sizes;
  sizes.hidden_size = width;
  sizes.intermediate_size = config.intermediate_size;
  sizes.hidden_act = config.hidden_act;
  mlp = ClipMLP(builder.child("mlp", "MllamaVisionMLP"), sizes);
  input_layernorm = LayerNorm(builder.child("input_layernorm", "LayerNorm"), width);
  post_attention_layernorm = LayerNorm(builder.child("post_attention_layernorm", "LayerNorm"), width);
  if (!is_gated) return;
  builder.children_are_through();
  const auto gate = [&](const char* name) {  // torch.ones(1) * math.pi / 4
    Tensor ones = empty(*builder.context, Op::ones_like, {1}, builder.dtype);
    ones = empty(*builder.context, Op::mul, {1}, builder.dtype);
    return builder.parameter(name, {1});
  };
  gate_attn = gate("gate_attn");
  gate_ffn = gate("gate_ffn");
}

Tensor MllamaVisionEncoderLayer::operator()(const Tensor& hidden_in, const Tensor& attention_mask) const {
  Context& context = hidden_in.context();
  const ModuleScope scope(context, module);
  const auto open = [](const Tensor& gate, Tensor& hidden_states) {
    if (!gate) return;
    const Tensor opened = tanh(gate);
    hidden_states = mul(opened, hidden_states);
  };
  Tensor hidden_states = input_layernorm(hidden_in);
  AttentionOutputs attention;
  {
    ModuleCall self(context, self_attn);
    const Tensor states = self.keyword(hidden_states);
    const AttentionInputs its = project(states, q_proj, k_proj, v_proj, head_dim, true);
    attention = attention_forward(call, its.query, its.key, its.value, attention_mask);
    attention.output = reshape(attention.output, {states.size(0), states.size(1), states.size(2)});
    attention.output = self.result(o_proj(attention.output));
  }
  hidden_states = std::move(attention.output);
  open(gate_attn, hidden_states);
  hidden_states = add(hidden_in, hidden_states);
  const Tensor residual = hidden_states;
  hidden_states = post_attention_layernorm(hidden_states);
  hidden_states = mlp(hidden_states);
  open(gate_ffn, hidden_states);
  return add(residual, hidden_states);
}

MllamaVisionEncoder::MllamaVisionEncoder(const Builder& builder, const MllamaVisionConfig& config,
                                         std::int64_t num_layers, bool is_gated, AttentionKind attention)
    : blocks(builder), module(builder.module) {
  for (std::int32_t i = 0; i < num_layers; ++i) {
    layers.emplace_back(builder.child("layers", "MllamaVisionEncoderLayer", i), config, is_gated, attention);
    blocks.add_block(builder);
  }
}

TensorList MllamaVisionEncoder::operator()(const Tensor& hidden_in, const Tensor& attention_mask) const {
  ModuleCall call(hidden_in.context(), module);
  TensorList encoder_states;
  Tensor hidden_states = call.argument(hidden_in);
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i], &attention_mask](const Tensor& hidden) { return layer(hidden, attention_mask); };
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    hidden_states = blocks.run(i, i + 1, std::move(hidden_states), {}, block);
    encoder_states.push_back(hidden_states);
  }
  for (Tensor& state : encoder_states) state = call.result(state);
  return encoder_states;
}

MllamaVisionModel::MllamaVisionModel(const Builder& builder, const MllamaVisionConfig& its_config,
                                     const ModelOptions& options)
    : config(its_config), dtype(options.dtype), checkpointing(options.checkpointing), module(builder.module) {
  const std::int64_t width = config.hidden_size;
  patch_embedding =
      Conv2d(builder.child("patch_embedding", "Conv2d"), config.num_channels, width, config.patch_size, false);
  builder.children_are_through();
  {
    const Tensor random = empty(*builder.context, Op::randn, {width}, builder.dtype);
    class_embedding = builder.parameter("class_embedding", {width});
  }
  gated_positional_embedding = MllamaPrecomputedPositionEmbedding(
      builder.child("gated_positional_embedding", "MllamaPrecomputedPositionEmbedding"), config);
  const auto of_tiles = [&](const char* name) {
    return MllamaPrecomputedAspectRatioEmbedding(builder.child(name, "MllamaPrecomputedAspectRatioEmbedding"), config);
  };
  pre_tile_positional_embedding = of_tiles("pre_tile_positional_embedding");
  post_tile_positional_embedding = of_tiles("post_tile_positional_embedding");
  layernorm_pre = LayerNorm(builder.child("layernorm_pre", "LayerNorm"), width);
  layernorm_post = LayerNorm(builder.child("layernorm_post", "LayerNorm"), width);
  const auto encoder = [&](const char* name, std::int64_t layers, bool is_gated) {
    return MllamaVisionEncoder(builder.child(name, "MllamaVisionEncoder"), config, layers, is_gated, options.attention);
  };
  transformer = encoder("transformer", config.num_hidden_layers, false);
  global_transformer = encoder("global_transformer", config.num_global_layers, true);
}

namespace {

// _prepare_aspect_ratio_attention_mask, of [images, tiles]: patches that are padding see one another alone.
Tensor aspect_ratio_attention_mask(const Tensor& aspect_ratio_mask, std::int64_t target_length, DType dtype) {
  const std::int64_t batch_size = aspect_ratio_mask.size(0), tiles = aspect_ratio_mask.size(1);
  Tensor attention_mask = to(view(aspect_ratio_mask, {batch_size, tiles, 1, 1}), dtype);
  attention_mask = repeat(attention_mask, {1, 1, target_length, 1});
  attention_mask = neg(attention_mask);  // 1 - x
  attention_mask = reshape(attention_mask, {batch_size, tiles * target_length, 1});
  {
    Tensor products = matmul(attention_mask, transpose(attention_mask, -1, -2));
    Tensor scaled = mul_scalar(products);
    products.reset();
    attention_mask = std::move(scaled);
  }
  return unsqueeze(attention_mask, 1);
}

}  // namespace

Tensor MllamaVisionModel::operator()(const Tensor& pixels_in, const Tensor& ids_in, const Tensor& mask_in) const {
  Context& context = pixels_in.context();
  ModuleCall call(context, module);
  const std::int64_t batch_size = pixels_in.size(0), media = pixels_in.size(1), num_tiles = pixels_in.size(2),
                     images = checked_product(batch_size, media), tiles = checked_product(images, num_tiles),
                     dim = config.hidden_size, num_patches = config.num_patches(), padded = config.padded_patches();
  const Tensor pixel_values =
      reshape(call.keyword(pixels_in), {tiles, pixels_in.size(3), pixels_in.size(4), pixels_in.size(5)});
  const Tensor aspect_ratio_ids = reshape(ids_in, {images, 1});
  if (context.modules) context.modules->read(patch_embedding.weight);  // `target_dtype`
  Tensor patch_embeds;
  {
    const Tensor typed = to(pixel_values, patch_embedding.weight.dtype());
    patch_embeds = patch_embedding(typed);
  }
  require_input_grad(checkpointing, patch_embeds, patch_embedding.module);
  Tensor hidden_states = transpose(view(patch_embeds, {tiles, dim, num_patches - 1}), 1, 2);
  // Tile embeddings
  hidden_states = reshape(hidden_states, {images, num_tiles, num_patches - 1, dim});
  hidden_states = pre_tile_positional_embedding(hidden_states, aspect_ratio_ids);
  // Add cls token
  hidden_states = reshape(hidden_states, {tiles, num_patches - 1, dim});
  hidden_states = cat({expand(class_embedding, {tiles, 1, dim}), hidden_states}, 1);
  // Position embeddings
  hidden_states = reshape(hidden_states, {images, num_tiles, num_patches, dim});
  hidden_states = gated_positional_embedding(hidden_states, aspect_ratio_ids);
  hidden_states = layernorm_pre(hidden_states);
  hidden_states = pad(hidden_states, 2, padded - num_patches);
  // Prepare attention mask
  const Tensor attention_mask = aspect_ratio_attention_mask(reshape(mask_in, {images, num_tiles}), padded, dtype);
  // Apply encoder
  hidden_states = view(hidden_states, {images, num_tiles * padded, dim});
  const TensorList output = transformer(hidden_states, attention_mask);
  hidden_states = output.back();
  hidden_states = layernorm_post(hidden_states);
  // Apply global encoder
  hidden_states = reshape(hidden_states, {images, num_tiles, padded, dim});
  hidden_states = post_tile_positional_embedding(hidden_states, aspect_ratio_ids);
  hidden_states = reshape(hidden_states, {images, num_tiles * padded, dim});
  const TensorList global_output = global_transformer(hidden_states, attention_mask);
  hidden_states = global_output.back();
  // Remove padding from hidden state
  const auto without_padding = [&](const Tensor& states, std::int64_t width) {
    const Tensor by_tile = reshape(states, {images, num_tiles, padded, width});
    return reshape(slice(by_tile, 2, 0, num_patches), {batch_size, media, num_tiles, num_patches, width});
  };
  hidden_states = without_padding(hidden_states, dim);
  // Collect intermediate layer outputs from encoder output
  TensorList all_intermediate_hidden_states;
  for (const std::int64_t i : config.intermediate_layers_indices)
    all_intermediate_hidden_states.push_back(
        output[static_cast<std::size_t>(i < 0 ? i + config.num_hidden_layers : i)]);
  Tensor intermediate_hidden_states = stack(all_intermediate_hidden_states, 3);
  intermediate_hidden_states = without_padding(intermediate_hidden_states, config.output_dim() - dim);
  // Concatenate final hidden state and intermediate hidden states
  hidden_states = cat({hidden_states, intermediate_hidden_states}, -1);
  return call.result(hidden_states);
}

}  // namespace oometer
