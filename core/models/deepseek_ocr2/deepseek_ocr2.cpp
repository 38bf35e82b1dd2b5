#include "models/deepseek_ocr2/deepseek_ocr2.h"

#include <utility>
#include <vector>

#include "models/blockwise_mask.h"
#include "models/deepseek/deepseek.h"
#include "models/kit/image_text.h"
#include "models/kit/recurrent.h"
#include "nn/block_stack.h"
#include "ops/integers.h"
#include "ops/ops.h"

namespace oometer {

namespace {

// DeepseekOcr2VisionEncoder: Qwen2's layers. Patches see each other, queries all patches and those before them.
struct VisionEncoder {
  VisionEncoder() = default;
  VisionEncoder(const Builder& builder, const LlamaConfig& c, const ModelOptions& options)
      : stack(builder),
        checkpointing(options.checkpointing),
        masked(masked_by(options.attention)),
        module(builder.module) {
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.push_back(
          std::make_unique<LlamaDecoderLayer>(builder.child("layers", c.names->decoder_layer, i), c, options));
      stack.add_block(builder);
    }
    norm = LlamaRMSNorm(builder.child("norm", c.names->rms_norm), c.hidden_size);
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", c.names->rotary_embedding), c);
  }

  Tensor operator()(const Tensor& given) const {
    Context& context = given.context();
    ModuleCall call(context, module);
    const Tensor inputs_embeds = call.keyword(given);
    const Tensor position_ids = unsqueeze(integers(context, Op::arange, {inputs_embeds.size(1)}), 0);
    const Tensor block_sequence_ids = integers(context, Op::fill, {inputs_embeds.size(0), inputs_embeds.size(1)});
    const Tensor attention_mask = create_blockwise_mask(inputs_embeds, {}, masked, block_sequence_ids, 0);
    Tensor hidden_states = inputs_embeds;
    PositionEmbeddings positions = rotary_emb(hidden_states, position_ids);
    positions.position_ids = position_ids;
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = *layers[i], positions, attention_mask](const Tensor& hidden) {
        return layer(hidden, positions, attention_mask);
      };
    };
    hidden_states = stack.run(0, layers.size(), std::move(hidden_states), checkpointing, block);
    return call.result(norm(hidden_states));
  }

  std::vector<std::unique_ptr<LlamaDecoderLayer>> layers;
  BlockStack stack;
  LlamaRMSNorm norm;
  LlamaRotaryEmbedding rotary_emb;
  CheckpointingConfig checkpointing;
  MaskedBy masked = MaskedBy::sdpa;
  ModuleId module = 0;
};

// DeepseekOcr2VisionModel
struct VisionModel {
  VisionModel() = default;
  VisionModel(const Builder& builder, const DeepseekOcr2Config& c, const ModelOptions& options)
      : sam_encoder(make_sam_encoder(builder.child("sam_encoder", "DeepseekOcr2SamVisionEncoder"), c.sam, options)),
        vision_encoder(builder.child("vision_encoder", c.encoder.names->model), c.encoder, options),
        query_768_resolution(builder.child("query_768_resolution", "Embedding"), 144, c.encoder.hidden_size),
        query_1024_resolution(builder.child("query_1024_resolution", "Embedding"), 256, c.encoder.hidden_size),
        module(builder.module) {
    vision_encoder.stack.first_block = sam_encoder->blocks();
  }

  Tensor operator()(const Tensor& pixel_values) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const Tensor map = (*sam_encoder)(call.argument(pixel_values));
    const std::int64_t bsz = map.size(0), num_patches = map.size(2) * map.size(3);
    const Tensor hidden_states = transpose(reshape(map, {bsz, map.size(1), num_patches}), 1, 2);
    const Embedding& of_size = num_patches <= 144 ? query_768_resolution : query_1024_resolution;
    const Tensor queries = expand(unsqueeze(of_size.weight, 0), {bsz, of_size.weight.size(0), of_size.weight.size(1)});
    const Tensor combined = cat({hidden_states, queries}, 1);
    const Tensor encoded = vision_encoder(combined);
    return call.result(slice(encoded, 1, num_patches, encoded.size(1) - num_patches));
  }

  std::unique_ptr<SamEncoder> sam_encoder;
  VisionEncoder vision_encoder;
  Embedding query_768_resolution, query_1024_resolution;
  ModuleId module = 0;
};

// DeepseekOcr2TextDecoderLayer
DecoderParts text_parts(const DeepseekOcr2Config& config, const ModelOptions& options) {
  DecoderParts parts;
  const auto c = std::make_shared<const DeepseekOcr2Config>(config);  // its routers look at it
  parts.layer = [c, options](const Builder& builder, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return pre_norm_layer(builder, c->text, options, {}, [&](const Builder& layer) -> TextLayer::MLP {
      if (!c->text.experts.are_in(index)) return LlamaMLP(layer.child("mlp", c->text.names->mlp), c->text);
      return make_deepseek_moe(layer.child("mlp", c->text_experts.names->moe), c->text_experts, options.liger);
    });
  };
  complete_parts(parts, config.text);
  return parts;
}

class DeepseekOcr2 : public ImageTextModel {
 public:
  DeepseekOcr2(Context& context, const DeepseekOcr2Config& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "DeepseekOcr2ForConditionalGeneration", Modality::none, data, options),
        config_(config) {
    const Builder model = root_.child("model", "DeepseekOcr2Model");
    model_ = model.module;
    vision_tower_ =
        VisionModel(model.child("vision_tower", "DeepseekOcr2VisionModel", Modality::vision), config_, options);
    projector_ = Linear(model.child("multi_modal_projector", "Linear", Modality::projector), config.encoder.hidden_size,
                        config.text.hidden_size, true);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 text_parts(config_, options));
    language_model_.blocks.first_block =
        vision_tower_.sam_encoder->blocks() + vision_tower_.vision_encoder.layers.size();
    model.children_are_through();
    view_separator_ = model.parameter("view_separator", {config.text.hidden_size});
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    ImageTextModel::make_images(batch, images_per_sample);
    const std::int64_t images = data_.images();
    if (images == 0) return;
    batch.image_grid_thw = input({images});                    // num_local_patches
    if (const std::int64_t tiles = local_tiles(); tiles != 0)  // pixel_values_local
      batch.input_features = input({images * tiles, config_.sam.num_channels, config_.tile_size(), config_.tile_size()},
                                   data_.pixel_dtype.value_or(dtype_));
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ImageFeatures image;
    const Tensor hidden_states = model_forward(inputs, image);
    ModelOutputs outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
    for (Tensor& features : image.pooler_output) outputs.others.push_back(std::move(features));
    return outputs;
  }

 private:
  std::int64_t local_tiles() const { return data_.tiles - 1; }  ///< of an image
  Shape pixel_sizes() const override {
    return {data_.images(), config_.sam.num_channels, config_.sam.image_size, config_.sam.image_size};
  }
  std::size_t features_of(std::int64_t images) const override { return static_cast<std::size_t>(images); }

  // get_image_features
  ImageFeatures image_features(const ModelInputs& batch) const override {
    const Scoped<KvCache*> without_cache(context_.past_key_values, nullptr);
    Tensor of_tiles, all_local_features;
    const Tensor last_hidden_state = vision_tower_(batch.pixel_values);
    const Tensor global_features = projector_(last_hidden_state);
    if (batch.input_features) {
      of_tiles = vision_tower_(batch.input_features);
      all_local_features = projector_(of_tiles);
    }
    ImageFeatures image;
    const Tensor view_sep = unsqueeze(view_separator_, 0);
    const std::int64_t tiles = local_tiles(), width = config_.text.hidden_size;
    for (std::int64_t i = 0; i < batch.pixel_values.size(0); ++i) {
      const Tensor global_flat = reshape(select(global_features, 0, i), {global_features.size(1), width});
      if (all_local_features) {
        const Tensor local_flat =
            reshape(slice(all_local_features, 0, i * tiles, tiles), {tiles * all_local_features.size(1), width});
        image.pooler_output.push_back(cat({local_flat, global_flat, view_sep}, 0));
      } else {
        image.pooler_output.push_back(cat({global_flat, view_sep}, 0));
      }
    }
    image.others = {last_hidden_state};
    if (of_tiles) image.others.push_back(of_tiles);
    return image;
  }

  // DeepseekOcr2Model.forward
  Tensor model_forward(const ModelInputs& inputs, ImageFeatures& given) const {
    ModuleCall call(context_, model_);
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    ImageFeatures image;
    Tensor image_features, special_image_mask;  // bound until forward returns
    if (has_images(inputs)) {
      if (inputs.images)
        for (std::size_t i = 0; i < features_of(data_.images()); ++i)
          image.pooler_output.push_back((*inputs.images)[i]);
      else
        image = this->image_features(inputs);
      image_features = cat(image.pooler_output, 0);
      image_features = to(image_features, inputs_embeds.dtype());
      special_image_mask = placeholder_mask(inputs.input_ids);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features);
    }
    Tensor hidden_states = call.result(run_language(inputs_embeds, inputs));
    given.pooler_output = std::move(image.pooler_output);
    return hidden_states;
  }

  DeepseekOcr2Config config_;
  VisionModel vision_tower_;
  Linear projector_;
  Tensor view_separator_;
};

}  // namespace

std::unique_ptr<Model> build_deepseek_ocr2(Context& context, const DeepseekOcr2Config& config, const DataConfig& data,
                                           const ModelOptions& options) {
  return std::make_unique<DeepseekOcr2>(context, config, data, options);
}

}  // namespace oometer
