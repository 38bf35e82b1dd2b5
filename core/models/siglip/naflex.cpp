#include "models/siglip/naflex.h"

#include "models/cross_mask.h"
#include "models/kit/patch_projection.h"
#include "nn/checkpointing.h"
#include "nn/wrapped_call.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Siglip2VisionEmbeddings::Siglip2VisionEmbeddings(const Builder& builder, const ClipVisionConfig& c,
                                                 std::int64_t num_positions)
    : patch_embedding(builder.child("patch_embedding", "Linear"), c.num_channels * c.patch_size * c.patch_size,
                      c.hidden_size, true),
      position_embedding(builder.child("position_embedding", "Embedding"), num_positions, c.hidden_size),
      module(builder.module) {
  while ((side + 1) * (side + 1) <= num_positions) ++side;
}

Tensor Siglip2VisionEmbeddings::resize_positional_embeddings(Tensor positional_embeddings,
                                                             const std::vector<Cells>& spatial_shapes,
                                                             std::int64_t max_length) {
  const std::int64_t embed_dim = positional_embeddings.size(2);
  Tensor resulted =
      empty(positional_embeddings.context(), Op::empty,
            {static_cast<std::int64_t>(spatial_shapes.size()), max_length, embed_dim}, positional_embeddings.dtype());
  positional_embeddings = unsqueeze(permute(positional_embeddings, {2, 0, 1}), 0);
  Tensor resized_embeddings;
  for (const auto& [height, width] : spatial_shapes) {
    {
      Tensor stretched =
          pool(Op::upsample, Op::upsample_backward, positional_embeddings, {1, embed_dim, height, width}, false);
      { const Workspace in_usual_order(resulted.context(), Op::clone, positional_embeddings.nbytes()); }
      resized_embeddings = std::move(stretched);
    }
    resized_embeddings = transpose(reshape(resized_embeddings, {embed_dim, height * width}), 0, 1);
    resulted = copy_into(std::move(resulted), resized_embeddings);
    const Tensor first = select(resized_embeddings, 0, 0);
    resulted = copy_into(std::move(resulted), expand(unsqueeze(first, 0), {max_length - height * width, embed_dim}));
  }
  return resulted;
}

Tensor Siglip2VisionEmbeddings::operator()(const Tensor& argument, const std::vector<Cells>& spatial_shapes) const {
  ModuleCall call(argument.context(), module);
  const Tensor pixel_values = call.argument(argument);
  Tensor patch_embeds;
  {
    const Tensor pixels = to(pixel_values, patch_embedding.weight.dtype());
    patch_embeds = project_patches(patch_embedding, pixels, checkpointing);
  }
  const Tensor& weight = position_embedding.weight;
  if (argument.context().modules) argument.context().modules->read(weight);
  const Tensor positional_embeddings = view(weight, {side, side, weight.size(1)});
  const Tensor resized = resize_positional_embeddings(positional_embeddings, spatial_shapes, pixel_values.size(1));
  return call.result(add(patch_embeds, resized));
}

Siglip2VisionModel::Siglip2VisionModel(const Builder& builder, const ClipVisionConfig& c, std::int64_t num_positions,
                                       const ModelOptions& options)
    : embeddings(builder.child("embeddings", c.family->embeddings), c, num_positions),
      encoder(builder.child("encoder", c.family->encoder), vision_layers(c, options.attention), c.num_hidden_layers,
              options.checkpointing),
      post_layernorm(builder.child("post_layernorm", "LayerNorm"), c.hidden_size),
      use_head(c.has_head),
      masked(masked_by(options.attention)),
      module(builder.module) {
  embeddings.checkpointing = options.checkpointing;
  if (use_head)
    head = SiglipMultiheadAttentionPoolingHead(builder.child("head", "Siglip2MultiheadAttentionPoolingHead"),
                                               vision_layers(c, options.attention));
}

namespace {

/// What Siglip2MultiheadAttentionPoolingHead makes of the patches' mask.
Tensor pooling_mask(const Tensor& probes, const Tensor& hidden_state, const MaskArguments& given, MaskedBy masked,
                    std::int64_t num_heads) {
  Tensor attention_mask = create_cross_mask(probes, hidden_state, given, masked);
  if (!attention_mask) return {};
  const std::int64_t batch = probes.size(0), source_len = hidden_state.size(1);
  attention_mask = repeat(attention_mask, {1, num_heads, 1, 1});
  attention_mask = view(attention_mask, {batch * num_heads, 1, source_len});
  if (attention_mask.dtype() != DType::boolean) return attention_mask;
  const Tensor zero = empty(probes.context(), Op::fill, {}, probes.dtype());
  const Tensor minimum = empty(probes.context(), Op::to_copy, {}, probes.dtype());
  return where(attention_mask, zero, minimum);
}

}  // namespace

ClipVisionOutput Siglip2VisionModel::operator()(const Tensor& pixel_values, const Tensor& pixel_attention_mask,
                                                const std::vector<Cells>& spatial_shapes) const {
  ModuleCall call(pixel_values.context(), module);
  const Tensor hidden_states = wrapped_call(pixel_values, embeddings.module,
                                            [&](const Tensor& pixels) { return embeddings(pixels, spatial_shapes); });
  Rows rows;
  rows.has_mask = true;
  for (const auto& [height, width] : spatial_shapes) rows.documents.push_back({height * width});
  MaskArguments given;
  given.attention_mask = pixel_attention_mask;
  given.rows = &rows;
  const Tensor encoder_attention_mask = create_bidirectional_mask(hidden_states, given, masked);
  TensorList none;
  ClipVisionOutput output;
  Tensor last_hidden_state = encoder(hidden_states, encoder_attention_mask, {}, none);
  const Tensor encoder_outputs = last_hidden_state;
  last_hidden_state = post_layernorm(last_hidden_state);
  output.last_hidden_state = call.result(last_hidden_state);
  if (use_head) {
    const auto forward = [&](const Tensor& states) {
      return head(states,
                  [&](const Tensor& probes) { return pooling_mask(probes, states, given, masked, head.num_heads); });
    };
    output.pooler_output = call.result(wrapped_call(output.last_hidden_state, head.module, forward));
  }
  return output;
}

}  // namespace oometer
