#include "models/phi4_multimodal/vision.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "nn/checkpointing.h"
#include "nn/wrapped_call.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Phi4VisionEmbeddings::Phi4VisionEmbeddings(const Builder& builder, const ClipVisionConfig& c)
    : patch_embedding(builder.child("patch_embedding", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true),
      position_embedding(builder.child("position_embedding", "Embedding"), c.num_patches(), c.hidden_size),
      num_patches_per_side(c.image_size / c.patch_size),
      module(builder.module) {}

Tensor Phi4VisionEmbeddings::operator()(const Tensor& pixel_values, const Tensor& patch_attention_mask) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, module);
  const Tensor pixels = call.keyword(pixel_values);
  const std::int64_t batch = pixels.size(0), height = patch_attention_mask.size(1),
                     width = patch_attention_mask.size(2), patches = checked_product(height, width);
  Tensor patch_embeds = patch_embedding(pixels);
  require_input_grad(checkpointing, patch_embeds, patch_embedding.module);
  Tensor embeddings = transpose(view(patch_embeds, {batch, patch_embeds.size(1), patches}), 1, 2);
  const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
  // torch.arange(1 / side, 1.0, 1 / side) rounds once more than exact numbers would; it does not matter to a block.
  const Tensor boundaries = floats(Op::arange, {num_patches_per_side - 1});
  Tensor position_ids = integers(context, Op::fill, {batch, patches});
  const Tensor nb_patches_h = sum(select(patch_attention_mask, 2, 0), {1}, false),
               nb_patches_w = sum(select(patch_attention_mask, 1, 0), {1}, false);
  const auto inverse = [&] {  // 1.0 / x
    const Tensor reciprocal = floats(Op::reciprocal, {batch});
    return floats(Op::mul, {batch});
  };
  const Tensor step_h = inverse(), step_w = inverse();
  const Tensor h_indices = floats(Op::arange, {height}), w_indices = floats(Op::arange, {width});
  Tensor fractional_coords_h = floats(Op::mul, {batch, height}), fractional_coords_w = floats(Op::mul, {batch, width});
  fractional_coords_h = floats(Op::clamp, {batch, height});
  fractional_coords_w = floats(Op::clamp, {batch, width});
  const Tensor bucket_coords_h = integers(context, Op::empty, {batch, height}),
               bucket_coords_w = integers(context, Op::empty, {batch, width});
  Tensor pos_ids;
  {
    const Tensor scaled = integers(context, Op::mul, {batch, height, 1});
    pos_ids = integers(context, Op::add, {batch, height, width});
  }
  pos_ids = view(pos_ids, {batch, patches});
  position_ids = integers(context, Op::where, {batch, patches});
  {
    const Tensor positions = position_embedding(position_ids);
    embeddings = add(embeddings, positions);
  }
  return call.result(embeddings);
}

Phi4VisionModel::Phi4VisionModel(const Builder& builder, const ClipVisionConfig& c, const ModelOptions& options)
    : embeddings(builder.child("embeddings", c.family->embeddings), c),
      encoder(builder.child("encoder", c.family->encoder), vision_layers(c, options.attention), c.num_hidden_layers,
              options.checkpointing),
      post_layernorm(builder.child("post_layernorm", "LayerNorm"), c.hidden_size),
      head(builder.child("head", "Phi4MultimodalVisionMultiheadAttentionPoolingHead"),
           vision_layers(c, options.attention)),
      masked(masked_by(options.attention)),
      module(builder.module) {
  embeddings.checkpointing = options.checkpointing;
}

ClipVisionOutput Phi4VisionModel::operator()(const Tensor& pixels_in, Tensor patch_attention_mask, const Rows& rows,
                                             std::int64_t layer) const {
  Context& context = pixels_in.context();
  ModuleCall call(context, module);
  const Scoped<KvCache*> has_no_cache(context.past_key_values, nullptr);
  const Tensor pixel_values = call.argument(pixels_in);
  const std::int64_t batch = pixel_values.size(0);
  const Tensor hidden_states = embeddings(pixel_values, patch_attention_mask);
  patch_attention_mask = reshape(patch_attention_mask, {batch, hidden_states.size(1)});
  MaskArguments given;
  given.attention_mask = patch_attention_mask;
  given.rows = &rows;
  const Tensor attention_mask = create_bidirectional_mask(hidden_states, given, masked);
  ClipVisionOutput output;
  Tensor last_hidden_state = encoder(hidden_states, attention_mask, {layer}, output.hidden_states);
  const Tensor encoder_outputs = last_hidden_state;
  last_hidden_state = post_layernorm(last_hidden_state);
  output.pooler_output = wrapped_call(last_hidden_state, head.module, [&](const Tensor& states) {
    return head(states, nullptr, patch_attention_mask);
  });
  output.last_hidden_state = call.result(last_hidden_state);
  output.pooler_output = call.result(output.pooler_output);
  for (Tensor& tensor : output.hidden_states) tensor = call.result(tensor);
  return output;
}

Tensor positions_of_tokens(const Tensor& input_ids, std::int64_t tokens) {
  const NoGrad no_grad(input_ids.context());
  const Tensor is_such = pointwise(Op::eq, {&input_ids}, DType::boolean);
  return nonzero(is_such, tokens);
}

Tensor put_at_tokens(const Tensor& inputs_embeds, const Tensor& positions, const Tensor& values) {
  const Scoped<bool> without_autocast(inputs_embeds.context().autocast.enabled, false);
  Tensor copy = clone(inputs_embeds);
  return index_put_(std::move(copy), select(positions, 1, 0), select(positions, 1, 1), values);
}

Phi4ImageEmbedding::Phi4ImageEmbedding(const Builder& builder, const Phi4Config& c, const ModelOptions& options)
    : img_processor(builder.child("img_processor", c.vision.family->model), c.vision, options),
      img_projection_up(builder.child("img_projection_up", "Linear"), c.vision.hidden_size, c.text.hidden_size, true),
      img_projection_down(builder.child("img_projection_down", "Linear"), c.text.hidden_size, c.text.hidden_size, true),
      global_img_feature_extensor(builder.parameter("global_img_feature_extensor", {1, 1, c.vision.hidden_size})),
      sub_img_feature_extensor(builder.parameter("sub_img_feature_extensor", {1, 1, 1, c.vision.hidden_size})),
      layer_idx(c.feature_layer < 0 ? c.vision.num_hidden_layers + 1 + c.feature_layer : c.feature_layer),
      patches(c.patches()),
      drop(c.text.embedding_dropout),
      module(builder.module) {}

Tensor Phi4ImageEmbedding::get_img_features(const Tensor& img_embeds, const Tensor& attention_mask,
                                            const Phi4Images& images) const {
  Rows rows;
  rows.has_mask = true;
  const std::int64_t whole = patches * patches, crops = images.image_pixel_values.size(1);
  for (const Phi4Crops& its : images.cut) {
    rows.documents.push_back({whole});
    for (std::int64_t row = 0; row < its.rows; ++row)
      for (std::int64_t column = 0; column < its.columns; ++column)
        rows.documents.push_back({std::clamp<std::int64_t>(its.patch_rows - row * patches, 0, patches) *
                                  std::clamp<std::int64_t>(its.patch_columns - column * patches, 0, patches)});
    for (std::int64_t more = its.crops() + 1; more < crops; ++more) rows.documents.push_back({whole});
  }
  const ClipVisionOutput img_processor_output = img_processor(img_embeds, attention_mask, rows, layer_idx);
  const Tensor img_feature = img_processor_output.hidden_states.front();
  Tensor patch_feature = img_feature;
  const std::int64_t batch = patch_feature.size(0), hidden = patch_feature.size(2), half = patches / 2;
  patch_feature = permute(view(patch_feature, {batch, patches, patches, hidden}), {0, 3, 1, 2});
  patch_feature = avg_pool(patch_feature, {batch, hidden, half, half});
  return view(permute(patch_feature, {0, 2, 3, 1}), {batch, half * half, hidden});
}

namespace {

/// mask[..., 0::2, 0::2]
Tensor every_second(const Tensor& mask) {
  Shape sizes = mask.sizes(), strides = mask.strides();
  for (const int dim : {-2, -1}) {
    sizes[dim] = (sizes[dim] + 1) / 2;
    strides[dim] *= 2;
  }
  return make_view(mask, sizes, strides);
}

}  // namespace

Tensor Phi4ImageEmbedding::operator()(const Tensor& input_ids, const Tensor& inputs_embeds,
                                      const Phi4Images& images) const {
  Context& context = input_ids.context();
  ModuleCall call(context, module);
  const Tensor image_pixel_values =
      to(call.keyword(images.image_pixel_values), img_processor.embeddings.patch_embedding.weight.dtype());
  const Shape& given = image_pixel_values.sizes();
  const std::int64_t batch_size = given[0], crops = checked_product(given[0], given[1]);
  const Tensor& masks = images.image_attention_mask;
  Tensor img_features;
  {
    const Tensor mask = to(view(masks, {crops, masks.size(2), masks.size(3)}), DType::boolean);
    img_features = get_img_features(view(image_pixel_values, {crops, given[2], given[3], given[4]}), mask, images);
  }
  const std::int64_t base_feat_size = patches / 2, width = img_features.size(-1);
  img_features = view(img_features, {batch_size, given[1], base_feat_size * base_feat_size, width});
  const auto small = [&](Op op) { return integers(context, op, {}); };
  TensorList output_imgs;
  // Python's names, which outlive the loop
  Tensor height_ratio, width_ratio, area_ratio, global_img, temporary_extensor, sub_img, reshaped_image_attention_mask;
  for (std::int64_t idx = 0; idx < batch_size; ++idx) {
    const Phi4Crops& cut = images.cut[static_cast<std::size_t>(idx)];
    height_ratio = small(Op::floor_divide);
    width_ratio = small(Op::floor_divide);
    area_ratio = small(Op::mul);
    const Tensor of_image = select(img_features, 0, idx);
    global_img = slice(of_image, 0, 0, 1);
    global_img = contiguous(reshape(global_img, {1, base_feat_size, base_feat_size, width}));
    temporary_extensor = repeat(sub_img_feature_extensor, {1, base_feat_size, 1, 1});
    global_img = cat({global_img, temporary_extensor}, 2);
    global_img = reshape(global_img, {1, base_feat_size * (base_feat_size + 1), width});
    sub_img = slice(of_image, 0, 1, given[1] - 1);
    sub_img = slice(sub_img, 0, 0, cut.crops());
    const std::int64_t high = cut.rows * base_feat_size, wide = cut.columns * base_feat_size;
    sub_img = transpose(reshape(sub_img, {cut.rows, cut.columns, base_feat_size, base_feat_size, width}), 1, 2);
    {
      const Tensor rows = small(Op::mul), columns = small(Op::mul);
      sub_img = reshape(sub_img, {1, high, wide, width});
    }
    sub_img = contiguous(sub_img);
    {
      Tensor mask;
      {
        const Tensor end = small(Op::add);
        mask = every_second(slice(select(masks, 0, idx), 0, 1, cut.crops()));
      }
      mask = transpose(reshape(mask, {cut.rows, cut.columns, base_feat_size, base_feat_size}), 1, 2);
      const Tensor rows = small(Op::mul), columns = small(Op::mul);
      reshaped_image_attention_mask = reshape(mask, {1, high, wide});
    }
    for (int i = 0; i < 2; ++i) const Tensor useful = empty(context, Op::sum, {}, DType::float32);
    sub_img = slice(slice(sub_img, 1, 0, cut.useful_height), 2, 0, cut.useful_width);
    temporary_extensor = repeat(sub_img_feature_extensor, {1, cut.useful_height, 1, 1});
    sub_img = cat({sub_img, temporary_extensor}, 2);
    sub_img = reshape(sub_img, {1, checked_product(cut.useful_height, cut.useful_width + 1), width});
    output_imgs.push_back(cat({sub_img, global_img_feature_extensor, global_img}, 1));
  }
  TensorList img_set_tensor;
  Tensor img_feature_proj;
  std::int64_t tokens = 0;
  for (const Tensor& output_img : output_imgs) {
    img_feature_proj = img_projection_up(output_img);
    img_feature_proj = gelu(img_feature_proj);
    img_feature_proj = img_projection_down(img_feature_proj);
    img_set_tensor.push_back(img_feature_proj);
    tokens += output_img.size(1);
  }
  Tensor merged_img_set_tensor = cat({img_set_tensor.begin(), img_set_tensor.end()}, 1);
  merged_img_set_tensor = view(merged_img_set_tensor, {tokens, merged_img_set_tensor.size(2)});
  merged_img_set_tensor = to(merged_img_set_tensor, inputs_embeds.dtype());
  const Tensor positions_tuple = positions_of_tokens(input_ids, tokens);
  Tensor image_embeds = put_at_tokens(inputs_embeds, positions_tuple, merged_img_set_tensor);
  image_embeds = dropout(image_embeds, drop);
  return call.result(image_embeds);
}

}  // namespace oometer
