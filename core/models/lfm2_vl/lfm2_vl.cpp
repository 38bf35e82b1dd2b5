#include "models/lfm2_vl/lfm2_vl.h"

#include <utility>
#include <vector>

#include "models/clip/clip.h"
#include "models/kit/image_text.h"
#include "models/lfm2/lfm2.h"
#include "models/siglip/naflex.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "nn/wrapped_call.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct Lfm2VlMultiModalProjector {
  Lfm2VlMultiModalProjector() = default;
  Lfm2VlMultiModalProjector(const Builder& builder, const Lfm2VlConfig& c)
      : factor(c.downsample_factor),
        use_layer_norm(c.projector_use_layernorm),
        act(c.projector_hidden_act),
        module(builder.module) {
    const std::int64_t in_channels = c.vision.hidden_size * factor * factor;
    if (use_layer_norm) layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), in_channels);
    linear_1 = Linear(builder.child("linear_1", "Linear"), in_channels, c.projector_hidden_size, c.projector_bias);
    linear_2 =
        Linear(builder.child("linear_2", "Linear"), c.projector_hidden_size, c.text.hidden_size, c.projector_bias);
  }

  Tensor pixel_unshuffle(const Tensor& x) const {
    const std::int64_t width = x.size(1), height = x.size(2), channels = x.size(3);
    Tensor hidden_states = reshape(x, {1, width, height / factor, channels * factor});
    hidden_states = transpose(hidden_states, 1, 2);
    hidden_states = reshape(hidden_states, {1, height / factor, width / factor, channels * factor * factor});
    return transpose(hidden_states, 1, 2);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor image_features = pixel_unshuffle(call.argument(argument));
    if (use_layer_norm) image_features = layer_norm(image_features);
    Tensor hidden_states = linear_1(image_features);
    hidden_states = activate(act, hidden_states);
    return call.result(linear_2(hidden_states));
  }

  std::int64_t factor = 2;
  bool use_layer_norm = true;
  LayerNorm layer_norm;
  Linear linear_1, linear_2;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

class Lfm2Vl : public ImageTextModel {
 public:
  Lfm2Vl(Context& context, const Lfm2VlConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "Lfm2VlForConditionalGeneration", Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "Lfm2VlModel");
    model_ = model.module;
    vision_tower_ = Siglip2VisionModel(model.child("vision_tower", config.vision.family->model, Modality::vision),
                                       config.vision, config.num_positions, options);
    projector_ = Lfm2VlMultiModalProjector(
        model.child("multi_modal_projector", "Lfm2VlMultiModalProjector", Modality::projector), config);
    DecoderParts parts = lfm2_text_parts(config.text, options);
    complete_parts(parts, config.text);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 std::move(parts));
    language_model_.blocks.first_block = vision_tower_.encoder.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    ImageTextModel::make_images(batch, images_per_sample);
    if (data_.images() == 0) return;
    batch.pixel_attention_mask = input({data_.all_tiles(), config_.patches_per_tile()}, DType::int32);
    batch.image_grid_thw = input({data_.all_tiles(), 2});  // spatial_shapes
  }

 private:
  Shape pixel_sizes() const override {
    const std::int64_t patch = config_.vision.patch_size;
    return {data_.all_tiles(), config_.patches_per_tile(), config_.vision.num_channels * patch * patch};
  }
  std::size_t features_of(std::int64_t) const override { return static_cast<std::size_t>(data_.all_tiles()); }
  bool joins_features() const override { return true; }

  std::vector<Cells> spatial_shapes() const {
    std::vector<Cells> shapes;
    const std::int64_t side = config_.side_of_tile();
    for (std::int64_t i = 0; i < data_.images(); ++i) {
      const ImageShape& image = data_.image(i);
      shapes.insert(shapes.end(), static_cast<std::size_t>(image.tiles - 1), Cells{side, side});
      shapes.emplace_back(image.grid_h, image.grid_w);
    }
    return shapes;
  }

  // get_image_features
  ImageFeatures image_features(const ModelInputs& batch) const override {
    const std::vector<Cells> shapes = spatial_shapes();
    const Tensor last_hidden_state =
        vision_tower_(batch.pixel_values, batch.pixel_attention_mask, shapes).last_hidden_state;
    const Tensor img_feature_lengths = sum(batch.pixel_attention_mask, {1}, false);
    ImageFeatures image;
    Tensor feature, img_embedding;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto [height, width] = shapes[i];
      feature = select(last_hidden_state, 0, static_cast<std::int64_t>(i));
      feature = unsqueeze(slice(feature, 0, 0, height * width), 0);
      feature = reshape(feature, {1, height, width, feature.size(2)});
      img_embedding = projector_(feature);
      img_embedding = reshape(img_embedding, {img_embedding.size(1) * img_embedding.size(2), img_embedding.size(3)});
      image.pooler_output.push_back(img_embedding);
    }
    image.others.push_back(last_hidden_state);
    return image;
  }

  Lfm2VlConfig config_;
  Siglip2VisionModel vision_tower_;
  Lfm2VlMultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_lfm2_vl(Context& context, const Lfm2VlConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<Lfm2Vl>(context, config, data, options);
}

}  // namespace oometer
