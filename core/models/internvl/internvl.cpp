#include "models/internvl/internvl.h"

#include <functional>
#include <vector>

#include "models/kit/image_text.h"
#include "models/llama/llama.h"
#include "models/vit/vit.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "nn/checkpointing.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

using VisionNorm = std::function<Tensor(const Tensor&)>;

// NORM2FN[norm_type]
VisionNorm make_norm(const Builder& parent, const char* name, const InternVisionConfig& config, bool liger) {
  if (config.rms_norm)
    return [norm = LlamaRMSNorm(parent.child(name, config.family->vision_norm), config.hidden_size)](const Tensor& x) {
      return norm(x);
    };
  LayerNorm norm(parent.child(name, "LayerNorm"), config.hidden_size);
  norm.liger = liger;
  return norm;
}

// eager_attention_forward: the softmax has the weights' own type
AttentionOutputs eager_attention(const AttentionInputs& states, double attention_dropout) {
  const Context& context = states.query.context();
  Tensor weights = matmul(states.query, transpose(states.key, 2, 3));
  weights = mul_scalar(weights);
  weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
  weights = dropout(weights, attention_dropout);
  const Tensor output = matmul(weights, states.value);
  return {contiguous(transpose(output, 1, 2)), weights};
}

struct VisionAttention {
  VisionAttention(const Builder& builder, const InternVisionConfig& config, const ModelOptions& options)
      : head_dim(config.hidden_size / config.num_attention_heads),
        projection_dropout(config.projection_dropout),
        call{options.attention, false, config.attention_dropout},
        module(builder.module) {
    const std::int64_t width = config.hidden_size;
    q_proj = Linear(builder.child("q_proj", "Linear"), width, width, config.attention_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), width, width, config.attention_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), width, width, config.attention_bias);
    projection_layer = Linear(builder.child("projection_layer", "Linear"), width, width, true);
    if (!config.use_qk_norm) return;
    q_norm = LlamaRMSNorm(builder.child("q_norm", config.family->vision_norm), width, options.liger.rms_norm);
    k_norm = LlamaRMSNorm(builder.child("k_norm", config.family->vision_norm), width, options.liger.rms_norm);
  }

  AttentionOutputs operator()(const Tensor& argument) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch_size = hidden_states.size(0), seq_len = hidden_states.size(1);
    AttentionOutputs attention;
    AttentionInputs states;
    states.query = q_proj(hidden_states);
    states.key = k_proj(hidden_states);
    states.value = v_proj(hidden_states);
    if (q_norm.weight) {
      states.query = q_norm(states.query);
      states.key = k_norm(states.key);
    }
    for (Tensor* tensor : {&states.query, &states.key, &states.value}) *tensor = heads_of(*tensor, head_dim);
    attention = call.kind == AttentionKind::eager ? eager_attention(states, call.dropout)
                                                  : attention_forward(call, states.query, states.key, states.value, {});
    attention.output = reshape(attention.output, {batch_size, seq_len, hidden_states.size(2)});
    Tensor output = projection_layer(attention.output);
    output = dropout(output, projection_dropout);
    return {self.result(output), attention.weights};
  }

  Linear q_proj, k_proj, v_proj, projection_layer;
  LlamaRMSNorm q_norm, k_norm;
  std::int64_t head_dim = 0;
  double projection_dropout = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct VisionMLP {
  VisionMLP(const Builder& builder, const InternVisionConfig& config)
      : fc1(builder.child("fc1", "Linear"), config.hidden_size, config.intermediate_size, true),
        fc2(builder.child("fc2", "Linear"), config.intermediate_size, config.hidden_size, true),
        activation_fn(config.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = fc1(call.argument(argument));
    hidden_states = activate(activation_fn, hidden_states);
    return call.result(fc2(hidden_states));
  }

  Linear fc1, fc2;
  Activation activation_fn = Activation::gelu;
  ModuleId module = 0;
};

struct VisionLayer {
  VisionLayer(const Builder& builder, const InternVisionConfig& config, const ModelOptions& options,
              double drop_path_rate)
      : attention(builder.child("attention", config.family->vision_attention), config, options),
        mlp(builder.child("mlp", config.family->vision_mlp), config),
        layernorm_before(make_norm(builder, "layernorm_before", config, options.liger.layer_norm)),
        layernorm_after(make_norm(builder, "layernorm_after", config, options.liger.layer_norm)),
        hidden_dropout(config.hidden_dropout_prob),
        drop_prob(drop_path_rate),
        is_qianfan(config.family->is_qianfan),
        module(builder.module) {
    builder.children_are_through();
    const auto scale = [&](const char* name) {  // init_values * torch.ones(hidden_size)
      const Tensor ones = empty(*builder.context, Op::ones_like, {config.hidden_size}, builder.dtype);
      return builder.parameter(name, {config.hidden_size});
    };
    lambda_1 = scale("lambda_1");
    lambda_2 = scale("lambda_2");
    if (!is_qianfan) return;
    for (const char* name : {"drop_path1", "drop_path2"})
      builder.child(name, drop_prob > 0 ? config.family->drop_path : "Identity");
  }

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    return is_qianfan ? drop_paths(hidden_in) : forward(hidden_in);
  }

  // QianfanOCRVisionLayer.forward
  Tensor drop_paths(const Tensor& hidden_in) const {
    Tensor hidden_states = layernorm_before(hidden_in), residual;
    AttentionOutputs outputs = attention(hidden_states);  // the weights stay in `_`
    hidden_states = std::move(outputs.output);
    hidden_states = mul(lambda_1, hidden_states);
    hidden_states = drop_path(hidden_states, drop_prob);
    hidden_states = add(hidden_states, hidden_in);
    residual = hidden_states;
    hidden_states = layernorm_after(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = dropout(hidden_states, hidden_dropout);
    hidden_states = mul(lambda_2, hidden_states);
    {
      const Tensor kept = drop_path(hidden_states, drop_prob);
      hidden_states = add(kept, residual);
    }
    return hidden_states;
  }

  Tensor forward(const Tensor& hidden_in) const {
    Tensor layer_output, hidden_states, attention_output, weights;
    {
      const Tensor normed = layernorm_before(hidden_in);
      AttentionOutputs outputs = attention(normed);
      attention_output = std::move(outputs.output);
      weights = std::move(outputs.weights);
    }
    attention_output = mul(lambda_1, attention_output);
    hidden_states = add(attention_output, hidden_in);
    layer_output = layernorm_after(hidden_states);
    layer_output = mlp(layer_output);
    layer_output = dropout(layer_output, hidden_dropout);
    layer_output = mul(lambda_2, layer_output);
    layer_output = add(layer_output, hidden_states);
    return layer_output;
  }

  VisionAttention attention;
  VisionMLP mlp;
  VisionNorm layernorm_before, layernorm_after;
  Tensor lambda_1, lambda_2;
  double hidden_dropout = 0, drop_prob = 0;
  bool is_qianfan = false;
  ModuleId module = 0;
};

struct VisionEmbeddings {
  VisionEmbeddings() = default;
  VisionEmbeddings(const Builder& builder, const InternVisionConfig& config, const CheckpointingConfig& checkpointing_)
      : hidden_dropout(config.hidden_dropout_prob), checkpointing(checkpointing_), module(builder.module) {
    const std::int64_t width = config.hidden_size;
    cls_token = builder.parameter("cls_token", {1, 1, width});
    if (config.use_mask_token) builder.parameter("mask_token", {1, 1, width});
    const Builder patches = builder.child("patch_embeddings", config.family->patch_embeddings);
    patch_embeddings = patches.module;
    projection = Conv2d(patches.child("projection", "Conv2d"), config.num_channels, width, config.patch_size, true);
    builder.children_are_through();
    if (config.has_positions)
      position_embeddings = builder.parameter("position_embeddings", {1, config.num_positions(), width});
  }

  Tensor operator()(const Tensor& pixel_values) const {
    Context& context = pixel_values.context();
    ModuleCall call(context, module);
    const std::int64_t batch = pixel_values.size(0), width = cls_token.size(2);
    Tensor cls_tokens, embeddings;
    {
      ModuleCall inner(context, patch_embeddings);
      if (context.modules) context.modules->read(projection.weight);
      const Tensor typed = to(inner.argument(pixel_values), projection.weight.dtype());
      embeddings = projection(typed);
      embeddings =
          transpose(view(embeddings, {batch, width, checked_product(embeddings.size(2), embeddings.size(3))}), 1, 2);
      require_input_grad(checkpointing, embeddings, patch_embeddings);
      embeddings = inner.result(embeddings);
    }
    cls_tokens = expand(cls_token, {batch, 1, width});
    embeddings = cat({cls_tokens, embeddings}, 1);
    if (position_embeddings) embeddings = add(embeddings, position_embeddings);
    embeddings = dropout(embeddings, hidden_dropout);
    return call.result(embeddings);
  }

  Tensor cls_token, position_embeddings;
  Conv2d projection;
  double hidden_dropout = 0;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0, patch_embeddings = 0;
};

/// `hidden_state`: that of vision_feature_layer.
struct VisionOutputs {
  Tensor last_hidden_state, hidden_state;
};

struct VisionModel {
  VisionModel() = default;
  VisionModel(const Builder& builder, const InternVLConfig& config, const ModelOptions& options)
      : embeddings(builder.child("embeddings", config.vision.family->vision_embeddings), config.vision,
                   options.checkpointing),
        checkpointing(options.checkpointing),
        captured(static_cast<std::size_t>(config.vision.num_hidden_layers + 1 + config.vision_feature_layer)),
        module(builder.module) {
    const InternVLFamily& family = *config.vision.family;
    const auto make_layers = [&](const Builder& inner, const char* name) {
      encoder = inner.module;
      stack = BlockStack(inner);
      for (std::int32_t i = 0; i < config.vision.num_hidden_layers; ++i) {
        layers.emplace_back(inner.child(name, family.vision_layer, i), config.vision, options,
                            i == 0 ? 0 : config.vision.drop_path_rate);
        stack.add_block(inner);
      }
    };
    is_qianfan = family.is_qianfan;
    if (!is_qianfan) make_layers(builder.child("encoder", "InternVLVisionEncoder"), "layer");
    if (!config.vision.use_mean_pooling) {
      layernorm.emplace_back(builder.child("layernorm", "LayerNorm"), config.vision.hidden_size);
      layernorm.back().liger = options.liger.layer_norm;
    }
    if (is_qianfan) make_layers(builder, "layers");
  }

  VisionOutputs operator()(const Tensor& pixel_values) const {
    ModuleCall call(pixel_values.context(), module);
    VisionOutputs outputs;
    Tensor embedding_output = embeddings(pixel_values);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); };
    };
    if (is_qianfan) {
      Tensor hidden_states = stack.run(0, captured, std::move(embedding_output), checkpointing, block);
      if (captured < layers.size()) outputs.hidden_state = hidden_states;
      hidden_states = stack.run(captured, layers.size(), std::move(hidden_states), checkpointing, block);
      outputs.last_hidden_state = std::move(hidden_states);
    } else {
      ModuleCall inner(pixel_values.context(), encoder);
      outputs.hidden_state = stack.run(0, captured, embedding_output, checkpointing, block);
      outputs.last_hidden_state = stack.run(captured, layers.size(), outputs.hidden_state, checkpointing, block);
      outputs.last_hidden_state = inner.result(outputs.last_hidden_state);
    }
    if (!layernorm.empty()) outputs.last_hidden_state = layernorm.front()(outputs.last_hidden_state);
    outputs.last_hidden_state = call.result(outputs.last_hidden_state);
    return outputs;
  }

  VisionEmbeddings embeddings;
  std::vector<VisionLayer> layers;
  std::vector<LayerNorm> layernorm;  ///< none or one
  CheckpointingConfig checkpointing;
  bool is_qianfan = false;
  std::size_t captured = 0;  ///< of [embeddings, layer 1, ..., layer N]
  BlockStack stack;
  ModuleId module = 0, encoder = 0;
};

struct InternVLMultiModalProjector {
  InternVLMultiModalProjector() = default;
  InternVLMultiModalProjector(const Builder& builder, const InternVLConfig& config)
      : act(config.projector_hidden_act), module(builder.module) {
    const std::int64_t wide = config.vision.hidden_size * config.shuffle * config.shuffle;
    layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), wide);
    linear_1 = Linear(builder.child("linear_1", "Linear"), wide, config.text.hidden_size, true);
    linear_2 = Linear(builder.child("linear_2", "Linear"), config.text.hidden_size, config.text.hidden_size, true);
  }

  Tensor operator()(const Tensor& image_features) const {
    ModuleCall call(image_features.context(), module);
    Tensor hidden_states = layer_norm(call.argument(image_features));
    hidden_states = linear_1(hidden_states);
    hidden_states = activate(act, hidden_states);
    hidden_states = linear_2(hidden_states);
    return call.result(hidden_states);
  }

  LayerNorm layer_norm;
  Linear linear_1, linear_2;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

// InternVLForConditionalGeneration
class InternVL : public ImageTextModel {
 public:
  InternVL(Context& context, const InternVLConfig& config, const DataConfig& data, const ModelOptions& options)
      : ImageTextModel(context, config.vision.family->class_name, Modality::none, data, options), config_(config) {
    const InternVLFamily& family = *config.vision.family;
    const Builder model = root_.child("model", family.model);
    model_ = model.module;
    vision_tower_ = VisionModel(model.child("vision_tower", family.vision_model, Modality::vision), config, options);
    projector_ = InternVLMultiModalProjector(
        model.child("multi_modal_projector", family.projector, Modality::projector), config);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = vision_tower_.stack.size();
    make_head(root_, config.text, config.tie_word_embeddings);
  }

 private:
  Shape pixel_sizes() const override {
    const InternVisionConfig& v = config_.vision;
    return {data_.all_tiles(), v.num_channels, v.image_size, v.image_size};
  }

  ImageFeatures image_features(const ModelInputs& batch) const override {
    const Tensor pixel_values = to(batch.pixel_values, vision_tower_.embeddings.cls_token.dtype());  // self.dtype
    VisionOutputs outputs = vision_tower_(pixel_values);
    Tensor vision_features = config_.vision_feature_layer == -1 ? outputs.last_hidden_state : outputs.hidden_state;
    vision_features = slice(vision_features, 1, 1, vision_features.size(1) - 1);
    const std::int64_t tiles = vision_features.size(0), side = config_.vision.patches_per_side();
    vision_features = reshape(vision_features, {tiles, side, side, vision_features.size(2)});
    vision_features = pixel_shuffle(vision_features);
    vision_features = reshape(vision_features, {tiles, config_.tokens_per_tile(), vision_features.size(3)});
    vision_features = projector_(vision_features);
    return {{vision_features}, {outputs.last_hidden_state, outputs.hidden_state}};
  }

  Tensor pixel_shuffle(const Tensor& given) const {
    const std::int64_t batch = given.size(0), width = given.size(1), fewer = width / config_.shuffle,
                       channels = given.size(3) * config_.shuffle;
    Tensor vision_features = view(given, {batch, width, fewer, channels});
    vision_features = contiguous(transpose(vision_features, 1, 2));
    vision_features = view(vision_features, {batch, fewer, fewer, channels * config_.shuffle});
    return contiguous(transpose(vision_features, 1, 2));
  }

  InternVLConfig config_;
  VisionModel vision_tower_;
  InternVLMultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_internvl(Context& context, const InternVLConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<InternVL>(context, config, data, options);
}

}  // namespace oometer
