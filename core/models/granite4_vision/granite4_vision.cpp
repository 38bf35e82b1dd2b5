#include "models/granite4_vision/granite4_vision.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "models/clip/clip.h"
#include "models/granite/granite.h"
#include "models/kit/decoder.h"
#include "models/kit/image_text.h"
#include "models/llava/next.h"
#include "models/siglip/siglip.h"
#include "nn/hidden_states.h"
#include "ops/images.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

Tensor interpolate_downsample(const Tensor& image_features, std::int64_t orig_side, std::int64_t new_side) {
  const std::int64_t batch = image_features.size(0), channels = image_features.size(2);
  Tensor spatial = permute(view(image_features, {batch, orig_side, orig_side, channels}), {0, 3, 1, 2});
  spatial = adaptive_avg_pool(spatial, new_side);  // F.interpolate, mode="area"
  return reshape(permute(spatial, {0, 2, 3, 1}), {batch, new_side * new_side, channels});
}

Tensor spatial_offset_downsample(const Tensor& image_features, std::int64_t orig_side, std::int64_t offset) {
  const std::int64_t new_side = orig_side / 2, batch = image_features.size(0), channels = image_features.size(2);
  Tensor grid = reshape(image_features, {batch, orig_side, orig_side, channels});
  grid = reshape(grid, {batch, new_side, 2, new_side, 2, channels});
  grid = select(select(grid, 2, offset / 2), 3, offset % 2);
  return reshape(grid, {batch, new_side * new_side, channels});
}

Tensor windowed_raster(const Tensor& features, std::int64_t side, std::int64_t window_size) {
  const std::int64_t batch = features.size(0), channels = features.size(2), num_win = side / window_size;
  const Tensor windows = transpose(view(features, {batch, num_win, window_size, num_win, window_size, channels}), 2, 3);
  return reshape(windows, {batch * num_win * num_win, window_size * window_size, channels});
}

Tensor unwindowed_raster(const Tensor& windowed, std::int64_t num_win, std::int64_t window_size) {
  const std::int64_t batch = windowed.size(0) / (num_win * num_win), channels = windowed.size(2),
                     side = num_win * window_size;
  Tensor features = view(windowed, {batch, num_win, num_win, window_size, window_size, channels});
  features = contiguous(transpose(features, 2, 3));
  return view(features, {batch, side * side, channels});
}

struct WindowQFormerDownsampler {
  /// `offset`: of the corner that is taken of each 2 x 2 patches; -1: patches are averaged.
  WindowQFormerDownsampler(const Builder& builder, const Granite4VisionConfig& c, const ModelOptions& options,
                           std::int64_t offset)
      : qformer(builder.child("qformer", c.qformer.names->model), c.qformer, options),
        norm(builder.child("norm", "LayerNorm"), c.vision.hidden_size),
        dropout_rate(c.projector_dropout),
        image_side(c.image_side()),
        query_side(c.query_side),
        window_side(c.window_side),
        spatial_offset(offset),
        module(builder.module) {
    builder.children_are_through();
    query = builder.parameter("query", {1, query_side * query_side, c.vision.hidden_size});
    image_positions = builder.parameter("image_positions", {1, window_side * window_side, c.vision.hidden_size});
    out_linear = Linear(builder.child("out_linear", "Linear"), c.vision.hidden_size, c.text.hidden_size, true);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const std::int64_t num_windows = image_side / window_side, downsampled_side = num_windows * query_side;
    const Tensor image_features = norm(call.argument(argument));
    const Tensor windowed_image_features = windowed_raster(image_features, image_side, window_side);
    const Tensor downsampled = spatial_offset >= 0
                                   ? spatial_offset_downsample(image_features, image_side, spatial_offset)
                                   : interpolate_downsample(image_features, image_side, downsampled_side);
    const Tensor downsampled_windowed = windowed_raster(downsampled, downsampled_side, query_side);
    const Tensor query_embeds = add(query, downsampled_windowed);
    Tensor encoder_embeds;
    {
      const Tensor positioned = add(windowed_image_features, image_positions);
      encoder_embeds = dropout(positioned, dropout_rate);
    }
    const Tensor out_windowed = qformer(query_embeds, encoder_embeds, {}).last_hidden_state;
    Tensor out = unwindowed_raster(out_windowed, num_windows, query_side);
    out = dropout(out, dropout_rate);
    return call.result(out_linear(out));
  }

  QFormerModel qformer;
  LayerNorm norm;
  Tensor query, image_positions;
  Linear out_linear;
  double dropout_rate;
  std::int64_t image_side, query_side, window_side, spatial_offset;
  ModuleId module;
};

DecoderParts text_parts(const TextConfig& text, const ModelOptions& options) {
  DecoderParts parts = granite_parts(text, options);
  parts.scale = nullptr;  // of embeddings, once images are in them
  return parts;
}

class Granite4Vision final : public LanguageModel {
 public:
  Granite4Vision(Context& context, const Granite4VisionConfig& config, const DataConfig& data,
                 const ModelOptions& options)
      : LanguageModel(context, config.text.names->causal_lm, Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "Granite4VisionModel");
    model_ = model.module;
    const Builder tower = model.child("vision_tower", config.vision.family->model, Modality::vision);
    if (config.tiles.has_siglip())
      vision_tower_ = SiglipVisionModel(tower, config.vision, options);
    else
      vision_tower_ = ClipVisionModel(tower, config.vision, options);
    std::size_t blocks = 0;
    std::visit(
        [&](auto& vision) {
          vision.embeddings.checkpointing = options.checkpointing;
          vision.embeddings.checkpointing.input_require_grads = false;
          blocks = vision.encoder.layers.size();
        },
        vision_tower_);
    model.children_are_through();
    {
      const Tensor random = empty(context, Op::empty, {config.text.hidden_size}, options.dtype);
      Builder newline = model;
      newline.modality = Modality::projector;
      image_newline_ = newline.parameter("image_newline", {config.text.hidden_size});
    }
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 text_parts(config.text, options));
    language_model_.blocks.first_block = blocks;
    blocks += language_model_.layers.size();
    const auto make = [&](const char* name, std::size_t count, bool is_spatial) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto index = static_cast<std::int32_t>(i);
        Builder at = model;
        at.modality = Modality::projector;
        projectors_.emplace_back(at.child(name, "Granite4VisionWindowQFormerDownsampler", index), config, options,
                                 is_spatial ? index : -1);
        projectors_.back().qformer.blocks.first_block = blocks;
        blocks += projectors_.back().qformer.layers.size();
      }
    };
    projectors_.reserve(config.deepstack_layer_map.size() + kCorners);
    make("layerwise_projectors", config.deepstack_layer_map.size(), false);
    make("spatial_projectors", kCorners, true);
    make_head(root_, config.text, config.tie_word_embeddings);
    for (const auto& [vision_layer, llm_layer] : config.deepstack_layer_map) {
      captured_.push_back(vision_layer);
      llm_layers_.push_back(llm_layer);
    }
    for (const std::int64_t llm_layer : config.spatial_target_layers) llm_layers_.push_back(llm_layer);
    captured_.push_back(config.spatial_vision_layer);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    const ClipVisionConfig& v = config_.vision;
    std::int64_t tiles = data_.tiles;  // padded to the most (_pad_for_batching)
    for (const ImageShape& image : data_.sample_images) tiles = std::max(tiles, image.tiles);
    batch.pixel_values =
        input({data_.images(), tiles, v.num_channels, v.image_size, v.image_size}, data_.pixel_dtype.value_or(dtype_));
  }

  TensorList encoded_images(const ModelInputs& batch) override {
    if (!batch.pixel_values) return {};
    ImageFeatures image = image_features(batch.pixel_values);
    TensorList outputs = std::move(image.pooler_output);
    for (Tensor& other : image.others) outputs.push_back(std::move(other));
    return outputs;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    TensorList deepstack_features;
    const Tensor hidden_states = model_forward(inputs, deepstack_features);
    const DecoderParts& parts = language_model_.parts;
    ModelOutputs outputs;
    if (inputs.labels && loss_function->wants_plain_head)
      outputs = causal_lm_outputs(parts.fused_states(hidden_states), lm_head_, inputs, loss_function);
    else
      outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function, parts.logits);
    // TRL's own forward, in place of the class's, hands on what its loss needs alone.
    if (!inputs.labels || !loss_function->replaces_forward())
      for (const Tensor& features : deepstack_features) outputs.others.push_back(features);
    return outputs;
  }

 private:
  static constexpr std::size_t kCorners = 4;

  void complete(ModelInputs& batch) override {
    make_images(batch, data_.images_per_sample);
    if (data_.pixel_dtype && data_.images() > 0) batch.image_grid_thw = input({data_.images(), 2});  // image_sizes
  }

  /// Of each group of features a tensor an image; what of the tower lives as long.
  ImageFeatures image_features(const Tensor& tiles_of_images) const {
    const Tensor pixel_values = [&] {  // a cat of each image's own tiles
      const ClipVisionConfig& v = config_.vision;
      return empty(context_, Op::cat, {data_.all_tiles(), v.num_channels, v.image_size, v.image_size},
                   tiles_of_images.dtype());
    }();
    ClipVisionOutput vision_outputs =
        std::visit([&](const auto& vision) { return vision(pixel_values, captured_); }, vision_tower_);
    const bool drops_class_token = config_.tiles.vision_feature_select == FeatureSelect::without_class_token;
    const std::vector<std::int64_t> image_num_patches =
        data_.of_each_image([](const ImageShape& image) { return image.tiles; });
    const std::size_t deep = config_.deepstack_layer_map.size();
    ImageFeatures image;
    TensorList projected_features, projected_group, packed;
    for (std::size_t k = 0; k < llm_layers_.size(); ++k) {
      const Tensor& states = vision_outputs.hidden_states[std::min(k, deep)];
      const Tensor selected_feature = drops_class_token ? slice(states, 1, 1, states.size(1) - 1) : states;
      TensorList& name = k < deep ? projected_features : projected_group;
      const Tensor projected = projectors_[k](selected_feature);
      name = split(projected, image_num_patches, 0);
      packed = pack_image_features(config_.tiles, data_, name, image_newline_);
      for (const Tensor& of_image : packed) image.pooler_output.push_back(of_image);
    }
    image.others = std::move(vision_outputs.hidden_states);
    return image;
  }

  Tensor model_forward(const ModelInputs& inputs, TensorList& deepstack_features) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    ImageFeatures image;
    TensorList by_layer;  // what is added before each layer of the text; null: nothing
    by_layer.resize(language_model_.layers.size());
    Tensor vision_mask, packed_features;
    if (has_images(inputs)) {
      const auto images = static_cast<std::size_t>(data_.images());
      if (inputs.images)
        for (std::size_t i = 0; i < images * llm_layers_.size(); ++i)
          image.pooler_output.push_back((*inputs.images)[i]);
      else
        image = image_features(inputs.pixel_values);
      deepstack_features = image.pooler_output;
      for (std::size_t k = 0; k < llm_layers_.size(); ++k) {
        TensorList of_images;
        for (std::size_t i = 0; i < images; ++i) of_images.push_back(image.pooler_output[k * images + i]);
        packed_features = cat(of_images, 0);
        packed_features = to(packed_features, inputs_embeds.dtype());
        if (k == 0) {
          vision_mask = placeholder_mask(inputs.input_ids);
          inputs_embeds = masked_fill(inputs_embeds, vision_mask);
        }
        if (const auto layer = static_cast<std::size_t>(llm_layers_[k]); layer < by_layer.size())
          by_layer[layer] = packed_features;
      }
    }
    return call.result(run_text(inputs_embeds, inputs, vision_mask, by_layer));
  }

  // Granite4VisionTextModel.forward
  Tensor run_text(const Tensor& embeddings, const ModelInputs& inputs, const Tensor& vision_mask,
                  const TensorList& deepstack_features) const {
    const Decoder& text = language_model_;
    ModuleCall call(context_, text.module);
    const Tensor inputs_embeds = mul_scalar(embeddings);  // embedding_multiplier
    const Tensor position_ids =
        inputs.position_ids ? inputs.position_ids : text.positions(context_, inputs_embeds.size(1));
    const Tensor causal_mask = create_causal_mask(
        inputs_embeds, {.position_ids = position_ids, .attention_mask = inputs.attention_mask, .rows = inputs.rows},
        text.masked, 0);
    Tensor hidden_states = inputs_embeds;
    PositionEmbeddings position_embeddings = text.rotary_emb(hidden_states, position_ids);
    position_embeddings.position_ids = position_ids;
    position_embeddings.rows = inputs.rows;
    position_embeddings.cu_seq_lens = inputs.cu_seq_lens_q;
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = *text.layers[i], position_embeddings, causal_mask](const Tensor& hidden) {
        return layer(hidden, position_embeddings, causal_mask);
      };
    };
    std::size_t begin = 0;
    const auto run_to = [&](std::size_t end) {
      if (begin < end) hidden_states = text.blocks.run(begin, end, std::move(hidden_states), text.checkpointing, block);
      begin = end;
    };
    for (std::size_t i = 0; i < text.layers.size(); ++i) {
      if (!deepstack_features[i]) continue;
      run_to(i);
      const Tensor features = to(deepstack_features[i], hidden_states.dtype());
      Tensor source;
      {
        const Tensor of_images = index_mask(hidden_states, squeeze_last(vision_mask), features.size(0));
        source = add(of_images, features);
      }
      hidden_states = masked_scatter(hidden_states, vision_mask, view(source, {source.numel()}));
    }
    run_to(text.layers.size());
    hidden_states = text.norm(hidden_states);
    if (context_.hidden_states) context_.hidden_states->tie_last(hidden_states);
    return call.result(hidden_states);
  }

  static Tensor squeeze_last(const Tensor& mask) { return select(mask, -1, 0); }

  Granite4VisionConfig config_;
  std::variant<ClipVisionModel, SiglipVisionModel> vision_tower_;
  Tensor image_newline_;
  std::vector<WindowQFormerDownsampler> projectors_;  ///< the layers', then the corners'
  std::vector<std::int64_t> captured_, llm_layers_;   ///< the tower's states; where each group of features goes
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_granite4_vision(Context& context, const Granite4VisionConfig& config,
                                             const DataConfig& data, const ModelOptions& options) {
  return std::make_unique<Granite4Vision>(context, config, data, options);
}

}  // namespace oometer
