#include "models/gemma3n/gemma3n.h"

#include <utility>

#include "models/gemma3n/mobilenetv5.h"
#include "models/gemma3n_text/gemma3n_text.h"
#include "models/kit/decoder.h"
#include "models/kit/norms.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// x *= number
Tensor scale_in_place(const Tensor& x) {
  Record record(Op::mul, [](Backward& b) { b.give(0, mul_scalar(b.grad())); }, {&x});
  return in_place(record, Op::mul, x);
}

struct Gemma3nMultimodalEmbedder {
  Gemma3nMultimodalEmbedder() = default;
  Gemma3nMultimodalEmbedder(const Builder& builder, std::int64_t vocab_size, std::int64_t size,
                            std::int64_t text_hidden_size)
      : embedding(builder.child("embedding", "Embedding"), vocab_size, size),
        hard_embedding_norm(builder.child("hard_embedding_norm", "Gemma3nRMSNorm"), rms_norm_by_pow, {size}),
        soft_embedding_norm(builder.child("soft_embedding_norm", "Gemma3nRMSNorm"), rms_norm_by_pow, {size}),
        embedding_projection(builder.child("embedding_projection", "Linear"), size, text_hidden_size, false),
        embedding_post_projection_norm(builder.child("embedding_post_projection_norm", "Gemma3nRMSNorm"),
                                       rms_norm_by_pow),
        module(builder.module) {}

  Tensor of_tokens(const Tensor& input_ids) const {
    ModuleCall call(input_ids.context(), module);
    const Tensor hard_emb = [&] {
      const Tensor in_table = integers(input_ids.context(), Op::sub, input_ids.sizes());
      return embedding(in_table);
    }();
    const Tensor emb_norm = hard_embedding_norm(hard_emb);
    const Tensor emb_norm_proj = embedding_projection(emb_norm);
    return call.result(embedding_post_projection_norm(emb_norm_proj));
  }

  Tensor of_features(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor emb_norm = soft_embedding_norm(call.argument(argument));
    const Tensor emb_norm_proj = embedding_projection(emb_norm);
    return call.result(embedding_post_projection_norm(emb_norm_proj));
  }

  Embedding embedding;
  Norm hard_embedding_norm, soft_embedding_norm;
  Linear embedding_projection;
  Norm embedding_post_projection_norm;
  ModuleId module = 0;
};

class Gemma3n : public LanguageModel {
 public:
  Gemma3n(Context& context, const Gemma3nConfig& config, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, "Gemma3nForConditionalGeneration", Modality::none, data, options), config_(config) {
    accepts_loss_kwargs = false;
    const Builder model = root_.child("model", "Gemma3nModel");
    model_ = model.module;
    const Builder tower = model.child("vision_tower", "TimmWrapperModel", Modality::vision);
    tower_ = tower.module;
    vision_tower_ = MobileNetV5Encoder(tower.child("timm_model", "MobileNetV5Encoder"), options.attention);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options,
                 gemma3n_text_parts(config.text, options));
    make_gemma3n_audio(model.child("audio_tower", "Gemma3nAudioEncoder", Modality::vision), config.audio);
    embed_vision_ =
        Gemma3nMultimodalEmbedder(model.child("embed_vision", "Gemma3nMultimodalEmbedder", Modality::projector),
                                  config.vision_vocab_size, kMobileNetV5Features, config.text.hidden_size);
    embed_audio_ =
        Gemma3nMultimodalEmbedder(model.child("embed_audio", "Gemma3nMultimodalEmbedder", Modality::projector),
                                  config.audio.vocab_size, config.audio.hidden_size, config.text.hidden_size);
    make_head(root_, config.text, config.tie_word_embeddings);
  }

  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override {
    data_.images_per_sample = images_per_sample;
    if (data_.images() > 0)
      batch.pixel_values =
          input({data_.images(), 3, kMobileNetV5ImageSize, kMobileNetV5ImageSize}, data_.pixel_dtype.value_or(dtype_));
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor image_hidden_states;
    const Tensor hidden_states = model_forward(inputs, image_hidden_states);
    ModelOutputs outputs =
        causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function, language_model_.parts.logits);
    if (image_hidden_states) outputs.others.push_back(image_hidden_states);
    return outputs;
  }

 private:
  void complete(ModelInputs& batch) override { make_images(batch, data_.images_per_sample); }

  /// What get_image_features gives: last_hidden_state, pooler_output.
  std::pair<Tensor, Tensor> image_features(const Tensor& pixels_in) const {
    Tensor features;
    {
      ModuleCall call(context_, tower_);
      if (context_.modules) context_.modules->read(vision_tower_.first_weight());  // `self.dtype`
      const Tensor pixel_values = to(call.argument(pixels_in), vision_tower_.first_weight().dtype());
      features = call.result(vision_tower_(pixel_values));
    }
    Tensor last_hidden_state =
        reshape(features, {features.size(0), features.size(1), kMobileNetV5OutputSize * kMobileNetV5OutputSize});
    last_hidden_state = permute(last_hidden_state, {0, 2, 1});
    last_hidden_state = scale_in_place(last_hidden_state);
    Tensor pooler_output = embed_vision_.of_features(last_hidden_state);
    return {std::move(features), std::move(pooler_output)};
  }

  Tensor booleans(Op op, const Shape& sizes) const { return empty(context_, op, sizes, DType::boolean); }

  Tensor model_forward(const ModelInputs& inputs, Tensor& image_hidden_states) const {
    ModuleCall call(context_, model_);
    const Shape& tokens = inputs.input_ids.sizes();
    Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
    Tensor per_layer_inputs = language_model_.per_layer->get(inputs.input_ids);
    TensorList names;  // of forward, which live until it returns
    const auto hard_tokens = [&](const Gemma3nMultimodalEmbedder& embed, Tensor mask) {
      const Tensor input_ids = [&] {
        const Tensor dummy_token_id = integers(context_, Op::empty, {});
        return integers(context_, Op::where, tokens);
      }();
      Tensor embeds = embed.of_tokens(input_ids);
      embeds = to(embeds, inputs_embeds.dtype());
      const Tensor expanded_mask = unsqueeze(mask, -1);
      inputs_embeds = where(expanded_mask, embeds, inputs_embeds);
      for (const Tensor& name : {mask, input_ids, embeds, expanded_mask}) names.push_back(name);
    };
    hard_tokens(embed_vision_, [&] {
      const Tensor from = booleans(Op::ge, tokens), below = booleans(Op::lt, tokens);
      return booleans(Op::bitwise_and, tokens);
    }());
    hard_tokens(embed_audio_, booleans(Op::ge, tokens));
    std::pair<Tensor, Tensor> image;
    Tensor special_image_mask, special_audio_mask;
    if (inputs.images) {
      image.second = (*inputs.images)[0];
    } else if (inputs.pixel_values) {
      image = image_features(inputs.pixel_values);
    }
    if (image.second) {
      image_hidden_states = to(image.second, inputs_embeds.dtype());
      special_image_mask = booleans(Op::eq, tokens);
      special_audio_mask = booleans(Op::eq, tokens);
      {
        const Tensor n_image_tokens = sum_all(special_image_mask);
        {
          const Tensor elements = mul_scalar(n_image_tokens);
          const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
        }
        const Tensor n_audio_tokens = sum_all(special_audio_mask);
      }
      inputs_embeds = masked_scatter(inputs_embeds, unsqueeze(special_image_mask, -1), image_hidden_states);
    }
    const MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q};
    ModuleCall self(context_, language_model_.module);
    Tensor name = inputs_embeds;
    const Tensor last_hidden_state =
        self.result(language_model_.run(name, given, nullptr, per_layer_inputs, inputs.logits_to_keep));
    return call.result(last_hidden_state);
  }

  Gemma3nConfig config_;
  MobileNetV5Encoder vision_tower_;
  Gemma3nMultimodalEmbedder embed_vision_, embed_audio_;
  ModuleId model_ = 0, tower_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_gemma3n(Context& context, const Gemma3nConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<Gemma3n>(context, config, data, options);
}

}  // namespace oometer
