#include "models/chameleon/chameleon.h"

#include <string_view>
#include <utility>

#include "models/kit/image_text.h"
#include "models/kit/text_family.h"
#include "models/kit/text_layer.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// ChameleonLayerNorm: statistics of each head, a weight and a bias of its own for each.
std::function<Tensor(const Tensor&)> make_head_norm(const Builder& builder_in, std::int64_t heads, std::int64_t size) {
  Builder builder = builder_in;
  builder.in_norm = true;
  const Tensor weight = builder.parameter("weight", {heads, size}), bias = builder.parameter("bias", {heads, size});
  return [weight, bias, module = builder.module](const Tensor& given) {
    ModuleCall call(given.context(), module);
    Tensor hidden_states = layer_norm(call.argument(given), {}, {}, 1);
    {
      const Tensor scaled = mul(hidden_states, weight);
      hidden_states = add(scaled, bias);
    }
    return call.result(hidden_states);
  };
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  AttentionParts its;
  its.norms_at = HeadNorms::viewed;
  its.make_norm = make_head_norm;
  its.norm_type = "ChameleonLayerNorm";
  const bool swin_norm = c.names == &kChameleonSwin;
  auto layer = std::make_unique<TextLayer>(builder, swin_norm ? post_norm : pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, c.names->rms_norm), rms_norm, {c.hidden_size});
  };
  layer->self_attn = TextAttention(builder.child("self_attn", c.names->attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", c.names->mlp), c);
  (swin_norm ? layer->attention_norm : layer->input_norm) = norm("input_layernorm");
  (swin_norm ? layer->output_norm : layer->feedforward_norm) = norm("post_attention_layernorm");
  return layer;
}

/// `logits[:, :, image_tokens] = torch.finfo(logits.dtype).min`, of a list of `count` numbers.
Tensor forbid(const Tensor& logits, std::int64_t count) {
  Record record(Op::index_put, [](Backward& b) { b.give(0, empty_like(Op::index_put, b.grad())); }, {&logits});
  const Tensor indices = empty(logits.context(), Op::to_copy, {count}, DType::int64);
  record.save(indices);
  return in_place(record, Op::index_put, logits);
}

class Chameleon : public ImageTextModel {
 public:
  Chameleon(Context& context, const ChameleonConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, config.text.names->causal_lm, Modality::none, data, options), config_(config) {
    DecoderParts parts = parts_of(config.text, options, make_layer);
    // The VQ-GAN stands behind the last norm.
    parts.norm = [this](const Builder& builder, std::int64_t hidden_size) -> std::function<Tensor(const Tensor&)> {
      const Norm norm(builder, rms_norm, {hidden_size});
      Builder model = builder;
      model.module = model_;
      vqmodel_ = Vqgan(model.child("vqmodel", kChameleonVqgan.model, Modality::vision), config_.vq);
      return norm;
    };
    parts.logits = [count = config.image_tokens](Tensor logits) { return forbid(logits, count); };
    const Builder model = root_.child("model", config.text.names->model, Modality::language);
    model_ = model.module;
    make_decoder(model, config.text, options, std::move(parts));
    make_head(root_, config.text, config.text.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    return {data_.images(), config_.vq.in_channels, config_.resolution, config_.resolution};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    VqganOutput outputs = vqmodel_.encode(batch.pixel_values);
    // convert_img2bpe: a table in host memory
    const std::int64_t images = data_.images();
    const Tensor bpe_tokens =
        empty(context_, Op::to_copy, {images, outputs.image_tokens.numel() / images}, DType::int32);
    ImageFeatures features{{language_model_.embed(bpe_tokens)}, {}};
    for (Tensor* other : {&outputs.last_hidden_state, &outputs.quantized_last_hidden_state, &outputs.image_tokens,
                          &outputs.embedding_loss})
      features.others.push_back(std::move(*other));
    return features;
  }
  bool gives_features() const override { return false; }

  ChameleonConfig config_;
  Vqgan vqmodel_;
};

}  // namespace

std::unique_ptr<Model> build_chameleon(Context& context, const ChameleonConfig& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<Chameleon>(context, config, data, options);
}

}  // namespace oometer
