#include "models/aya_vision/aya_vision.h"

#include <utility>

#include "models/cohere2/cohere2.h"
#include "models/kit/image_text.h"
#include "models/siglip/siglip.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling files'.
namespace oometer {

namespace {

struct AyaVisionMultiModalProjector {
  AyaVisionMultiModalProjector() = default;
  AyaVisionMultiModalProjector(const Builder& builder, const AyaVisionConfig& config)
      : downsample_factor(config.downsample_factor), normalises(config.of->is_aya), module(builder.module) {
    const std::int64_t wide = config.wide(), between = config.alignment_intermediate_size;
    if (normalises) layernorm = LayerNorm(builder.child("layernorm", "LayerNorm"), wide);
    linear_1 = Linear(builder.child("linear_1", "Linear"), wide, between, true);
    linear_2 = Linear(builder.child("linear_2", "Linear"), between / 2, config.text.hidden_size, true);
  }

  Tensor operator()(const Tensor& argument, std::int64_t side) const {
    ModuleCall call(argument.context(), module);
    Tensor image_features = pixel_shuffle(call.argument(argument), side);
    if (normalises) image_features = layernorm(image_features);
    Tensor hidden_states = linear_1(image_features);
    // Split along last dimension and apply SwiGLU
    const std::int64_t half = hidden_states.size(-1) / 2;
    const TensorList halves = split(hidden_states, {half, half}, -1);
    {
      const Tensor activated = silu(halves[1]);
      hidden_states = mul(activated, halves[0]);
    }
    return call.result(linear_2(hidden_states));
  }

  Tensor pixel_shuffle(const Tensor& given, std::int64_t side) const {
    const std::int64_t batch_size = given.size(0), fewer = side / downsample_factor,
                       channels = given.size(2) * downsample_factor;
    Tensor image_features = reshape(given, {batch_size, side, side, given.size(2)});
    image_features = reshape(image_features, {batch_size, side, fewer, channels});
    image_features = permute(image_features, {0, 2, 1, 3});
    image_features = reshape(image_features, {batch_size, fewer, fewer, channels * downsample_factor});
    return permute(image_features, {0, 2, 1, 3});
  }

  LayerNorm layernorm;
  Linear linear_1, linear_2;
  std::int64_t downsample_factor = 2;
  bool normalises = false;
  ModuleId module = 0;
};

class AyaVision : public ImageTextModel {
 public:
  AyaVision(Context& context, const AyaVisionConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, config.of->class_name, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", config.of->model);
    model_ = model.module;
    vision_tower_ =
        SiglipVisionModel(model.child("vision_tower", "SiglipVisionModel", Modality::vision), config.vision, options);
    vision_tower_.embeddings.checkpointing = options.checkpointing;
    projector_ = AyaVisionMultiModalProjector(
        model.child("multi_modal_projector", config.of->projector, Modality::projector), config);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 cohere2_text_parts(config.text, options));
    language_model_.blocks.first_block = vision_tower_.encoder.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    const ClipVisionConfig& v = config_.vision;
    return {data_.all_tiles(), v.num_channels, v.image_size, v.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    std::vector<std::int64_t> wanted;
    if (config_.of->is_aya) wanted.push_back(config_.vision_feature_layer);
    ClipVisionOutput image_outputs = vision_tower_(batch.pixel_values, wanted);
    const Tensor selected = config_.of->is_aya ? image_outputs.hidden_states.front() : image_outputs.last_hidden_state;
    const Tensor projected = projector_(selected, config_.patches_per_side());
    image_outputs.pooler_output =
        reshape(projected, {selected.size(0), config_.tokens_per_tile(), config_.text.hidden_size});
    ImageFeatures features{{image_outputs.pooler_output}, std::move(image_outputs.hidden_states)};
    features.others.push_back(image_outputs.last_hidden_state);
    return features;
  }

  AyaVisionConfig config_;
  SiglipVisionModel vision_tower_;
  AyaVisionMultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_aya_vision(Context& context, const AyaVisionConfig& config, const DataConfig& data,
                                        const ModelOptions& options) {
  return std::make_unique<AyaVision>(context, config, data, options);
}

}  // namespace oometer
