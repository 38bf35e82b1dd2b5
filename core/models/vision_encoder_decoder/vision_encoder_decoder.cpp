#include "models/vision_encoder_decoder/vision_encoder_decoder.h"

#include <utility>

#include "models/kit/copied_states.h"
#include "models/kit/encoder.h"
#include "models/kit/shift_tokens.h"
#include "models/vision_encoder_decoder/parts.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// ViTEmbeddings, DeiTEmbeddings: the second has one more token before the patches.
struct DeitEmbeddings {
  DeitEmbeddings() = default;
  DeitEmbeddings(const Builder& builder, const VitConfig& c, const ModelOptions& options)
      : dropout_prob(c.hidden_dropout_prob), checkpointing(options.checkpointing), module(builder.module) {
    cls_token = builder.parameter("cls_token", {1, 1, c.hidden_size});
    const Builder patches = builder.child("patch_embeddings", c.names->patch_embeddings);
    patch_embeddings = patches.module;
    projection = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true);
    position_embeddings = builder.parameter("position_embeddings", {1, c.num_positions() + 1, c.hidden_size});
    distillation_token = builder.parameter("distillation_token", {1, 1, c.hidden_size});
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor pixel_values = call.argument(argument);
    const std::int64_t batch = pixel_values.size(0), dim = cls_token.size(2);
    Tensor embeddings;
    {
      ModuleCall patches(argument.context(), patch_embeddings);
      const Tensor pixels = to(pixel_values, projection.weight.dtype());
      const Tensor projected = projection(pixels);
      embeddings =
          transpose(reshape(projected, {batch, dim, checked_product(projected.size(2), projected.size(3))}), 1, 2);
      embeddings = patches.result(embeddings);
    }
    if (checkpointing.input_require_grads) require_input_grad(checkpointing, embeddings, patch_embeddings);
    const Tensor cls_tokens = expand(cls_token, {batch, 1, dim}),
                 distillation_tokens = expand(distillation_token, {batch, 1, dim});
    embeddings = cat({cls_tokens, distillation_tokens, embeddings}, 1);
    embeddings = add(embeddings, position_embeddings);
    return call.result(dropout(embeddings, dropout_prob));
  }

  Tensor cls_token, position_embeddings, distillation_token;
  Conv2d projection;
  double dropout_prob = 0;
  CheckpointingConfig checkpointing;
  ModuleId module = 0, patch_embeddings = 0;
};

class VitTower : public VisionTower {
 public:
  VitTower(const Builder& builder, const VitConfig& c, const ModelOptions& options)
      : is_deit_(c.names == &kDeit), module_(builder.module) {
    const Builder embeddings = builder.child("embeddings", c.names->embeddings);
    if (is_deit_)
      deit_embeddings_ = DeitEmbeddings(embeddings, c, options);
    else
      embeddings_ = VitEmbeddings(embeddings, c, options);
    layers_ = VitLayers(builder, "layers", c, options);
    layernorm_ = LayerNorm(builder.child("layernorm", "LayerNorm"), c.hidden_size);
    const Builder pooler = builder.child("pooler", is_deit_ ? "DeiTPooler" : "ViTPooler");
    pooler_ = pooler.module;
    dense_ = Linear(pooler.child("dense", "Linear"), c.hidden_size, c.pooler_output_size, true);
  }

  std::size_t checkpointable() const override { return layers_.layers.size(); }

  Tensor operator()(const Tensor& given, Tensor& pooler_output) override {
    Context& context = given.context();
    ModuleCall call(context, module_);
    const Conv2d& projection = is_deit_ ? deit_embeddings_.projection : embeddings_.projection;
    if (context.modules) context.modules->read(projection.weight);  // `expected_dtype`
    const Tensor pixel_values = to(call.keyword(given), projection.weight.dtype());
    const Tensor embedding_output = is_deit_ ? deit_embeddings_(pixel_values) : embeddings_(pixel_values);
    const Tensor hidden_states = layers_(embedding_output);
    const Tensor sequence_output = layernorm_(hidden_states);
    {
      ModuleCall pool(context, pooler_);
      const Tensor first_token_tensor = select(pool.argument(sequence_output), 1, 0);
      Tensor pooled_output = dense_(first_token_tensor);
      pooled_output = tanh(pooled_output);
      pooler_output = pool.result(pooled_output);
    }
    pooler_output = call.result(pooler_output);
    return call.result(sequence_output);
  }

 private:
  bool is_deit_;
  VitEmbeddings embeddings_;
  DeitEmbeddings deit_embeddings_;
  VitLayers layers_;
  LayerNorm layernorm_;
  Linear dense_;
  ModuleId module_, pooler_ = 0;
};

class VisionEncoderDecoder : public EncoderModel {
 public:
  VisionEncoderDecoder(Context& context, const VisionEncoderDecoderConfig& c, const DataConfig& data,
                       const ModelOptions& options)
      : EncoderModel(context, c.decoder, data, options),
        num_channels_(c.vision().num_channels),
        dtype_(options.dtype),
        is_reentrant_(options.checkpointing.mode == CheckpointMode::reentrant),
        use_cache_(c.use_cache && options.checkpointing.mode == CheckpointMode::none) {
    ModelOptions its = options;
    if (is_reentrant_) its.checkpointing.mode = CheckpointMode::none;  // it is refused
    const Builder encoder = root_.child("encoder", c.vision().names->model, Modality::vision);
    encoder_ = c.donut() ? make_donut_swin_tower(encoder, *c.donut(), its) : make_vit_tower(encoder, c.vision(), its);
    const std::size_t first_block = encoder_->checkpointable();
    const Builder decoder =
        root_.child("decoder", c.is_trocr ? "TrOCRForCausalLM" : "MBartForCausalLM", Modality::language);
    decoder_module_ = decoder.module;
    const Builder wrapper = decoder.child("model", c.is_trocr ? "TrOCRDecoderWrapper" : "MBartDecoderWrapper"),
                  inner = wrapper.child("decoder", c.is_trocr ? "TrOCRDecoder" : "MBartDecoder");
    if (c.is_trocr)
      decoder_ = make_trocr_decoder(inner, c.decoder, its, first_block);
    else
      decoder_ = make_bart_decoder(inner, c.decoder, its, first_block);
    lm_head_ = Linear(decoder.child(c.is_trocr ? "output_projection" : "lm_head", "Linear"), c.decoder.hidden_size,
                      c.decoder.vocab_size, false);
    if (c.decoder.tie_word_embeddings) tie_weight(lm_head_.weight, lm_head_.module, decoder_->embed_tokens.weight);
    if (c.projects())
      enc_to_dec_proj_ = Linear(root_.child("enc_to_dec_proj", "Linear", Modality::projector), c.vision().hidden_size,
                                c.decoder.hidden_size, true);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch;
    batch.pixel_values =
        empty(context_, Op::input, {data_.images(), num_channels_, data_.image_height, data_.image_width},
              data_.pixel_dtype.value_or(dtype_), Role::input);
    Tensor& targets = with_labels ? batch.labels : batch.input_ids;
    targets = empty(context_, Op::input, {data_.micro_batch_size, data_.sequence_length}, DType::int64, Role::input);
    batch.rows = &data_.rows;
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (is_reentrant_)
      context_.refusal =
          Error{"not-modelled", "/training/activation_checkpointing",
                "found \"reentrant\", which is not supported yet with decoders that see an encoder's states; expected "
                "\"non-reentrant\""};
    const bool caches = use_cache_ || context_.past_key_values;
    const Scoped<KvCache*> own(context_.past_key_values, nullptr);
    Tensor pooler_output;
    Tensor last_hidden_state = (*encoder_)(inputs.pixel_values, pooler_output);
    Tensor encoder_hidden_states = last_hidden_state;
    if (enc_to_dec_proj_.weight) encoder_hidden_states = enc_to_dec_proj_(encoder_hidden_states);
    const Tensor decoder_input_ids = inputs.labels ? shift_tokens_right(inputs.labels) : inputs.input_ids;
    TensorList cached;
    Tensor logits, hidden_states;
    {
      ModuleCall call(context_, decoder_module_);
      CopiedStates cache(cached);
      hidden_states = (*decoder_)(decoder_input_ids, call.keyword(encoder_hidden_states), caches ? &cache : nullptr);
      logits = call.result(lm_head_(hidden_states));
    }
    hidden_states.reset();
    ModelOutputs outputs = outputs_of(std::move(logits), inputs);
    for (std::size_t i = 0; i < cached.size(); ++i) outputs.others.push_back(cached[i]);
    outputs.others.push_back(std::move(last_hidden_state));
    return outputs;
  }

 private:
  std::int64_t num_channels_;
  DType dtype_;
  bool is_reentrant_, use_cache_;
  std::unique_ptr<VisionTower> encoder_;
  std::unique_ptr<BartDecoderInside> decoder_;
  ModuleId decoder_module_ = 0;
  Linear lm_head_, enc_to_dec_proj_;
};

}  // namespace

std::unique_ptr<VisionTower> make_vit_tower(const Builder& builder, const VitConfig& config,
                                            const ModelOptions& options) {
  return std::make_unique<VitTower>(builder, config, options);
}

std::unique_ptr<Model> build_vision_encoder_decoder(Context& context, const VisionEncoderDecoderConfig& config,
                                                    const DataConfig& data, const ModelOptions& options) {
  return std::make_unique<VisionEncoderDecoder>(context, config, data, options);
}

}  // namespace oometer
