#include "models/video_llava/video_llava.h"

#include <utility>

#include "models/clip/clip.h"
#include "models/kit/image_text.h"
#include "models/voxtral/voxtral.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

class VideoLlava : public ImageTextModel {
 public:
  VideoLlava(Context& context, const LlavaConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "VideoLlavaForConditionalGeneration", Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "VideoLlavaModel");
    model_ = model.module;
    const auto make_tower = [&](const char* name) {
      ClipVisionModel tower(model.child(name, config.vision.family->model, Modality::vision), config.vision, options);
      tower.embeddings.checkpointing = options.checkpointing;
      tower.embeddings.checkpointing.input_require_grads = false;
      return tower;
    };
    make_tower("video_tower");  // it sees no images
    image_tower_ = make_tower("image_tower");
    projector_ = VoxtralMultiModalProjector(
        model.child("multi_modal_projector", "VideoLlavaMultiModalProjector", Modality::projector),
        config.projector_input_size(), config.text.hidden_size, config.projector_bias, config.projector_hidden_act);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    image_tower_.encoder.blocks.first_block = image_tower_.encoder.layers.size();
    language_model_.blocks.first_block = 2 * image_tower_.encoder.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    return {data_.images(), config_.vision.num_channels, data_.image_height, data_.image_width};
  }

  // get_image_features
  ImageFeatures image_features(const ModelInputs& batch) const override {
    ClipVisionOutput image_outputs = image_tower_(batch.pixel_values, config_.vision_feature_layers);
    const bool drops_class_token = config_.vision_feature_select == FeatureSelect::without_class_token;
    TensorList hs_pool;
    for (const Tensor& state : image_outputs.hidden_states)
      hs_pool.push_back(drops_class_token ? slice(state, 1, 1, state.size(1) - 1) : state);
    const Tensor selected_hidden_state = config_.vision_feature_layer_is_list ? cat(hs_pool, -1) : hs_pool.front();
    ImageFeatures image{{projector_(selected_hidden_state)}, std::move(image_outputs.hidden_states)};
    image.others.push_back(std::move(image_outputs.last_hidden_state));
    return image;
  }

  // get_placeholder_mask
  Tensor find_placeholders(const Tensor& input_ids, const Tensor&, const Tensor&) const override {
    const Tensor special_image_mask = pointwise(Op::eq, {&input_ids}, DType::boolean);
    special_video_mask_ = pointwise(Op::eq, {&input_ids}, DType::boolean);
    const Tensor n_image_tokens = sum_all(special_image_mask);
    {
      const Tensor elements = mul_scalar(n_image_tokens);
      const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
    }
    const Tensor n_video_tokens = sum_all(special_video_mask_);
    return unsqueeze(special_image_mask, -1);
  }

  Tensor run_language(const Tensor& inputs_embeds, const ModelInputs& inputs) const override {
    const Tensor last_hidden_state = ImageTextModel::run_language(inputs_embeds, inputs);
    special_video_mask_.reset();
    return last_hidden_state;
  }

  LlavaConfig config_;
  ClipVisionModel image_tower_;
  VoxtralMultiModalProjector projector_;
  mutable Tensor special_video_mask_;  ///< a name of the model's forward
};

}  // namespace

std::unique_ptr<Model> build_video_llava(Context& context, const LlavaConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return std::make_unique<VideoLlava>(context, config, data, options);
}

}  // namespace oometer
