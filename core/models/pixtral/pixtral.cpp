#include "models/pixtral/pixtral.h"

#include <utility>

#include "models/kit/grids.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "ops/cub.h"
#include "ops/integers.h"
#include "ops/ops.h"

namespace oometer {

namespace {

LlamaConfig mlp_sizes(const PixtralVisionConfig& config) {
  LlamaConfig sizes;
  sizes.hidden_size = config.hidden_size;
  sizes.intermediate_size = config.intermediate_size;
  sizes.hidden_act = config.hidden_act;
  return sizes;
}

}  // namespace

PixtralAttention::PixtralAttention(const Builder& builder, const PixtralVisionConfig& config, AttentionKind attention)
    : head_dim(config.head_dim()), call{attention, false, config.attention_dropout}, module(builder.module) {
  const auto linear = [&](const char* name) {
    return Linear(builder.child(name, "Linear"), config.hidden_size, config.hidden_size, false);
  };
  k_proj = linear("k_proj");
  v_proj = linear("v_proj");
  q_proj = linear("q_proj");
  o_proj = linear("o_proj");
}

AttentionOutputs PixtralAttention::operator()(const Tensor& argument, const PatchesToAttend& patches,
                                              const PositionEmbeddings& positions) const {
  ModuleCall self(argument.context(), module);
  const Tensor hidden_states = self.argument(argument);
  AttentionOutputs attention;
  Tensor value_states, key_states, query_states;
  query_states = q_proj(hidden_states);
  key_states = k_proj(hidden_states);
  value_states = v_proj(hidden_states);
  for (Tensor* states : {&query_states, &key_states, &value_states}) *states = heads_of(*states, head_dim);
  {
    const Tensor cos = unsqueeze(positions.cos, 0), sin = unsqueeze(positions.sin, 0);
    Tensor q_embed = rotate(query_states, cos, sin), k_embed = rotate(key_states, cos, sin);
    query_states = std::move(q_embed);
    key_states = std::move(k_embed);
  }
  attention = patches.images.cu_seqlens
                  ? attend_within(call, query_states, key_states, value_states, patches.images)
                  : attention_forward(call, query_states, key_states, value_states, patches.attention_mask);
  attention.output = reshape(attention.output, {hidden_states.size(0), hidden_states.size(1), hidden_states.size(2)});
  attention.output = o_proj(attention.output);
  return {self.result(attention.output), attention.weights};
}

PixtralAttentionLayer::PixtralAttentionLayer(const Builder& builder, const PixtralVisionConfig& config,
                                             AttentionKind kind)
    : attention_norm(builder.child("attention_norm", "PixtralRMSNorm"), config.hidden_size),
      feed_forward(builder.child("feed_forward", "PixtralMLP"), mlp_sizes(config)),
      attention(builder.child("attention", "PixtralAttention"), config, kind),
      ffn_norm(builder.child("ffn_norm", "PixtralRMSNorm"), config.hidden_size),
      module(builder.module) {}

Tensor PixtralAttentionLayer::operator()(const Tensor& hidden_in, const PatchesToAttend& patches,
                                         const PositionEmbeddings& positions) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in, hidden_states = attention_norm(hidden_in);
  AttentionOutputs outputs = attention(hidden_states, patches, positions);
  hidden_states = std::move(outputs.output);  // the weights stay in `_` until the layer returns
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = ffn_norm(hidden_states);
  hidden_states = feed_forward(hidden_states);
  return add(residual, hidden_states);
}

PixtralVisionModel::PixtralVisionModel(const Builder& builder, const PixtralVisionConfig& config,
                                       const ModelOptions& options)
    : patch_conv(builder.child("patch_conv", "Conv2d"), config.num_channels, config.hidden_size, config.patch_size,
                 false),
      ln_pre(builder.child("ln_pre", "PixtralRMSNorm"), config.hidden_size),
      checkpointing(options.checkpointing),
      module(builder.module) {
  const Builder inner = builder.child("transformer", "PixtralTransformer");
  transformer = inner.module;
  stack = BlockStack(inner);
  for (std::int32_t i = 0; i < config.num_hidden_layers; ++i) {
    layers.emplace_back(inner.child("layers", "PixtralAttentionLayer", i), config, options.attention);
    stack.add_block(inner);
  }
  // PixtralVisionRotaryEmbedding.compute_axial_rope_parameters: those of a whole head, in another order
  LlamaConfig head;
  head.head_dim = config.head_dim();
  const Builder tables = builder.child("patch_positional_embedding", "PixtralVisionRotaryEmbedding");
  rotary = tables.module;
  LlamaRotaryEmbedding rotary_emb(tables, head);
  inv_freq = rotary_emb.inv_freq;
  original_inv_freq = rotary_emb.original_inv_freq;
}

namespace {

// PixtralVisionRotaryEmbedding.forward
PositionEmbeddings embed_positions(ModuleId module, const Tensor& inv_freq, const Tensor& position_ids, DType dtype) {
  Context& context = position_ids.context();
  ModuleCall call(context, module);
  const NoGrad no_grad(context);
  Tensor sin, cos;
  Tensor freqs = rotary_angles(position_ids, inv_freq);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  cos = of(Op::cos);
  sin = of(Op::sin);
  const auto recomposition_frequencies = [](const Tensor& freq) {
    const std::int64_t half = freq.size(-1) / 2;
    const Tensor freq_h = select(slice(freq, -1, 0, half), 1, 0), freq_w = select(slice(freq, -1, half, half), 1, 1);
    const Tensor freq_hw = cat({freq_h, freq_w}, -1);
    return cat({freq_hw, freq_hw}, -1);
  };
  cos = recomposition_frequencies(cos);
  sin = recomposition_frequencies(sin);
  const Tensor cos_like_x = to(cos, dtype), sin_like_x = to(sin, dtype);
  return {call.result(cos_like_x), call.result(sin_like_x)};
}

/// embed[..., :rows, :columns]; indexing passes over slices that take everything (python_variable_indexing.h,
/// applySlice).
Tensor without_padding(Tensor embed, std::int64_t rows, std::int64_t columns) {
  if (rows != embed.size(1)) embed = slice(embed, 1, 0, rows);
  if (columns != embed.size(2)) embed = slice(embed, 2, 0, columns);
  return embed;
}

// generate_block_attention_mask
Tensor block_attention_mask(const Tensor& tensor, std::int64_t images) {
  Context& context = tensor.context();
  const std::int64_t seq_len = tensor.size(1);
  const Tensor causal_mask = empty(context, Op::fill, {seq_len, seq_len}, tensor.dtype());
  for (std::int64_t image = 0; image < images; ++image)
    const Tensor zero = empty(context, Op::empty, {}, tensor.dtype());
  return expand(unsqueeze(unsqueeze(causal_mask, 0), 0), {tensor.size(0), 1, seq_len, seq_len});
}

/// cu_seqlens of a list of lengths on the host.
PatchSequences bounds_of_images(Context& context, std::vector<std::int64_t> patches) {
  PatchSequences sequences;
  sequences.lengths = std::move(patches);
  const std::int64_t images = std::ssize(sequences.lengths);
  const Tensor lengths = empty(context, Op::to_copy, {images + 1}, DType::int32);
  sequences.cu_seqlens = empty(context, Op::cumsum, {images + 1}, DType::int32);
  const Workspace scan(context, Op::cumsum, cub_scan_bytes(images + 1));
  return sequences;
}

}  // namespace

std::vector<std::int64_t> pixtral_patches(const DataConfig& data, std::int64_t patch_size) {
  return data.of_each_image(
      [&](const ImageShape& image) { return (image.image_height / patch_size) * (image.image_width / patch_size); });
}

Tensor PixtralVisionModel::operator()(const Tensor& pixel_values, const DataConfig& data) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, module);
  if (context.modules) context.modules->read(patch_conv.weight);  // `target_dtype`
  const std::int64_t images = pixel_values.size(0), patch_size = patch_conv.weight.size(3);
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  PatchesToAttend patches;
  Tensor wpos_ids, hpos_ids, position_ids;
  PositionEmbeddings positions;
  TensorList patch_embeds_list;
  Tensor patch_embeds;
  {
    const Tensor typed = to(pixel_values, patch_conv.weight.dtype());
    patch_embeds = patch_conv(typed);
  }
  require_input_grad(checkpointing, patch_embeds, patch_conv.module);
  const std::int64_t width = patch_embeds.size(1);
  patch_embeds_list = unbind(patch_embeds);
  for (std::int64_t i = 0; i < images; ++i) {
    const ImageShape& image = data.image(i);
    Tensor& embed = patch_embeds_list[static_cast<std::size_t>(i)];
    embed = without_padding(std::move(embed), image.image_height / patch_size, image.image_width / patch_size);
  }
  {
    TensorList flat;
    for (const Tensor& embed : patch_embeds_list)
      flat.push_back(transpose(reshape(embed, {width, embed.size(1) * embed.size(2)}), 0, 1));
    patch_embeds = unsqueeze(cat(flat, 0), 0);
  }
  patch_embeds = ln_pre(patch_embeds);
  {
    TensorList ids;
    for (const Tensor& patch : patch_embeds_list) {
      const std::int64_t h = patch.size(1), w = patch.size(2);
      Tensor rows = integers(context, Op::arange, {h}), columns = integers(context, Op::arange, {w});
      hpos_ids = rows;
      wpos_ids = columns;
      const Tensor flat_rows = integers(context, Op::clone, {h * w}),
                   flat_columns = integers(context, Op::clone, {h * w});
      ids.push_back(integers(context, Op::cat, {h * w, 2}));
    }
    position_ids = integers(context, Op::cat, {patch_embeds.size(1), 2});
  }
  positions = embed_positions(rotary, inv_freq, position_ids, patch_embeds.dtype());
  if (is_flash_attention(layers.front().attention.call.kind))
    patches.images = bounds_of_images(context, pixtral_patches(data, patch_size));
  else
    patches.attention_mask = block_attention_mask(patch_embeds, images);
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i], patches, positions](const Tensor& hidden) { return layer(hidden, patches, positions); };
  };
  Tensor last_hidden_state;
  {
    ModuleCall inner(context, transformer);
    last_hidden_state = stack.run(0, layers.size(), patch_embeds, checkpointing, block, {.positional = true});
    last_hidden_state = inner.result(last_hidden_state);
  }
  return call.result(last_hidden_state);
}

}  // namespace oometer
