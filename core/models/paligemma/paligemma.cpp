#include "models/paligemma/paligemma.h"

#include <utility>

#include "models/blockwise_mask.h"
#include "models/gemma/gemma.h"
#include "models/gemma2/gemma2.h"
#include "models/kit/image_text.h"
#include "models/kit/recurrent.h"
#include "models/siglip/siglip.h"
#include "nn/kv_cache.h"
#include "nn/wrapped_call.h"
#include "ops/integers.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct PaliGemmaMultiModalProjector {
  PaliGemmaMultiModalProjector() = default;
  PaliGemmaMultiModalProjector(const Builder& builder, const PaliGemmaConfig& config)
      : linear(builder.child("linear", "Linear"), config.vision.hidden_size, config.projection_dim, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    return call.result(linear(call.argument(argument)));
  }

  Linear linear;
  ModuleId module = 0;
};

/// Gemma 2 caps its attention weights, which SDPA cannot: asked for SDPA, from_pretrained gives it to the tower alone
/// (modeling_utils.py, get_correct_attn_implementation, of each part's class).
ModelOptions language_options(const PaliGemmaConfig& config, ModelOptions options) {
  if (config.text.softcaps_attention && !is_flash_attention(options.attention))
    options.attention = AttentionKind::eager;
  return options;
}

class PaliGemma : public ImageTextModel {
 public:
  PaliGemma(Context& context, const PaliGemmaConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "PaliGemmaForConditionalGeneration", Modality::none, data, options), config_(config) {
    has_token_type_ids = true;
    const Builder model = root_.child("model", "PaliGemmaModel");
    model_ = model.module;
    vision_tower_ = SiglipVisionModel(model.child("vision_tower", config.vision.family->model, Modality::vision),
                                      config.vision, options);
    vision_tower_.embeddings.checkpointing = options.checkpointing;
    projector_ = PaliGemmaMultiModalProjector(
        model.child("multi_modal_projector", "PaliGemmaMultiModalProjector", Modality::projector), config);
    const ModelOptions text = language_options(config, options);
    DecoderParts parts = config.has_gemma2 ? gemma2_parts(config.text, text) : gemma_parts(config.text, text);
    complete_parts(parts, config.text);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, text,
                 std::move(parts));
    language_model_.blocks.first_block = vision_tower_.encoder.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    ImageTextModel::make_images(batch, images_per_sample);
    batch.mm_token_type_ids = input({data_.micro_batch_size, data_.sequence_length});
  }
  void prepare_inputs_for_generation(ModelInputs& inputs, bool) override {
    inputs.position_ids = add_scalar(inputs.position_ids);  // they begin with 1
  }
  /// A token that was generated is of the suffix.
  void update_model_kwargs_for_generation(const Tensor& before, Tensor& token_type_ids) override {
    const Tensor ones = integers(context_, Op::fill, {before.size(0), 1});
    token_type_ids = integers(context_, Op::cat, token_type_ids.sizes());
  }

 private:
  Shape pixel_sizes() const override {
    const ClipVisionConfig& v = config_.vision;
    return {data_.images(), v.num_channels, v.image_size, v.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    ClipVisionOutput vision_outputs = vision_tower_(batch.pixel_values);
    vision_outputs.pooler_output = wrapped_call(vision_outputs.last_hidden_state, projector_.module, projector_);
    return {{vision_outputs.pooler_output}, {vision_outputs.last_hidden_state}};
  }

  Tensor make_positions(Context& context, std::int64_t length) const override {
    Tensor position_ids = integers(context, Op::arange, {length});
    position_ids = integers(context, Op::add, {length});
    position_ids = integers(context, Op::add, {1, length});  // they begin with 1
    return position_ids;
  }

  Tensor run_language(const Tensor& inputs_embeds, const ModelInputs& inputs) const override {
    MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows};
    const KvCache* const cache = context_.past_key_values;
    const bool is_first_iteration = !cache || cache->length() == 0;
    Tensor block_sequence_ids;
    if (is_first_iteration) {
      // torch.where(token_type_ids == 0, 0, -1)
      const Shape& sizes = inputs.mm_token_type_ids.sizes();
      const Tensor is_prefix = empty(context_, Op::eq, sizes, DType::boolean);
      const Tensor zero = integers(context_, Op::empty, {}), minus_one = integers(context_, Op::empty, {});
      block_sequence_ids = integers(context_, Op::where, sizes);
    }
    const MaskedBy masked = language_model_.masked;
    const std::int64_t window = config_.text.sliding_window;
    CausalMasks masks;
    const auto mask = [&](std::int64_t sliding_window) {
      return is_first_iteration
                 ? create_blockwise_mask(inputs_embeds, given, masked, block_sequence_ids, sliding_window)
                 : create_causal_mask(inputs_embeds, given, masked, sliding_window);
    };
    masks.full_attention = mask(0);
    if (window != 0) masks.sliding_attention = mask(window);
    // Gemma makes its own where it is given none; Gemma 2 is given one for each kind of layer.
    if (window != 0 || masks.full_attention)
      given.masks = &masks;
    else
      given.attention_mask = {};
    return run_decoder(inputs_embeds, given);
  }

  PaliGemmaConfig config_;
  SiglipVisionModel vision_tower_;
  PaliGemmaMultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_paligemma(Context& context, const PaliGemmaConfig& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<PaliGemma>(context, config, data, options);
}

}  // namespace oometer
