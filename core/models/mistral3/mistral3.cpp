#include "models/mistral3/mistral3.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/deepseek/deepseek.h"
#include "models/kit/image_text.h"
#include "models/llama/llama.h"
#include "models/ministral3/ministral3.h"
#include "models/pixtral/pixtral.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's. image_sizes is on the device, as whoever moves a batch there
/// leaves it.
namespace oometer {

namespace {

/// `image_size[0] // patch_size` of each image's height and width, and `h * w`: scalars.
struct ImageSizes {
  ImageSizes(Context& context, std::int64_t images) {
    for (std::int64_t i = 0; i < 2 * images; ++i) sides.push_back(integers(context, Op::floor_divide, {}));
    for (std::int64_t i = 0; i < images; ++i) tokens.push_back(integers(context, Op::mul, {}));
  }
  TensorList tokens, sides;
};

struct PatchMerger {
  PatchMerger() = default;
  PatchMerger(const Builder& builder, const Mistral3Config& config)
      : spatial_merge_size(config.spatial_merge_size),
        patch_size(config.vision.patch_size),
        merging_layer(builder.child("merging_layer", "Linear"),
                      config.vision.hidden_size * config.spatial_merge_size * config.spatial_merge_size,
                      config.vision.hidden_size, false),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    const std::int64_t d = given.size(1), merged = d * spatial_merge_size * spatial_merge_size;
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor grid, image_grid;
    TensorList permuted_tensor;
    const ImageSizes sizes(argument.context(), data.images());
    {
      const TensorList pieces = split(given, pixtral_patches(data, patch_size), 0);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const ImageShape& image = data.image(static_cast<std::int64_t>(i));
        const std::int64_t h = image.image_height / patch_size, w = image.image_width / patch_size,
                           tokens = (h / spatial_merge_size) * (w / spatial_merge_size);
        image_grid = view(pieces[i], {h, w, d});
        image_grid = unsqueeze(transpose(transpose(image_grid, 0, 2), 1, 2), 0);
        grid = im2col(image_grid, {1, merged, tokens});
        grid = transpose(view(grid, {merged, tokens}), 0, 1);
        permuted_tensor.push_back(grid);
      }
    }
    Tensor image_features = cat(permuted_tensor, 0);
    image_features = merging_layer(image_features);
    return call.result(image_features);
  }

  std::int64_t spatial_merge_size = 2, patch_size = 14;
  Linear merging_layer;
  ModuleId module = 0;
};

struct MultiModalProjector {
  MultiModalProjector() = default;
  MultiModalProjector(const Builder& builder, const Mistral3Config& config)
      : norm(builder.child("norm", config.of->norm), config.vision.hidden_size),
        patch_merger(builder.child("patch_merger", config.of->patch_merger), config),
        linear_1(builder.child("linear_1", "Linear"), config.vision.hidden_size, config.text.hidden_size,
                 config.projector_bias),
        act(config.projector_hidden_act),
        linear_2(builder.child("linear_2", "Linear"), config.text.hidden_size, config.text.hidden_size,
                 config.projector_bias),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const DataConfig& data) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states, image_features = norm(call.argument(argument));
    image_features = patch_merger(image_features, data);
    hidden_states = linear_1(image_features);
    hidden_states = activate(act, hidden_states);
    hidden_states = linear_2(hidden_states);
    return call.result(hidden_states);
  }

  LlamaRMSNorm norm;
  PatchMerger patch_merger;
  Linear linear_1;
  Activation act = Activation::gelu;
  Linear linear_2;
  ModuleId module = 0;
};

// Mistral3ForConditionalGeneration
class Mistral3 : public ImageTextModel {
 public:
  Mistral3(Context& context, const Mistral3Config& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, config.of->class_name, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", config.of->model);
    model_ = model.module;
    vision_tower_ = PixtralVisionModel(model.child(config.of->tower, "PixtralVisionModel", Modality::vision),
                                       config.vision, options);
    projector_ =
        MultiModalProjector(model.child(config.of->projector, config.of->projector_class, Modality::projector), config);
    const Builder language = model.child("language_model", config.text.names->model, Modality::language);
    DecoderParts parts;
    if (config.is_ministral3) parts = ministral3_parts(config.text, options);
    if (config.deepseek) parts = deepseek_parts(context, *config.deepseek, options);
    make_decoder(language, config.text, options, std::move(parts));
    language_model_.blocks.first_block = vision_tower_.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    ImageTextModel::make_images(batch, images_per_sample);
    if (data_.images() > 0) batch.image_grid_thw = input({data_.images(), 2});  // image_sizes
  }

 private:
  Shape pixel_sizes() const override {
    std::int64_t height = data_.image_height, width = data_.image_width;
    for (const ImageShape& image : data_.sample_images) {  // padded to the largest (PixtralImageProcessor)
      height = std::max(height, image.image_height);
      width = std::max(width, image.image_width);
    }
    return {data_.images(), config_.vision.num_channels, height, width};
  }
  std::size_t features_of(std::int64_t images) const override { return static_cast<std::size_t>(images); }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    const Tensor last_hidden_state = vision_tower_(batch.pixel_values, data_);
    const Tensor features =
        projector_(view(last_hidden_state, {last_hidden_state.size(1), last_hidden_state.size(2)}), data_);
    if (config_.of == &kLightOnOcr) {
      const ImageSizes split_sizes(context_, data_.images());
    } else {
      Tensor cells = integers(context_, Op::floor_divide, {data_.images(), 2});
      const Tensor split_sizes = integers(context_, Op::mul, {data_.images()});
      cells.reset();
    }
    return {split(features, data_.tokens_of_each_image(), 0), {last_hidden_state}};
  }

  Mistral3Config config_;
  PixtralVisionModel vision_tower_;
  MultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_mistral3(Context& context, const Mistral3Config& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<Mistral3>(context, config, data, options);
}

}  // namespace oometer
