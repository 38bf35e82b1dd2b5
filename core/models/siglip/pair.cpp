#include "models/siglip/pair.h"

#include <vector>

#include "models/siglip/naflex.h"
#include "nn/checkpointing.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// SiglipTextModel and SiglipModel. Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct SiglipTextModel {
  SiglipTextModel() = default;
  SiglipTextModel(const Builder& builder, const SiglipConfig& config, const ModelOptions& options)
      : embeddings(builder.child("embeddings", config.is_naflex() ? "Siglip2TextEmbeddings" : "SiglipTextEmbeddings"),
                   config.text),
        encoder(builder.child("encoder", config.vision.family->encoder),
                text_layers(config.text, *config.vision.family, options.attention, false),
                config.text.num_hidden_layers, options.checkpointing),
        final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), config.text.hidden_size),
        head(builder.child("head", "Linear"), config.text.hidden_size, config.projection_size, true),
        module(builder.module) {}

  ClipVisionOutput operator()(const Tensor& input_ids) const {
    ModuleCall call(input_ids.context(), module);
    const Tensor hidden_states = wrapped_call(
        input_ids, embeddings.module, [&](const Tensor& ids) { return embeddings(ids, encoder.checkpointing); });
    TensorList none;
    ClipVisionOutput output;
    const Tensor encoder_outputs = encoder(hidden_states, {}, {}, none);
    output.last_hidden_state = final_layer_norm(encoder_outputs);
    output.pooler_output = select(output.last_hidden_state, 1, input_ids.size(1) - 1);
    output.pooler_output = head(output.pooler_output);
    for (Tensor* tensor : {&output.last_hidden_state, &output.pooler_output}) *tensor = call.result(*tensor);
    return output;
  }

  ClipTextEmbeddings embeddings;
  ClipEncoder encoder;
  LayerNorm final_layer_norm;
  Linear head;
  ModuleId module = 0;
};

// A sigmoid of each text with each image: 1 where they belong together, -1 elsewhere.
Tensor sigmoid_loss(const Tensor& logits_per_text) {
  Context& context = logits_per_text.context();
  const std::int64_t texts = logits_per_text.size(0);
  const Tensor eye = empty(context, Op::eye, {texts, texts}, DType::float32);
  Tensor m1_diag1;
  {
    Tensor ones = empty_like(Op::ones_like, logits_per_text);
    const Tensor minus = neg(ones);
    ones.reset();
    const Tensor twice = mul_scalar(eye);
    m1_diag1 = add(minus, twice);
  }
  Tensor loglik;
  {
    const Tensor signed_logits = mul(m1_diag1, logits_per_text);
    loglik = activation_of_input(Op::log_sigmoid, Op::log_sigmoid_backward, signed_logits, false);
  }
  Tensor nll;
  {
    const Tensor total = sum(loglik, {-1}, false);
    nll = neg(total);
  }
  return mean_all(nll);
}

class Siglip : public Model {
 public:
  Siglip(Context& context, const SiglipConfig& config, const DataConfig& data, const ModelOptions& options)
      : context_(context), config_(config), data_(data), dtype_(options.dtype) {
    loss_type = config.has_text ? LossType::contrastive : LossType::none;
    const Modality modality = config.has_text ? Modality::none : Modality::vision;
    const char* const pair = config.is_naflex() ? "Siglip2Model" : "SiglipModel";
    const ModuleId added = context.add_root(config.has_text ? pair : config.vision.family->model, modality);
    const Builder builder{&context, &parameters,   &buffers,         added,
                          modality, options.dtype, options.wrapping, options.quantizer};
    if (!config.has_text && config.is_naflex()) {
      naflex_ = Siglip2VisionModel(builder, config.vision, config.num_patches, options);
      if (!options.checkpointing.input_require_grads) naflex_.embeddings.checkpointing = {};
      return;
    }
    if (!config.has_text) {
      vision_model_ = SiglipVisionModel(builder, config.vision, options);
      if (options.checkpointing.input_require_grads) vision_model_.embeddings.checkpointing = options.checkpointing;
      return;
    }
    text_model_ = SiglipTextModel(
        builder.child("text_model", config.is_naflex() ? "Siglip2TextModel" : "SiglipTextModel", Modality::language),
        config, options);
    const Builder tower = builder.child("vision_model", config.vision.family->model, Modality::vision);
    if (config.is_naflex())
      naflex_ = Siglip2VisionModel(tower, config.vision, config.num_patches, options);
    else
      vision_model_ = SiglipVisionModel(tower, config.vision, options);
    (config.is_naflex() ? naflex_.encoder : vision_model_.encoder).blocks.first_block =
        text_model_.encoder.layers.size();
    vision_model_.embeddings.checkpointing = options.checkpointing;
    builder.children_are_through();
    logit_scale_ = builder.parameter("logit_scale", {1});
    logit_bias_ = builder.parameter("logit_bias", {1});
  }

  ModelInputs make_inputs(bool) override {
    const auto input = [&](const Shape& sizes, DType dtype) {
      return empty(context_, Op::input, sizes, dtype, Role::input);
    };
    ModelInputs batch;
    if (config_.has_text) batch.input_ids = input({data_.micro_batch_size, data_.sequence_length}, DType::int64);
    if (config_.is_naflex()) {
      const ClipVisionConfig& v = config_.vision;
      batch.pixel_values = input({data_.images(), config_.num_patches, v.num_channels * v.patch_size * v.patch_size},
                                 data_.pixel_dtype.value_or(dtype_));
      batch.pixel_attention_mask = input({data_.images(), config_.num_patches}, DType::int32);
      batch.image_grid_thw = input({data_.images(), 2}, DType::int64);  // spatial_shapes
      return batch;
    }
    batch.pixel_values = input({data_.images(), config_.vision.num_channels, data_.image_height, data_.image_width},
                               data_.pixel_dtype.value_or(dtype_));
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ClipVisionOutput vision = config_.is_naflex() ? see_patches(inputs) : vision_model_(inputs.pixel_values);
    if (!config_.has_text) return {{}, vision.pooler_output, {vision.last_hidden_state}};
    ClipVisionOutput text = text_model_(inputs.input_ids);
    Tensor image_embeds = vision.pooler_output, text_embeds = text.pooler_output;
    for (Tensor* embeds : {&image_embeds, &text_embeds}) *embeds = div(*embeds, linalg_vector_norm(*embeds));
    Tensor logits_per_text = matmul(text_embeds, transpose(image_embeds, 0, 1));
    {
      const Tensor scale = exp(logit_scale_);
      const Tensor scaled = mul(logits_per_text, scale);
      logits_per_text = add(scaled, logit_bias_);
    }
    const Tensor logits_per_image = transpose(logits_per_text, 0, 1);
    Tensor loss;  // return_loss=True
    if (loss_function) loss = sigmoid_loss(logits_per_text);
    return {loss,
            {},
            {logits_per_image, logits_per_text, text_embeds, image_embeds, text.last_hidden_state, text.pooler_output,
             vision.last_hidden_state, vision.pooler_output}};
  }

 private:
  ClipVisionOutput see_patches(const ModelInputs& inputs) const {
    std::vector<Cells> shapes;
    for (std::int64_t i = 0; i < data_.images(); ++i) shapes.emplace_back(data_.image(i).grid_h, data_.image(i).grid_w);
    return naflex_(inputs.pixel_values, inputs.pixel_attention_mask, shapes);
  }

  Context& context_;
  SiglipConfig config_;
  DataConfig data_;
  DType dtype_;
  SiglipTextModel text_model_;
  SiglipVisionModel vision_model_;
  Siglip2VisionModel naflex_;  ///< in its place
  Tensor logit_scale_, logit_bias_;
};

}  // namespace

std::unique_ptr<Model> build_siglip(Context& context, const SiglipConfig& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Siglip>(context, config, data, options);
}

}  // namespace oometer
