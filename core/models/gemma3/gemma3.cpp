#include "models/gemma3/gemma3.h"

#include "models/blockwise_mask.h"
#include "models/gemma3_text/gemma3_text.h"
#include "models/kit/classifier_head.h"
#include "models/kit/image_text.h"
#include "models/kit/norms.h"
#include "models/siglip/siglip.h"
#include "nn/kv_cache.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct MultiModalProjector {
  MultiModalProjector() = default;
  MultiModalProjector(const Builder& builder, const Gemma3Config& config, const ModelOptions& options)
      : weight(builder.parameter("mm_input_projection_weight", {config.vision.hidden_size, config.text.hidden_size})),
        norm(builder.child("mm_soft_emb_norm", "Gemma3RMSNorm"),
             norm_of(options.liger, rms_norm_one_plus, liger_norm_apart), {config.vision.hidden_size}),
        patches_per_image(config.patches_per_image()),
        tokens_per_side(config.tokens_per_side()),
        avg_pool_module(builder.child("avg_pool", "AvgPool2d").module),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor vision_outputs = call.argument(argument);
    const std::int64_t batch_size = vision_outputs.size(0), hidden_size = vision_outputs.size(2);
    Tensor reshaped = transpose(vision_outputs, 1, 2), pooled;
    reshaped = reshape(reshaped, {batch_size, hidden_size, patches_per_image, patches_per_image});
    reshaped = contiguous(reshaped);
    {
      const ModuleScope scope(argument.context(), avg_pool_module);
      pooled = avg_pool(reshaped, {batch_size, hidden_size, tokens_per_side, tokens_per_side});
    }
    pooled = view(pooled, {batch_size, hidden_size, tokens_per_side * tokens_per_side});
    pooled = transpose(pooled, 1, 2);
    const Tensor normed = norm(pooled);
    if (argument.context().modules) argument.context().modules->read(weight);
    const Tensor projected = matmul(normed, weight);
    return call.result(to(projected, vision_outputs.dtype()));
  }

  Tensor weight;
  Norm norm;
  std::int64_t patches_per_image = 0, tokens_per_side = 0;
  ModuleId avg_pool_module = 0, module = 0;
};

// get_block_sequence_ids_for_mask
Tensor block_sequence_ids_of(const Tensor& token_type_ids) {
  Context& context = token_type_ids.context();
  const Shape& sizes = token_type_ids.sizes();
  const auto booleans = [&](Op op, const Shape& of) { return empty(context, op, of, DType::boolean); };
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor group_ids, new_image_start, is_previous_image, is_image;
  is_image = booleans(Op::eq, sizes);
  is_previous_image = booleans(Op::constant_pad_nd, {sizes[0], sizes[1] + 1});
  {
    const Tensor others = booleans(Op::bitwise_not, sizes);
    new_image_start = booleans(Op::bitwise_and, sizes);
  }
  {
    const Tensor sums = [&] {
      const Tensor as_integers = empty(context, Op::to_copy, sizes, DType::int32);
      return cumsum(as_integers, 1, DType::int64);
    }();
    group_ids = integers(context, Op::sub, sizes);
  }
  const Tensor none = integers(context, Op::empty, {});
  return integers(context, Op::where, sizes);
}

// Gemma3ForConditionalGeneration, Gemma3ForSequenceClassification
class Gemma3 : public ImageTextModel {
 public:
  Gemma3(Context& context, const Gemma3Config& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, config.classifier ? config.classifier.class_name : "Gemma3ForConditionalGeneration",
                       Modality::none, data, options),
        config_(config) {
    has_token_type_ids = true;
    const Builder model = root_.child("model", "Gemma3Model");
    model_ = model.module;
    vision_tower_ = SiglipVisionModel(model.child("vision_tower", config.vision.family->model, Modality::vision),
                                      config.vision, options);
    vision_tower_.embeddings.checkpointing = options.checkpointing;
    vision_tower_.post_layernorm.liger = options.liger.layer_norm;
    for (ClipEncoderLayer& layer : vision_tower_.encoder.layers)
      layer.layer_norm1.liger = layer.layer_norm2.liger = options.liger.layer_norm;
    projector_ = MultiModalProjector(
        model.child("multi_modal_projector", "Gemma3MultiModalProjector", Modality::projector), config, options);
    DecoderParts parts = gemma3_text_parts(config.text, options);
    parts.masks_know_positions = false;
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 std::move(parts));
    language_model_.blocks.first_block = vision_tower_.encoder.layers.size();
    if (!config.classifier) {
      make_head(root_, config.text, config.tie_word_embeddings);
      return;
    }
    score_ = ClassifierHead(root_, config.classifier, config.text.hidden_size);
    lm_head_ = score_.linear();
    has_pad_token = config.text.has_pad_token;
    loss_type = score_.loss_type();
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (!score_) return ImageTextModel::forward(inputs);
    ModelInputs unlabelled = inputs;
    unlabelled.labels = {};
    const ModelOutputs outputs = ImageTextModel::forward(unlabelled);
    return score_.pool(outputs.others.front(), inputs, has_pad_token, loss_function);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    ImageTextModel::make_images(batch, images_per_sample);
    if (data_.images() > 0) batch.mm_token_type_ids = input({data_.micro_batch_size, data_.sequence_length});
  }
  /// Later tokens see what came before, and no mask of images.
  void prepare_inputs_for_generation(ModelInputs& inputs, bool is_first_iteration) override {
    if (!is_first_iteration) inputs.mm_token_type_ids = {};
  }
  bool create_masks_for_generate(const ModelInputs& inputs, CausalMasks& masks) override {
    if (!inputs.mm_token_type_ids) return false;
    const Tensor block_sequence_ids = block_sequence_ids_of(inputs.mm_token_type_ids);
    const Shape& tokens = inputs.input_ids.sizes();
    const Tensor inputs_embeds = empty(context_, Op::empty, {tokens[0], tokens[1], 0}, dtype_);
    MaskArguments given;
    given.position_ids = inputs.position_ids;
    masks = masks_for_vision_model(inputs_embeds, given, block_sequence_ids);
    return true;
  }

 private:
  Shape pixel_sizes() const override {
    const ClipVisionConfig& v = config_.vision;
    return {data_.images(), v.num_channels, v.image_size, v.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    ClipVisionOutput vision_outputs = vision_tower_(batch.pixel_values);
    vision_outputs.pooler_output = projector_(vision_outputs.last_hidden_state);
    return {{vision_outputs.pooler_output}, {vision_outputs.last_hidden_state}};
  }

  // create_masks_for_vision_model
  CausalMasks masks_for_vision_model(const Tensor& inputs_embeds, const MaskArguments& given,
                                     const Tensor& block_sequence_ids) const {
    const MaskedBy masked = language_model_.masked;
    CausalMasks masks;
    masks.full_attention = create_blockwise_mask(inputs_embeds, given, masked, block_sequence_ids, 0);
    if (const std::int64_t window = config_.text.sliding_window; window != 0)
      masks.sliding_attention = create_sliding_blockwise_mask(inputs_embeds, given, masked, block_sequence_ids, window);
    return masks;
  }

  Tensor run_language(const Tensor& inputs_embeds, const ModelInputs& inputs) const override {
    MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q};
    Tensor block_sequence_ids;
    CausalMasks masks;
    if (inputs.causal_masks) {  // generate() has made them already
      given.masks = &inputs.causal_masks;
    } else if (inputs.mm_token_type_ids) {
      block_sequence_ids = block_sequence_ids_of(inputs.mm_token_type_ids);
      masks = masks_for_vision_model(inputs_embeds, given, block_sequence_ids);
      given.masks = &masks;
    } else if (inputs.position_ids) {  // create_masks_for_generate; without them the masks know of no positions
      const MaskedBy masked = language_model_.masked;
      masks.full_attention = create_causal_mask(inputs_embeds, given, masked);
      if (config_.text.sliding_window != 0)
        masks.sliding_attention = create_causal_mask(inputs_embeds, given, masked, config_.text.sliding_window);
      given.masks = &masks;
    }
    return run_decoder(inputs_embeds, given);
  }

  Tensor make_labels() override { return score_ ? score_.make_labels(context_, data_) : ImageTextModel::make_labels(); }

  Gemma3Config config_;
  ClassifierHead score_;
  SiglipVisionModel vision_tower_;
  MultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_gemma3(Context& context, const Gemma3Config& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Gemma3>(context, config, data, options);
}

}  // namespace oometer
