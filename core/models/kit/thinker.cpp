#include "models/kit/thinker.h"

#include <string>
#include <vector>

#include "config/reader.h"
#include "ops/integers.h"

namespace oometer {

namespace {

struct PlaceholderMasks {
  Tensor image, video, audio;
};

// get_placeholder_mask. `counts`: of images' features.
PlaceholderMasks placeholder_masks(const Tensor& input_ids, bool counts) {
  PlaceholderMasks masks;
  for (Tensor* mask : {&masks.image, &masks.video, &masks.audio})
    *mask = pointwise(Op::eq, {&input_ids}, DType::boolean);
  Tensor n_video_tokens;
  const Tensor n_image_tokens = sum_all(masks.image);
  if (counts) {
    Tensor elements = mul_scalar(n_image_tokens);
    const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
    elements.reset();
  }
  n_video_tokens = sum_all(masks.video);
  for (Tensor* mask : {&masks.image, &masks.video, &masks.audio}) *mask = unsqueeze(*mask, -1);
  return masks;
}

}  // namespace

void ThinkerModel::set_towers(ThinkerParts parts) {
  parts_ = std::move(parts);
  const std::size_t heard = parts_.audio_tower->block_stack().size();
  parts_.visual->block_stack().first_block = heard;
  language_model_.blocks.first_block = heard + parts_.visual->block_stack().size();
}

void ThinkerModel::complete(ModelInputs& batch) {
  GridLanguageModel::complete(batch);
  batch.mm_token_type_ids = {};  // its processor gives none
  if (data_.audios() == 0) return;
  const std::int64_t frames = parts_.frames(data_.audio_seconds);
  batch.input_features = input({data_.audios(), parts_.num_mel_bins, frames}, data_.pixel_dtype.value_or(dtype_));
  batch.pixel_attention_mask = input({data_.audios(), frames}, DType::int32);  // feature_attention_mask
}

ModelOutputs ThinkerModel::forward(const ModelInputs& inputs) {
  const Tensor hidden_states = thinker_forward(inputs);
  ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
  if (const auto& add_auxiliary_loss = language_model_.parts.add_auxiliary_loss)
    add_auxiliary_loss(outputs, inputs, inputs.labels && loss_function->replaces_forward());
  return outputs;
}

// get_rope_index of a batch without images, whose tokens the attention_mask counts
Tensor ThinkerModel::count_positions(const ModelInputs& inputs) {
  if (has_images(inputs))
    refusal =
        Error{"not-modelled", "/data/images_per_sample",
              "found images in a batch with an attention_mask, whose positions are not supported yet: expected 0"};
  const Shape& tokens = inputs.attention_mask.sizes();
  const Shape rows{tokens[0], 1};
  const auto made = [&](Op op, const Shape& sizes) { return empty(context_, op, sizes, parts_.positions); };
  Tensor position_ids, max_position_ids;
  {
    const Tensor attended = to(inputs.attention_mask, parts_.positions);
    const Tensor counted = made(Op::cumsum, tokens);
    position_ids = made(Op::sub, tokens);
  }
  { const Tensor is_padding = empty(context_, Op::eq, tokens, DType::boolean); }
  {
    const Tensor values = made(Op::max, tokens);
    { const Tensor indices = integers(context_, Op::max, tokens); }
    max_position_ids = made(Op::max, rows);
    const Tensor indices = integers(context_, Op::max, rows);
  }
  {
    const Tensor next = made(Op::add, rows), counts = integers(context_, Op::sum, rows);
    mrope_position_deltas_ = made(Op::sub, rows);
  }
  return expand(unsqueeze(position_ids, 0), {3, tokens[0], tokens[1]});
}

// Qwen2_5OmniThinkerModel.forward, Qwen3OmniMoeThinkerModel.forward
Tensor ThinkerModel::thinker_forward(const ModelInputs& inputs) {
  ModuleCall call(context_, model_);
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor position_ids = inputs.position_ids;
  Deepstack deepstack;
  Tensor audio_feature_lengths, image_mask, image_embeds;
  GridOutputs image_outputs;
  Tensor unused, audio_mask, audio_features;  // `_`
  Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
  if (inputs.input_features) {
    audio_features = parts_.audio_tower->features(inputs.input_features, inputs.pixel_attention_mask, data_);
    audio_features = to(audio_features, inputs_embeds.dtype());
    {
      PlaceholderMasks masks = placeholder_masks(inputs.input_ids, false);
      unused = std::move(masks.video);
      audio_mask = std::move(masks.audio);
    }
    inputs_embeds = masked_scatter(inputs_embeds, audio_mask, audio_features);
  }
  if (has_images(inputs)) {
    image_outputs = image_features(inputs.pixel_values);
    // The tuple of each image's features becomes one tensor again, and so do those of the deepstack.
    const std::vector<std::int64_t> of_images = data_.tokens_of_each_image();
    const TensorList pieces = split(image_outputs.pooler_output, of_images, 0);
    List<TensorList> deeper;
    for (const Tensor& features : image_outputs.deepstack_features) deeper.push_back(split(features, of_images, 0));
    image_embeds = cat(pieces, 0);
    image_embeds = to(image_embeds, inputs_embeds.dtype());
    {
      PlaceholderMasks masks = placeholder_masks(inputs.input_ids, true);
      image_mask = std::move(masks.image);
      unused = std::move(masks.audio);
    }
    inputs_embeds = masked_scatter(inputs_embeds, image_mask, image_embeds);
    if (!deeper.empty()) deepstack.visual_pos_masks = select(image_mask, -1, 0);
    for (const TensorList& features : deeper) deepstack.visual_embeds.push_back(cat(features, 0));
  }
  if (inputs.input_features) audio_feature_lengths = frames_of_audios(inputs.pixel_attention_mask);
  if (position_ids)
    position_ids = frame_row_column(position_ids);
  else
    position_ids = inputs.attention_mask ? count_positions(inputs) : compute_3d_position_ids(inputs);
  Tensor hidden_states = run_decoder(inputs_embeds, {position_ids, inputs.attention_mask, inputs.rows}, &deepstack);
  inputs_embeds.reset();
  audio_features.reset();
  audio_mask.reset();
  image_outputs = {};
  image_embeds.reset();
  return call.result(hidden_states);
}

ModelTraits thinker_traits(const char* class_name, const LlamaConfig& text, bool ties_embeddings) {
  ModelTraits t = vision_language_traits(class_name, text, ties_embeddings);
  t.set_parts("visual", "", "language_model");
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "video", "min_pixels", "max_pixels"};
  t.max_audios = 64;
  t.usual_audio_seconds = 30;
  t.default_sequence_length = 2048;
  t.oldest_transformers = {5, 23, 0};
  for (const Feature feature : {Feature::zero3, Feature::fsdp, Feature::headinfer, Feature::quantized_cache,
                                Feature::inference, Feature::flash_attention, Feature::turn_images,
                                Feature::image_preferences, Feature::pretrain, Feature::finetune})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

void check_width(ConfigReader& tower, const char* key, std::int64_t width, const LlamaConfig& text) {
  if (width != text.hidden_size)
    tower.fail_found(key, "inconsistent",
                     "expected the language model's hidden size (" + std::to_string(text.hidden_size) + ")");
}

void check_one_frame(ConfigReader& reader, const DataConfig& data) {
  if (data.grid_t > 1)
    reader.fail_found(reader.has("video") ? "video" : "grid_thw", "not-modelled",
                      "videos of this model are not supported yet: expected one frame");
}

}  // namespace oometer
