#include "models/llava_next_video/llava_next_video.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include "models/clip/clip.h"
#include "models/kit/decoder.h"
#include "models/kit/image_text.h"
#include "models/llava/next.h"
#include "models/siglip/siglip.h"
#include "models/voxtral/voxtral.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling files'.
namespace oometer {

namespace {

// LlavaNextVideoPooler.forward
Tensor vision_resampler(const LlavaVideoConfig& config, const Tensor& image_features) {
  const std::int64_t batch_size = image_features.size(0), dim = image_features.size(2), side = config.patches_of_side(),
                     pooled = config.pooled_side();
  const Tensor image_features_spatial = permute(view(image_features, {batch_size, side, side, dim}), Shape{0, 3, 1, 2});
  const Shape sizes{batch_size, dim, pooled, pooled};
  const Tensor image_features_spatial_pool =
      config.takes_maximum ? max_pool(image_features_spatial, sizes) : avg_pool(image_features_spatial, sizes);
  return contiguous(transpose(view(image_features_spatial_pool, {batch_size, dim, pooled * pooled}), 1, 2));
}

// LlavaOnevisionModel.apply_pooling
Tensor apply_pooling(const LlavaVideoConfig& config, const Tensor& argument) {
  const std::int64_t batch_frames = argument.size(0), dim = argument.size(2), side = config.patches_of_side(),
                     pooled = config.pooled_side();
  Tensor image_features = view(argument, {batch_frames, side, side, dim});
  image_features = contiguous(permute(image_features, Shape{0, 3, 1, 2}));
  image_features = upsample_bilinear2d(image_features, pooled, pooled);
  image_features = permute(image_features, Shape{0, 2, 3, 1});
  return view(image_features, {batch_frames, pooled * pooled, dim});
}

class LlavaVideo final : public LanguageModel {
 public:
  LlavaVideo(Context& context, const LlavaVideoConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, config.of->class_name, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", config.of->model);
    model_ = model.module;
    const Builder tower = model.child("vision_tower", config.vision.family->model, Modality::vision);
    if (config.has_siglip())
      vision_tower_ = SiglipVisionModel(tower, config.vision, options);
    else
      vision_tower_ = ClipVisionModel(tower, config.vision, options);
    projector_ = VoxtralMultiModalProjector(
        model.child("multi_modal_projector", config.of->projector, Modality::projector), config.projector_input_size(),
        config.text.hidden_size, config.projector_bias, config.projector_hidden_act);
    model.children_are_through();
    {
      const Tensor random = empty(context, Op::empty, {config.text.hidden_size}, options.dtype);
      Builder newline = model;
      newline.modality = Modality::projector;
      image_newline_ = newline.parameter("image_newline", {config.text.hidden_size});
    }
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    std::visit(
        [&](auto& vision) {
          vision.embeddings.checkpointing = options.checkpointing;
          vision.embeddings.checkpointing.input_require_grads = false;
          language_model_.blocks.first_block = vision.encoder.layers.size();
        },
        vision_tower_);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    const ClipVisionConfig& v = config_.vision;
    std::int64_t tiles = data_.tiles;  // padded to the most (_pad_for_batching)
    for (const ImageShape& image : data_.sample_images) tiles = std::max(tiles, image.tiles);
    if (is_video()) tiles = data_.grid_t;
    batch.pixel_values =
        input({data_.images(), tiles, v.num_channels, v.image_size, v.image_size}, data_.pixel_dtype.value_or(dtype_));
  }

  TensorList encoded_images(const ModelInputs& batch) override {
    if (!batch.pixel_values) return {};
    ImageFeatures image = features_of(batch.pixel_values);
    TensorList outputs = std::move(image.pooler_output);
    for (Tensor& other : image.others) outputs.push_back(std::move(other));
    return outputs;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor image_hidden_states;
    const Tensor hidden_states = model_forward(inputs, image_hidden_states);
    ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    if (image_hidden_states) outputs.others.push_back(image_hidden_states);
    return outputs;
  }

 private:
  bool is_video() const { return data_.grid_t != 0; }

  void complete(ModelInputs& batch) override {
    make_images(batch, data_.images_per_sample);
    // What the processor gives beside them goes to the device with the batch.
    if (data_.pixel_dtype && data_.images() > 0 && !is_video())
      batch.image_grid_thw = input({data_.images(), 2});  // image_sizes
  }

  ImageFeatures features_of(const Tensor& pixel_values) const {
    return is_video() ? video_features(pixel_values) : image_features(pixel_values);
  }

  Tensor selected_features(const ClipVisionOutput& outputs) const {
    const Tensor hs_pool =
        config_.vision_feature_layer_is_list ? cat(outputs.hidden_states, -1) : outputs.hidden_states.front();
    return config_.vision_feature_select == FeatureSelect::without_class_token
               ? slice(hs_pool, 1, 1, hs_pool.size(1) - 1)
               : hs_pool;
  }

  ClipVisionOutput tower_outputs(const Tensor& pixel_values) const {
    return std::visit([&](const auto& vision) { return vision(pixel_values, config_.vision_feature_layers); },
                      vision_tower_);
  }

  static ImageFeatures outputs_of(ClipVisionOutput tower, TensorList pooler_output) {
    ImageFeatures features{std::move(pooler_output), std::move(tower.hidden_states)};
    features.others.push_back(std::move(tower.last_hidden_state));
    return features;
  }

  // get_image_features
  ImageFeatures image_features(const Tensor& tiles_of_images) const {
    Tensor feature_lens;  // goes last
    const ClipVisionConfig& v = config_.vision;
    // A cat of each image's own tiles.
    const Tensor pixel_values = empty(
        context_, Op::cat, {data_.all_tiles(), v.num_channels, v.image_size, v.image_size}, tiles_of_images.dtype());
    ClipVisionOutput image_outputs = tower_outputs(pixel_values);
    const Tensor selected = selected_features(image_outputs);
    TensorList image_features;
    {
      const Tensor projected = projector_(selected);
      image_features = split(projected, data_.of_each_image([](const ImageShape& image) { return image.tiles; }), 0);
    }
    TensorList packed = pack_image_features(config_, data_, image_features, image_newline_);
    feature_lens = empty(context_, Op::to_copy, {data_.images()}, DType::int64);
    image_features.clear();
    return outputs_of(std::move(image_outputs), std::move(packed));
  }

  // get_video_features
  ImageFeatures video_features(const Tensor& pixel_values_videos) const {
    const std::int64_t batch_size = data_.images(), frames = data_.grid_t;
    const Shape& sizes = pixel_values_videos.sizes();
    const Tensor pixel_values =
        view(pixel_values_videos, {checked_product(batch_size, frames), sizes[2], sizes[3], sizes[4]});
    ClipVisionOutput video_outputs = tower_outputs(pixel_values);
    const Tensor selected_video_features = selected_features(video_outputs);
    TensorList pooler_output;
    Tensor video_features;
    const std::int64_t tokens = checked_product(frames, config_.pooled_side() * config_.pooled_side()),
                       width = config_.text.hidden_size;
    if (config_.is_onevision()) {
      video_features = projector_(selected_video_features);
      video_features = apply_pooling(config_, video_features);
      video_features = reshape(video_features, {batch_size, tokens, width});
      const Tensor image_newline = repeat(unsqueeze(unsqueeze(image_newline_, 0), 0), Shape{batch_size, 1, 1});
      pooler_output.push_back(cat({video_features, image_newline}, 1));
    } else {
      video_features = vision_resampler(config_, selected_video_features);
      video_features = projector_(video_features);
      pooler_output.push_back(view(video_features, {batch_size, tokens, width}));
    }
    return outputs_of(std::move(video_outputs), std::move(pooler_output));
  }

  // get_placeholder_mask
  Tensor placeholder_masks(const Tensor& input_ids, Tensor& other) const {
    Tensor special_image_mask = pointwise(Op::eq, {&input_ids}, DType::boolean),
           special_video_mask = pointwise(Op::eq, {&input_ids}, DType::boolean);
    const auto check = [](const Tensor& tokens) {
      Tensor elements = mul_scalar(tokens);
      const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
      elements.reset();
    };
    const Tensor n_image_tokens = sum_all(special_image_mask);
    if (!is_video()) check(n_image_tokens);
    const Tensor n_video_tokens = sum_all(special_video_mask);
    if (is_video()) {
      check(n_video_tokens);
      std::swap(special_image_mask, special_video_mask);
    }
    other = std::move(special_video_mask);
    return unsqueeze(special_image_mask, -1);
  }

  // The model's forward
  Tensor model_forward(const ModelInputs& inputs, Tensor& image_hidden_states) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    ImageFeatures image;
    Tensor special_mask, other_mask, video_feature_lens;  // bound until forward returns
    if (has_images(inputs)) {
      if (inputs.images)
        for (std::int64_t i = 0; i < (is_video() ? 1 : data_.images()); ++i)
          image.pooler_output.push_back((*inputs.images)[static_cast<std::size_t>(i)]);
      else
        image = features_of(inputs.pixel_values);
      Tensor features;
      if (!is_video()) {
        features = cat(image.pooler_output, 0);
      } else if (config_.is_onevision()) {
        const Shape& sizes = image.pooler_output.front().sizes();
        features = view(image.pooler_output.front(), {checked_product(sizes[0], sizes[1]), sizes[2]});
      } else {
        features = cat_unbound(image.pooler_output.front());
        video_feature_lens = empty(context_, Op::to_copy, {data_.images()}, DType::int64);
      }
      features = to(features, inputs_embeds.dtype());
      special_mask = placeholder_masks(inputs.input_ids, other_mask);
      inputs_embeds = masked_scatter(inputs_embeds, special_mask, features);
      image_hidden_states = features;
    }
    return call.result(
        run_decoder(inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q}));
  }

  LlavaVideoConfig config_;
  std::variant<ClipVisionModel, SiglipVisionModel> vision_tower_;
  VoxtralMultiModalProjector projector_;
  Tensor image_newline_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_llava_video(Context& context, const LlavaVideoConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return std::make_unique<LlavaVideo>(context, config, data, options);
}

}  // namespace oometer
