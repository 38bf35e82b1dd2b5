#include "models/kit/packed_images.h"

#include <string>
#include <utility>

#include "config/reader.h"
#include "nn/activation.h"
#include "ops/integers.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

std::int64_t read_square_positions(ConfigReader& reader, std::int64_t usual) {
  constexpr Range kPatchRange{1, 1 << 16};
  const std::int64_t side = reader.integer("pos_emb_height", usual, kPatchRange);
  if (reader.integer("pos_emb_width", usual, kPatchRange) != side)
    reader.fail_found("pos_emb_width", "inconsistent",
                      "the class takes positions for a square: expected pos_emb_height (" + std::to_string(side) + ")");
  return side;
}

PackedVisionMLP::PackedVisionMLP(const Builder& builder, const PackedVisionConfig& c)
    : fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
      fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
      act(c.hidden_act),
      module(builder.module) {}

Tensor PackedVisionMLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor x = fc1(call.argument(argument));
  x = activate(act, x);
  return call.result(fc2(x));
}

PackedVisionLayer::PackedVisionLayer(const Builder& builder, const PackedVisionConfig& c, AttentionKind attention)
    : norm1(builder.child("norm1", "LayerNorm"), c.hidden_size),
      norm2(builder.child("norm2", "LayerNorm"), c.hidden_size),
      attn(PatchAttention::apart(builder.child("attn", c.attention), c.hidden_size, c.num_attention_heads, attention,
                                 c.finds_longest)),
      mlp(builder.child("mlp", c.mlp), c),
      module(builder.module) {}

PackedImageModel::PackedImageModel(Context& context, const char* class_name, const DataConfig& data,
                                   const ModelOptions& options)
    : LanguageModel(context, class_name, Modality::none, data, options) {
  accepts_loss_kwargs = false;
}

void PackedImageModel::make_images(ModelInputs& batch, std::int64_t images_per_sample) {
  data_.images_per_sample = images_per_sample;
  if (data_.images() == 0) return;
  batch.pixel_values = input(pixel_sizes(), data_.pixel_dtype.value_or(dtype_));
  batch.image_grid_thw = input({data_.images(), 3});
}

TensorList PackedImageModel::encoded_images(const ModelInputs& batch) {
  if (!batch.pixel_values) return {};
  GridOutputs outputs = get_image_features(batch.pixel_values);
  return {std::move(outputs.pooler_output), std::move(outputs.last_hidden_state)};
}

GridOutputs PackedImageModel::get_image_features(const Tensor& pixel_values) const {
  GridOutputs outputs = image_features(pixel_values);
  const Tensor patches = integers(context_, Op::mul, {data_.images()});
  const Tensor split_sizes = integers(context_, Op::floor_divide, {data_.images()});
  return outputs;
}

ModelOutputs PackedImageModel::forward(const ModelInputs& inputs) {
  Tensor features;
  const Tensor hidden_states = model_forward(inputs, features);
  ModelOutputs outputs =
      causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function, language_model_.parts.logits);
  if (features) outputs.others.push_back(features);
  return outputs;
}

// Kimi_K25Model.forward
Tensor PackedImageModel::model_forward(const ModelInputs& inputs, Tensor& features) const {
  ModuleCall call(context_, model_);
  const Shape& tokens = inputs.input_ids.sizes();
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor other_mask, image_mask, image_embeds;
  TensorList pieces;
  GridOutputs image_outputs;
  Tensor position_ids = inputs.position_ids, inputs_embeds, llm_input_ids, multimodal_mask;
  if (masks_images()) {
    const Tensor images = empty(context_, Op::eq, tokens, DType::boolean),
                 videos = empty(context_, Op::eq, tokens, DType::boolean);
    multimodal_mask = empty(context_, Op::bitwise_or, tokens, DType::boolean);
  }
  if (masks_images()) llm_input_ids = integers(context_, Op::clone, tokens);
  inputs_embeds = embed_tokens(masks_images() ? llm_input_ids : inputs.input_ids);
  if (has_images(inputs)) {
    if (inputs.images)
      image_outputs = {(*inputs.images)[1], inputs.images->front(), {}};
    else
      image_outputs = get_image_features(inputs.pixel_values);
    pieces = split(image_outputs.pooler_output, data_.tokens_of_each_image(), 0);
    image_outputs.pooler_output.reset();
    image_embeds = cat(pieces, 0);
    image_embeds = to(image_embeds, inputs_embeds.dtype());
    if (gives_features()) features = image_embeds;
    image_mask = grid_placeholder_mask(inputs.input_ids, other_mask, false);
    inputs_embeds = masked_scatter(inputs_embeds, image_mask, image_embeds);
  }
  if (!position_ids && makes_positions()) position_ids = language_model_.positions(context_, inputs_embeds.size(1));
  return call.result(
      run_decoder(inputs_embeds, {position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}));
}

}  // namespace oometer
