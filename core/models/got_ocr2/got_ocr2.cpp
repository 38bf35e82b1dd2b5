#include "models/got_ocr2/got_ocr2.h"

#include <memory>
#include <utility>

#include "models/kit/conv2d.h"
#include "models/kit/image_text.h"
#include "ops/ops.h"

namespace oometer {

namespace {

struct Projector {
  Projector() = default;
  Projector(const Builder& builder, const GotOcr2Config& c)
      : conv_upsampler1(builder.child("conv_upsampler1", "Conv2d"), c.vision.output_channels,
                        2 * c.vision.output_channels, {.kernel = 3, .stride = 2, .padding = 1, .bias = false}),
        conv_upsampler2(builder.child("conv_upsampler2", "Conv2d"), 2 * c.vision.output_channels, c.text.hidden_size,
                        {.kernel = 3, .stride = 2, .padding = 1, .bias = false}),
        multimodal_projector(builder.child("multimodal_projector", "Linear"), c.text.hidden_size, c.text.hidden_size,
                             true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_state = conv_upsampler1(call.argument(argument));
    hidden_state = conv_upsampler2(hidden_state);
    const std::int64_t tokens = hidden_state.size(2) * hidden_state.size(3);
    hidden_state = permute(reshape(hidden_state, {hidden_state.size(0), hidden_state.size(1), tokens}), {0, 2, 1});
    return call.result(multimodal_projector(hidden_state));
  }

  AnyConv2d conv_upsampler1, conv_upsampler2;
  Linear multimodal_projector;
  ModuleId module = 0;
};

class GotOcr2 : public ImageTextModel {
 public:
  GotOcr2(Context& context, const GotOcr2Config& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "GotOcr2ForConditionalGeneration", Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "GotOcr2Model");
    model_ = model.module;
    vision_tower_ =
        make_sam_encoder(model.child("vision_tower", "GotOcr2VisionEncoder", Modality::vision), config.vision, options);
    projector_ =
        Projector(model.child("multi_modal_projector", "GotOcr2MultiModalProjector", Modality::projector), config);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = vision_tower_->blocks();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    const SamConfig& v = config_.vision;
    return {data_.images(), v.num_channels, v.image_size, v.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    const Tensor pixel_values = to(batch.pixel_values, language_model_.embed_tokens.weight.dtype());
    const Tensor last_hidden_state = (*vision_tower_)(pixel_values);
    const Tensor pooler_output = projector_(last_hidden_state);
    return {{pooler_output}, {last_hidden_state}};
  }

  GotOcr2Config config_;
  std::unique_ptr<SamEncoder> vision_tower_;
  Projector projector_;
};

}  // namespace

std::unique_ptr<Model> build_got_ocr2(Context& context, const GotOcr2Config& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<GotOcr2>(context, config, data, options);
}

}  // namespace oometer
