#include "models/janus/janus.h"

#include <vector>

#include "models/kit/image_text.h"
#include "models/siglip/siglip.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "nn/wrapped_call.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

struct JanusVisionAttention {
  JanusVisionAttention() = default;
  JanusVisionAttention(const Builder& builder, const JanusConfig& config, AttentionKind attention)
      : head_dim(config.vision.hidden_size / config.vision.num_attention_heads),
        call{attention, false, config.vision.attention_dropout},
        dropout_rate(config.projection_dropout),
        module(builder.module) {
    const std::int64_t width = config.vision.hidden_size;
    const auto make = [&](const char* name, bool bias) {
      return Linear(builder.child(name, "Linear"), width, width, bias);
    };
    q_proj = make("q_proj", config.attention_bias);
    k_proj = make("k_proj", config.attention_bias);
    v_proj = make("v_proj", config.attention_bias);
    projection_layer = make("projection_layer", true);
  }

  AttentionOutputs operator()(const Tensor& hidden_in) const {
    const Tensor given = cast_forward_input(hidden_in, module);
    ModuleCall self(hidden_in.context(), module);
    const Tensor hidden_states = self.keyword(given);
    const auto [queries, keys, values] = project(hidden_states, q_proj, k_proj, v_proj, head_dim, true);
    AttentionOutputs attention = attention_forward(call, queries, keys, values, {});
    attention.output = reshape(attention.output, hidden_states.sizes());
    Tensor output = projection_layer(attention.output);
    output = dropout(output, dropout_rate);
    attention.output = self.result(output);
    return attention;
  }

  Linear q_proj, k_proj, v_proj, projection_layer;
  std::int64_t head_dim = 0;
  AttentionCall call;
  double dropout_rate = 0;
  ModuleId module = 0;
};

struct JanusVisionMLP {
  JanusVisionMLP() = default;
  JanusVisionMLP(const Builder& builder, const JanusConfig& config)
      : fc1(builder.child("fc1", "Linear"), config.vision.hidden_size, config.vision.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), config.vision.intermediate_size, config.vision.hidden_size, true),
        activation_fn(config.vision.hidden_act),
        dropout_rate(config.hidden_dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = fc1(call.argument(hidden_in));
    hidden_states = activate(activation_fn, hidden_states);
    hidden_states = dropout(hidden_states, dropout_rate);
    hidden_states = fc2(hidden_states);
    hidden_states = dropout(hidden_states, dropout_rate);
    return call.result(hidden_states);
  }

  Linear fc1, fc2;
  Activation activation_fn = Activation::gelu;
  double dropout_rate = 0;
  ModuleId module = 0;
};

struct JanusVisionEncoderLayer {
  JanusVisionEncoderLayer(const Builder& builder, const JanusConfig& config, AttentionKind attention)
      : layer_norm1(builder.child("layer_norm1", "LayerNorm"), config.vision.hidden_size),
        self_attn(builder.child("self_attn", kJanusVision.attention), config, attention),
        layer_norm2(builder.child("layer_norm2", "LayerNorm"), config.vision.hidden_size),
        mlp(builder.child("mlp", kJanusVision.mlp), config),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, hidden_states = layer_norm1(hidden_in);
    AttentionOutputs attention = self_attn(hidden_states);
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer_norm2(hidden_states);
    hidden_states = mlp(hidden_states);
    return add(residual, hidden_states);
  }

  LayerNorm layer_norm1;
  JanusVisionAttention self_attn;
  LayerNorm layer_norm2;
  JanusVisionMLP mlp;
  ModuleId module = 0;
};

struct JanusVisionModel {
  JanusVisionModel() = default;
  JanusVisionModel(const Builder& builder, const JanusConfig& config, const ModelOptions& options)
      : embeddings(builder.child("embeddings", kJanusVision.embeddings), config.vision),
        checkpointing(options.checkpointing),
        module(builder.module) {
    const Builder inner = builder.child("encoder", kJanusVision.encoder);
    encoder = inner.module;
    blocks = BlockStack(inner);
    layers.reserve(static_cast<std::size_t>(config.vision.num_hidden_layers));
    for (std::int32_t i = 0; i < config.vision.num_hidden_layers; ++i) {
      layers.emplace_back(inner.child("layers", kJanusVision.encoder_layer, i), config, options.attention);
      blocks.add_block(inner);
    }
    post_layernorm = LayerNorm(builder.child("post_layernorm", "LayerNorm"), config.vision.hidden_size);
  }

  ClipVisionOutput operator()(const Tensor& pixel_values) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    Tensor hidden_states = embeddings(pixel_values);
    require_input_grad(checkpointing, hidden_states, embeddings.module);
    Tensor encoded;
    {
      ModuleCall self(context, encoder);
      encoded = self.result(blocks.run(
          0, layers.size(), hidden_states, checkpointing,
          [&](std::size_t i) { return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); }; },
          {.positional = true}));
    }
    ClipVisionOutput output;
    output.last_hidden_state = post_layernorm(encoded);
    output.pooler_output = select(output.last_hidden_state, 1, 0);
    output.pooler_output = post_layernorm(output.pooler_output);
    for (Tensor* tensor : {&output.last_hidden_state, &output.pooler_output}) *tensor = call.result(*tensor);
    return output;
  }

  SiglipVisionEmbeddings embeddings;
  CheckpointingConfig checkpointing;
  std::vector<JanusVisionEncoderLayer> layers;
  BlockStack blocks;
  LayerNorm post_layernorm;
  ModuleId encoder = 0, module = 0;
};

/// JanusVisionAlignerMLP, and JanusVQVAEAlignerMLP, which has the same parts.
struct JanusAlignerMLP {
  JanusAlignerMLP() = default;
  JanusAlignerMLP(const Builder& builder, std::int64_t hidden_size, std::int64_t projection_dim, std::int64_t depth,
                  Activation activation)
      : fc1(builder.child("fc1", "Linear"), hidden_size, projection_dim, true),
        activation_fn(activation),
        module(builder.module) {
    for (std::int32_t i = 0; i < depth - 1; ++i)
      hidden_layers.emplace_back(builder.child("hidden_layers", "Linear", i), projection_dim, projection_dim, true);
  }

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = fc1(call.argument(hidden_in));
    for (const Linear& layer : hidden_layers) {
      hidden_states = activate(activation_fn, hidden_states);
      hidden_states = layer(hidden_states);
    }
    return call.result(hidden_states);
  }

  Linear fc1;
  std::vector<Linear> hidden_layers;
  Activation activation_fn = Activation::gelu;
  ModuleId module = 0;
};

/// What makes images, of which only the weights matter here: nothing that reads images or writes text calls it.
void make_image_generation(const Builder& model, const JanusConfig& config) {
  const VqganConfig& vq = config.vq;
  const Builder vqmodel = model.child("vqmodel", kJanusVqgan.model);
  const Vqgan encoding(vqmodel, vq);
  const Builder decoder = vqmodel.child("decoder", "JanusVQVAEDecoder");
  const auto convolution = [](const Builder& builder, std::int64_t in, std::int64_t out) {
    return AnyConv2d(builder, in, out, {.kernel = 3, .padding = 1});
  };
  std::int64_t width = vq.last_channels();
  convolution(decoder.child("conv_in", "Conv2d"), vq.latent_channels, width);
  const VqganMidBlock mid(decoder.child("mid", kJanusVqgan.mid), vq);
  for (std::size_t i = vq.levels(); i-- > 0;) {
    const Builder level = decoder.child("up", "Module", static_cast<std::int32_t>(vq.levels() - 1 - i));
    const VqganLevel blocks(level, vq, vq.num_res_blocks + 1, width, vq.channels(i), i + 1 == vq.levels());
    width = vq.channels(i);
    if (i > 0) convolution(level.child("upsample", "JanusVQVAEConvUpsample").child("conv", "Conv2d"), width, width);
  }
  const VqganGroupNorm norm_out(decoder.child("norm_out", "GroupNorm"), width);
  convolution(decoder.child("conv_out", "Conv2d"), width, config.out_channels);
  const std::int64_t projected = config.vq_projection_dim;
  const Embedding embeddings(model.child("generation_embeddings", "Embedding"), vq.num_embeddings, vq.embed_dim);
  const JanusAlignerMLP aligner(model.child("generation_aligner", "JanusVQVAEAlignerMLP"), vq.embed_dim, projected,
                                config.vq_layers, Activation::gelu);
  const Builder head = model.child("generation_head", "JanusVQVAEHead");
  const Linear proj_out(head.child("proj_out", "Linear"), config.image_token_embed_dim, projected, true);
  const Linear vision_head(head.child("vision_head", "Linear"), projected, vq.num_embeddings, true);
}

class Janus : public ImageTextModel {
 public:
  Janus(Context& context, const JanusConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, "JanusForConditionalGeneration", Modality::none, data, options),
        vision_(config.vision) {
    const Builder model = root_.child("model", "JanusModel");
    model_ = model.module;
    vision_model_ =
        JanusVisionModel(model.child("vision_model", kJanusVision.model, Modality::vision), config, options);
    aligner_ =
        JanusAlignerMLP(model.child("aligner", "JanusVisionAlignerMLP", Modality::projector), config.vision.hidden_size,
                        config.vision.projection_dim, config.depth, config.vision.hidden_act);
    make_image_generation(model, config);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = vision_model_.layers.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    return {data_.images(), vision_.num_channels, vision_.image_size, vision_.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    ClipVisionOutput vision_outputs = vision_model_(batch.pixel_values);
    vision_outputs.pooler_output = aligner_(vision_outputs.last_hidden_state);
    return {{vision_outputs.pooler_output}, {vision_outputs.last_hidden_state}};
  }

  ClipVisionConfig vision_;
  JanusVisionModel vision_model_;
  JanusAlignerMLP aligner_;
};

}  // namespace

std::unique_ptr<Model> build_janus(Context& context, const JanusConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  return std::make_unique<Janus>(context, config, data, options);
}

}  // namespace oometer
