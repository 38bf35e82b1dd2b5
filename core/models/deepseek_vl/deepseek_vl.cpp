#include "models/deepseek_vl/deepseek_vl.h"

#include "models/kit/image_text.h"
#include "models/siglip/siglip.h"
#include "nn/activation.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct DeepseekVLAligner {
  DeepseekVLAligner() = default;
  DeepseekVLAligner(const Builder& builder, const VisionLanguageConfig& config)
      : linear1(builder.child("linear1", "Linear"), config.vision.hidden_size, config.text.hidden_size, true),
        activation(builder.child("activation", "GELU").module),
        linear2(builder.child("linear2", "Linear"), config.text.hidden_size, config.text.hidden_size, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& vision_encodings) const {
    ModuleCall call(vision_encodings.context(), module);
    Tensor x = linear1(call.argument(vision_encodings));
    {
      const ModuleScope scope(vision_encodings.context(), activation);
      x = activate(Activation::gelu, x);
    }
    x = linear2(x);
    return call.result(x);
  }

  Linear linear1;
  ModuleId activation = 0;
  Linear linear2;
  ModuleId module = 0;
};

class DeepseekVL : public ImageTextModel {
 public:
  DeepseekVL(Context& context, const VisionLanguageConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "DeepseekVLForConditionalGeneration", Modality::none, data, options),
        vision_(config.vision) {
    const Builder model = root_.child("model", "DeepseekVLModel");
    model_ = model.module;
    vision_model_ = SiglipVisionModel(model.child("vision_model", config.vision.family->model, Modality::vision),
                                      config.vision, options);
    vision_model_.embeddings.checkpointing = options.checkpointing;
    aligner_ = DeepseekVLAligner(model.child("aligner", "DeepseekVLAligner", Modality::projector), config);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = vision_model_.encoder.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    return {data_.images(), vision_.num_channels, vision_.image_size, vision_.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    ClipVisionOutput vision_outputs = vision_model_(batch.pixel_values);
    vision_outputs.pooler_output = aligner_(vision_outputs.last_hidden_state);
    return {{vision_outputs.pooler_output}, {vision_outputs.last_hidden_state}};
  }

  ClipVisionConfig vision_;
  SiglipVisionModel vision_model_;
  DeepseekVLAligner aligner_;
};

}  // namespace

std::unique_ptr<Model> build_deepseek_vl(Context& context, const VisionLanguageConfig& config, const DataConfig& data,
                                         const ModelOptions& options) {
  return std::make_unique<DeepseekVL>(context, config, data, options);
}

}  // namespace oometer
