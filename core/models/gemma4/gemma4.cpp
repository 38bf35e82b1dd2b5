#include "models/gemma4/gemma4.h"

#include <tuple>
#include <utility>
#include <vector>

#include "models/blockwise_mask.h"
#include "models/gemma4/audio.h"
#include "models/gemma4/vision.h"
#include "models/gemma4_text/gemma4_text.h"
#include "models/kit/decoder.h"
#include "models/kit/norms.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct Gemma4MultimodalEmbedder {
  Gemma4MultimodalEmbedder() = default;
  Gemma4MultimodalEmbedder(const Builder& builder, const Gemma4TextConfig& text, std::int64_t multimodal_hidden_size)
      : embedding_projection(builder.child("embedding_projection", "Linear"), multimodal_hidden_size, text.hidden_size,
                             false),
        module(builder.module) {
    embedding_pre_projection_norm.module = builder.child("embedding_pre_projection_norm", text.names->rms_norm).module;
    embedding_pre_projection_norm.forward = rms_norm_by_pow;
  }

  Tensor operator()(const Tensor& inputs_embeds) const {
    ModuleCall call(inputs_embeds.context(), module);
    const Tensor embs_normed = embedding_pre_projection_norm(call.argument(inputs_embeds));
    return call.result(embedding_projection(embs_normed));
  }

  Linear embedding_projection;
  Norm embedding_pre_projection_norm;
  ModuleId module = 0;
};

/// Gemma4UnifiedVisionEmbedder.
struct Gemma4UnifiedVisionEmbedder {
  Gemma4UnifiedVisionEmbedder() = default;
  Gemma4UnifiedVisionEmbedder(const Builder& builder, const Gemma4UnifiedVisionConfig& c, const Gemma4TextConfig& text)
      : patch_ln1(builder.child("patch_ln1", "LayerNorm"), c.patch_elements()),
        patch_dense(builder.child("patch_dense", "Linear"), c.patch_elements(), c.mm_embed_dim, true),
        patch_ln2(builder.child("patch_ln2", "LayerNorm"), c.mm_embed_dim),
        pos_embedding(builder.parameter("pos_embedding", {c.mm_posemb_size, 2, c.mm_embed_dim})),
        pos_norm(builder.child("pos_norm", "LayerNorm"), c.mm_embed_dim),
        multimodal_embedder(builder.child("multimodal_embedder", "Gemma4UnifiedMultimodalEmbedder"), text,
                            c.mm_embed_dim),
        module(builder.module) {}

  /// last_hidden_state and pooler_output.
  std::pair<Tensor, Tensor> operator()(const Tensor& pixels_in, const Tensor& image_position_ids) const {
    Context& context = pixels_in.context();
    ModuleCall call(context, module);
    if (context.modules) context.modules->read(patch_dense.weight);  // `target_dtype`
    const Tensor pixel_values = to(pixels_in, patch_dense.weight.dtype());
    Tensor hidden_states = patch_ln1(pixel_values);
    hidden_states = patch_dense(hidden_states);
    hidden_states = patch_ln2(hidden_states);
    const Shape& sizes = image_position_ids.sizes();
    const Tensor clamped = integers(context, Op::clamp, sizes);
    const Tensor valid = unsqueeze(
        [&] {
          const Tensor are_patches = empty(context, Op::ne, sizes, DType::boolean);
          return empty(context, Op::to_copy, sizes, pos_embedding.dtype());
        }(),
        -1);
    const Tensor axes = integers(context, Op::arange, {2});
    Tensor pos_embs;
    {
      Tensor weighted;
      {
        // index() takes a copy of what is expanded; saved are the indices themselves.
        const Tensor columns = contiguous(expand(axes, sizes));
        Tensor embedded = index(pos_embedding, view(clamped, {clamped.numel()}), axes);
        embedded = view(embedded, {sizes[0], sizes[1], 2, pos_embedding.size(2)});
        weighted = mul(embedded, valid);
      }
      pos_embs = sum(weighted, {-2}, false);
    }
    hidden_states = add(hidden_states, pos_embs);
    hidden_states = pos_norm(hidden_states);
    const Tensor pooled_states = multimodal_embedder(hidden_states);
    return {call.result(hidden_states), call.result(pooled_states)};
  }

  LayerNorm patch_ln1;
  Linear patch_dense;
  LayerNorm patch_ln2;
  Tensor pos_embedding;
  LayerNorm pos_norm;
  Gemma4MultimodalEmbedder multimodal_embedder;
  ModuleId module = 0;
};

// get_block_sequence_ids_for_mask
Tensor vision_block_sequence_ids(const Tensor& mm_token_type_ids) {
  Context& context = mm_token_type_ids.context();
  const Shape& sizes = mm_token_type_ids.sizes();
  const auto booleans_of = [&](Op op) { return empty(context, op, sizes, DType::boolean); };
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor vision_group_ids, new_vision_starts, is_prev_vision, is_vision;
  {
    const Tensor are_images = booleans_of(Op::eq), are_videos = booleans_of(Op::eq);
    is_vision = booleans_of(Op::bitwise_or);
  }
  is_prev_vision = booleans_of(Op::roll);
  {
    const Tensor others = booleans_of(Op::bitwise_not);
    new_vision_starts = booleans_of(Op::bitwise_and);
  }
  {
    const Tensor sums = [&] {
      const Tensor as_integers = empty(context, Op::to_copy, sizes, DType::int32);
      return cumsum(as_integers, 1, DType::int64);
    }();
    vision_group_ids = integers(context, Op::sub, sizes);
  }
  const Tensor none = integers(context, Op::empty, {});
  return integers(context, Op::where, sizes);
}

/// What get_image_features gives.
struct Gemma4ImageFeatures {
  Tensor last_hidden_state;
  TensorList pooler_output;  ///< of an image each
};

// Gemma4ForConditionalGeneration, Gemma4UnifiedForConditionalGeneration
class Gemma4 : public LanguageModel {
 public:
  Gemma4(Context& context, const Gemma4Config& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context,
                      config.is_unified ? "Gemma4UnifiedForConditionalGeneration" : "Gemma4ForConditionalGeneration",
                      Modality::none, data, options),
        config_(config) {
    accepts_loss_kwargs = false;
    const Builder model = root_.child("model", config.is_unified ? "Gemma4UnifiedModel" : "Gemma4Model");
    model_ = model.module;
    const char* const embedder = config.is_unified ? "Gemma4UnifiedMultimodalEmbedder" : "Gemma4MultimodalEmbedder";
    if (config.vision)
      vision_tower_ = Gemma4VisionModel(model.child("vision_tower", "Gemma4VisionModel", Modality::vision),
                                        *config.vision, options);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 gemma4_text_parts(config.text, options));
    language_model_.blocks.first_block = vision_tower_.num_layers();
    if (config.audio)
      make_gemma4_audio(model.child("audio_tower", "Gemma4AudioModel", Modality::vision), *config.audio);
    if (config.vision)
      embed_vision_ = Gemma4MultimodalEmbedder(model.child("embed_vision", embedder, Modality::projector), config.text,
                                               config.vision->hidden_size);
    if (config.unified_vision)
      embed_patches_ =
          Gemma4UnifiedVisionEmbedder(model.child("embed_vision", "Gemma4UnifiedVisionEmbedder", Modality::projector),
                                      *config.unified_vision, config.text);
    if (config.audio || config.audio_embed_dim)
      Gemma4MultimodalEmbedder(model.child("embed_audio", embedder, Modality::projector), config.text,
                               config.audio ? config.audio->output_proj_dims : *config.audio_embed_dim);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() == 0) return;
    const std::int64_t rows = config_.pixel_rows();
    batch.pixel_values = input({data_.images(), rows, config_.pixel_elements()}, data_.pixel_dtype.value_or(dtype_));
    batch.image_position_ids = input({data_.images(), rows, 2});
    batch.mm_token_type_ids = input({data_.micro_batch_size, data_.sequence_length});
  }

  TensorList encoded_images(const ModelInputs& batch) override {
    if (!batch.pixel_values) return {};
    Gemma4ImageFeatures image = image_features(batch);
    TensorList outputs = std::move(image.pooler_output);
    outputs.push_back(std::move(image.last_hidden_state));
    return outputs;
  }

  /// Later tokens see what came before, and no mask of images.
  void prepare_inputs_for_generation(ModelInputs& inputs, bool is_first_iteration) override {
    if (!is_first_iteration) inputs.mm_token_type_ids = {};
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (has_images(inputs)) check_images(inputs);
    Tensor image_hidden_states;
    const Tensor hidden_states = model_forward(inputs, image_hidden_states);
    ModelOutputs outputs =
        causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function, language_model_.parts.logits);
    if (image_hidden_states) outputs.others.push_back(image_hidden_states);
    return outputs;
  }

 private:
  void check_images(const ModelInputs& inputs) {
    const bool is_flash = language_model_.masked == MaskedBy::flash_attention;
    if (inputs.rows != nullptr &&
        (inputs.rows->are_packed() || (is_flash && inputs.rows->are_padded(inputs.input_ids.size(1)))))
      refusal = Error{
          "not-modelled", "/data/images_per_sample",
          "found images in samples that are packed, or padded with flash-attn, which is not supported yet: expected 0"};
  }
  void complete(ModelInputs& batch) override { make_images(batch, data_.images_per_sample); }

  Gemma4ImageFeatures image_features(const ModelInputs& inputs) const {
    Gemma4ImageFeatures image;
    Tensor pooler_output;
    if (config_.is_unified)
      std::tie(image.last_hidden_state, pooler_output) = embed_patches_(inputs.pixel_values, inputs.image_position_ids);
    else
      image.last_hidden_state = vision_tower_(inputs.pixel_values, inputs.image_position_ids, data_.patches());
    if (!config_.is_unified) pooler_output = embed_vision_(image.last_hidden_state);
    const Tensor non_pad_mask = [&] {
      const Tensor are_patches = empty(context_, Op::ne, inputs.image_position_ids.sizes(), DType::boolean);
      return reduce(Op::all, are_patches, {2}, false, DType::boolean);
    }();
    if (config_.is_unified)
      pooler_output = index_mask(pooler_output, non_pad_mask, data_.images() * data_.tokens_per_image);
    {
      const Tensor patches = sum(non_pad_mask, {1}, false);
      if (!config_.is_unified) const Tensor tokens = integers(context_, Op::floor_divide, patches.sizes());
    }
    const std::vector<std::int64_t> split_sizes(static_cast<std::size_t>(data_.images()), data_.tokens_per_image);
    image.pooler_output = split(pooler_output, split_sizes, 0);
    return image;
  }

  /// The images' features in the place of their tokens.
  Tensor merge(const Tensor& inputs_embeds, const Tensor& image_mask, const Tensor& features) const {
    { const Tensor taken = index_mask(inputs_embeds, image_mask, features.numel()); }  // torch_compilable_check
    return masked_scatter(inputs_embeds, image_mask, features);
  }

  /// Where an image's tokens see each other. The names are model_forward's.
  void make_masks(const Tensor& inputs_embeds, const ModelInputs& inputs, MaskArguments& given,
                  Tensor& block_sequence_ids, CausalMasks& masks) const {
    const MaskedBy masked = language_model_.masked;
    if (config_.is_unified) {
      block_sequence_ids = integers(context_, Op::zeros, inputs.input_ids.sizes());
      if (inputs.mm_token_type_ids) block_sequence_ids = vision_block_sequence_ids(inputs.mm_token_type_ids);
      const std::int64_t window = config_.text.sliding_window;
      if (config_.text.has_both_types())  // `for layer_pattern in set(...)`
        masks.sliding_attention = create_blockwise_mask(inputs_embeds, given, masked, block_sequence_ids, window);
      masks.full_attention = create_blockwise_mask(inputs_embeds, given, masked, block_sequence_ids, 0);
    } else {
      block_sequence_ids = vision_block_sequence_ids(inputs.mm_token_type_ids);
      masks.full_attention = create_causal_mask(inputs_embeds, given, masked);
      masks.sliding_attention =
          create_sliding_blockwise_mask(inputs_embeds, given, masked, block_sequence_ids, config_.text.sliding_window);
    }
    given.masks = &masks;
  }

  Tensor model_forward(const ModelInputs& inputs, Tensor& image_features_out) const {
    ModuleCall call(context_, model_);
    const Shape& tokens = inputs.input_ids.sizes();
    const auto booleans_of = [&](Op op) { return empty(context_, op, tokens, DType::boolean); };
    Tensor image_mask = booleans_of(Op::eq);
    const Tensor video_mask = booleans_of(Op::eq), audio_mask = booleans_of(Op::eq);
    const Tensor multimodal_mask = [&] {
      const Tensor either = booleans_of(Op::bitwise_or);
      return booleans_of(Op::bitwise_or);
    }();
    Tensor llm_input_ids = integers(context_, Op::clone, tokens);
    {
      const Tensor pad = integers(context_, Op::empty, {});
      llm_input_ids = integers(context_, Op::where, tokens);
    }
    Tensor inputs_embeds = language_model_.embed(llm_input_ids);
    Tensor llm_inputs_embeds, per_layer_inputs;
    if (language_model_.per_layer) {
      if (context_.modules) context_.modules->read(language_model_.embed_tokens.weight);
      const Tensor pad_embedding = select(language_model_.embed_tokens.weight, 0, 0);
      llm_inputs_embeds =
          where(unsqueeze(multimodal_mask, -1), view(pad_embedding, {1, 1, pad_embedding.size(0)}), inputs_embeds);
      per_layer_inputs = language_model_.per_layer->get(llm_input_ids);
    }
    Gemma4ImageFeatures image;
    Tensor n_image_tokens;
    if (inputs.images)
      for (std::size_t i = 0; i < static_cast<std::size_t>(data_.images()); ++i)
        image.pooler_output.push_back((*inputs.images)[i]);
    else if (inputs.pixel_values)
      image = image_features(inputs);
    if (!image.pooler_output.empty()) {
      image_features_out = to(cat(image.pooler_output, 0), inputs_embeds.dtype());
      n_image_tokens = sum_all(image_mask);
      image_mask = expand(unsqueeze(image_mask, -1), inputs_embeds.sizes());
      inputs_embeds = merge(inputs_embeds, image_mask, image_features_out);
    }
    const Tensor position_ids =
        inputs.position_ids ? inputs.position_ids : language_model_.positions(context_, inputs_embeds.size(1));
    MaskArguments given{position_ids, inputs.attention_mask, inputs.rows};
    Tensor block_sequence_ids;
    CausalMasks masks;
    if (config_.sees_blocks && (inputs.mm_token_type_ids || config_.is_unified))
      make_masks(inputs_embeds, inputs, given, block_sequence_ids, masks);
    ModuleCall self(context_, language_model_.module);
    Tensor name = inputs_embeds;
    const Tensor last_hidden_state =
        self.result(language_model_.run(name, given, nullptr, per_layer_inputs, inputs.logits_to_keep));
    return call.result(last_hidden_state);
  }

  Gemma4Config config_;
  Gemma4VisionModel vision_tower_;
  Gemma4MultimodalEmbedder embed_vision_;
  Gemma4UnifiedVisionEmbedder embed_patches_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_gemma4(Context& context, const Gemma4Config& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Gemma4>(context, config, data, options);
}

}  // namespace oometer
