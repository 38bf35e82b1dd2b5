#include "models/dinov2/dinov2.h"

#include <optional>
#include <utility>
#include <vector>

#include "nn/block_stack.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct Dinov2SwiGLUFFN {
  Dinov2SwiGLUFFN(const Builder& builder, const VitConfig& c)
      : gate_proj(builder.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_size, true),
        up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, true),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, true),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor product;
    {
      Tensor gate = gate_proj(x);
      gate = silu(gate);
      const Tensor up = up_proj(x);
      product = mul(gate, up);
    }
    return call.result(down_proj(product));
  }

  Linear gate_proj, up_proj, down_proj;
  ModuleId module;
};

struct Dinov2Layer {
  Dinov2Layer(const Builder& builder, const VitConfig& c, const ModelOptions& options)
      : norm1(builder.child("norm1", "LayerNorm"), c.hidden_size),
        attention(builder.child("attention", c.names->attention), c, options),
        layer_scale1(builder.child("layer_scale1", "Dinov2LayerScale"), c.hidden_size),
        norm2((builder.child("drop_path", "Identity"), builder.child("norm2", "LayerNorm")), c.hidden_size),
        module(builder.module) {
    if (c.use_swiglu_ffn)
      swiglu.emplace(builder.child("mlp", "Dinov2SwiGLUFFN"), c);
    else
      mlp.emplace(builder.child("mlp", c.names->mlp), c);
    layer_scale2.emplace(builder.child("layer_scale2", "Dinov2LayerScale"), c.hidden_size);
  }

  Tensor operator()(const Tensor& hidden_in) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_states = norm1(hidden_in);
    AttentionOutputs attended = attention(hidden_states);
    hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
    hidden_states = layer_scale1(hidden_states);
    hidden_states = add(hidden_states, residual);
    residual = hidden_states;
    hidden_states = norm2(hidden_states);
    hidden_states = swiglu ? (*swiglu)(hidden_states) : (*mlp)(hidden_states);
    hidden_states = (*layer_scale2)(hidden_states);
    return add(hidden_states, residual);
  }

  LayerNorm norm1;
  VitAttention attention;
  VitLayerScale layer_scale1;
  LayerNorm norm2;
  std::optional<VitMLP> mlp;
  std::optional<Dinov2SwiGLUFFN> swiglu;
  std::optional<VitLayerScale> layer_scale2;
  ModuleId module;
};

class Dinov2 : public ImageModel {
 public:
  Dinov2(Context& context, const VitConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), checkpointing_(options.checkpointing) {
    const Builder model = c.classifies ? root_.child(c.names->base, c.names->model) : root_;
    model_ = model.module;
    embeddings_ = VitEmbeddings(model.child("embeddings", c.names->embeddings), c, options);
    const Builder encoder = model.child("encoder", "Dinov2Encoder");
    encoder_ = encoder.module;
    blocks_ = BlockStack(encoder);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.emplace_back(encoder.child("layer", c.names->layer, i), c, options);
      blocks_.add_block(encoder);
    }
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    if (c.classifies)
      classifier_ = Linear(root_.child("classifier", "Linear", Modality::none), 2 * c.hidden_size, c.num_labels, true);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor pooled_output;
    Tensor sequence_output = model_forward(inputs.pixel_values, pooled_output);
    if (!config_.classifies) return {{}, pooled_output, {sequence_output}};
    const Tensor cls_token = select(sequence_output, 1, 0);
    const std::int64_t others = config_.tokens(0), tokens = sequence_output.size(1);
    const Tensor patch_tokens = slice(sequence_output, 1, others, tokens - others);
    Tensor linear_input;
    {
      const Tensor averaged = mean(patch_tokens, 1, false);
      linear_input = cat({cls_token, averaged}, 1);
    }
    return classified(classifier_(linear_input), inputs);
  }

 private:
  // Dinov2Model.forward
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output) const {
    ModuleCall call(context_, model_);
    const Tensor embedding_output = embeddings_(call.argument(argument));
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i]](const Tensor& hidden) { return layer(hidden); };
    };
    Tensor last_hidden_state;
    {
      ModuleCall encoder(context_, encoder_);
      last_hidden_state =
          encoder.result(blocks_.run(0, layers_.size(), embedding_output, checkpointing_, block, {.positional = true}));
    }
    Tensor sequence_output = layernorm_(last_hidden_state);
    pooled_output = call.result(select(sequence_output, 1, 0));
    return call.result(sequence_output);
  }

  CheckpointingConfig checkpointing_;
  VitEmbeddings embeddings_;
  std::vector<Dinov2Layer> layers_;
  BlockStack blocks_;
  LayerNorm layernorm_;
  Linear classifier_;
  ModuleId model_ = 0, encoder_ = 0;
};

class Backbone : public Dinov2Backbone {
 public:
  Backbone(const Builder& builder, const Dinov2BackboneConfig& c, const ModelOptions& options)
      : config_(c),
        checkpointing_(options.checkpointing),
        embeddings_(builder.child("embeddings", c.names->embeddings), c, options),
        module_(builder.module) {
    const Builder its = builder.child("encoder", "Dinov2Encoder");
    encoder_ = its.module;
    blocks_ = BlockStack(its);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.emplace_back(its.child("layer", c.names->layer, i), c, options);
      blocks_.add_block(its);
    }
    layernorm_ = LayerNorm(builder.child("layernorm", "LayerNorm"), c.hidden_size);
  }

  TensorList operator()(const Tensor& argument, TensorList* all) const override {
    ModuleCall call(argument.context(), module_);
    const Tensor embedding_output = embeddings_(call.argument(argument));
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i]](const Tensor& hidden) { return layer(hidden); };
    };
    TensorList hidden_states;
    {
      ModuleCall encoder(argument.context(), encoder_);
      Tensor hidden = encoder.argument(embedding_output);
      hidden_states.push_back(hidden);
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        hidden = blocks_.run(i, i + 1, hidden, checkpointing_, block, {.positional = true});
        hidden_states.push_back(hidden);
      }
      hidden_states.back() = encoder.result(hidden_states.back());
    }
    TensorList feature_maps;
    for (const std::int64_t i : config_.out_indices) {
      const Tensor& hidden = hidden_states[static_cast<std::size_t>(i)];
      feature_maps.push_back(config_.apply_layernorm ? layernorm_(hidden) : hidden);
    }
    for (Tensor& one : feature_maps) one = call.result(one);
    if (all) *all = std::move(hidden_states);
    return feature_maps;
  }

 private:
  Dinov2BackboneConfig config_;
  CheckpointingConfig checkpointing_;
  VitEmbeddings embeddings_;
  std::vector<Dinov2Layer> layers_;
  BlockStack blocks_;
  LayerNorm layernorm_;
  ModuleId module_, encoder_ = 0;
};

}  // namespace

std::unique_ptr<const Dinov2Backbone> build_dinov2_backbone(const Builder& builder, const Dinov2BackboneConfig& config,
                                                            const ModelOptions& options) {
  return std::make_unique<Backbone>(builder, config, options);
}

std::unique_ptr<Model> build_dinov2(Context& context, const VitConfig& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<Dinov2>(context, config, data, options);
}

}  // namespace oometer
