#include "models/vit/vit.h"

#include <utility>
#include <vector>

#include "models/bert/bert.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

VitAttention::VitAttention(const Builder& builder, const VitConfig& c, const ModelOptions& options)
    : head_dim(c.head_dim()),
      eager_in_float32(c.names->eager_in_float32),
      call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
      module(builder.module) {
  const auto projection = [&](const char* name, bool bias) {
    return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, bias);
  };
  q_proj = projection("q_proj", c.qkv_bias);
  k_proj = projection("k_proj", c.qkv_bias && c.key_bias);
  v_proj = projection("v_proj", c.qkv_bias);
  o_proj = projection("o_proj", true);
}

AttentionOutputs VitAttention::operator()(const Tensor& argument, const Tensor& attention_mask) const {
  ModuleCall self(argument.context(), module);
  const Tensor hidden_states = self.argument(argument);
  const AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
  AttentionOutputs attention = call.kind == AttentionKind::eager && !eager_in_float32
                                   ? eager_in_own_type(call, states, attention_mask)
                                   : attention_forward(call, states.query, states.key, states.value, attention_mask);
  attention.output = reshape(attention.output, hidden_states.sizes());
  attention.output = self.result(o_proj(attention.output));
  return attention;
}

VitMLP::VitMLP(const Builder& builder, const VitConfig& c)
    : fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
      fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
      activation_fn(c.hidden_act),
      module(builder.module) {}

Tensor VitMLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = fc1(call.argument(argument));
  hidden_states = activate(activation_fn, hidden_states);
  return call.result(fc2(hidden_states));
}

VitLayerScale::VitLayerScale(const Builder& builder, std::int64_t hidden_size) : module(builder.module) {
  const Tensor ones = empty(*builder.context, Op::ones_like, {hidden_size}, builder.dtype);
  lambda1 = builder.parameter("lambda1", {hidden_size});
}

Tensor VitLayerScale::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  return call.result(mul(call.argument(argument), lambda1));
}

VitEmbeddings::VitEmbeddings(const Builder& builder, const VitConfig& c, const ModelOptions& options)
    : dropout_prob(c.hidden_dropout_prob), checkpointing(options.checkpointing), module(builder.module) {
  if (c.names->num_class_tokens > 0) cls_token = builder.parameter("cls_token", {1, 1, c.hidden_size});
  if (c.use_mask_token) mask_token = builder.parameter("mask_token", {1, c.hidden_size});
  const Builder patches = builder.child("patch_embeddings", c.names->patch_embeddings);
  patch_embeddings = patches.module;
  projection = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true);
  if (c.use_absolute_position_embeddings)
    position_embeddings = builder.parameter("position_embeddings", {1, c.num_positions(), c.hidden_size});
  if (c.num_register_tokens > 0)
    register_tokens = builder.parameter("register_tokens", {1, c.num_register_tokens, c.hidden_size});
  if (c.names->num_class_tokens > 1)
    distillation_token = builder.parameter("distillation_token", {1, 1, c.hidden_size});
}

Tensor VitEmbeddings::interpolate_pos_encoding(std::int64_t height, std::int64_t width) const {
  const std::int64_t patch = projection.weight.size(2), rows = height / patch, columns = width / patch,
                     positions = position_embeddings.size(1) - 1, dim = position_embeddings.size(2);
  if (!cls_token || distillation_token) return position_embeddings;  // the class takes its config's images only
  std::int64_t side = 0;
  while ((side + 1) * (side + 1) <= positions) ++side;
  if (rows * columns == positions && height == width) return position_embeddings;
  const Tensor class_pos_embed =
      register_tokens ? select(position_embeddings, 1, 0) : slice(position_embeddings, 1, 0, 1);
  Tensor patch_pos_embed = slice(position_embeddings, 1, 1, positions);
  patch_pos_embed = reshape(patch_pos_embed, {1, side, side, dim});
  patch_pos_embed = permute(patch_pos_embed, {0, 3, 1, 2});
  const DType target_dtype = patch_pos_embed.dtype();
  {
    Tensor wide = to(patch_pos_embed, DType::float32);
    Tensor resized = pool(Op::upsample, Op::upsample_backward, wide, {1, dim, rows, columns}, false);
    wide.reset();
    patch_pos_embed = to(resized, target_dtype);
  }
  patch_pos_embed = permute(patch_pos_embed, {0, 2, 3, 1});
  patch_pos_embed = view(patch_pos_embed, {1, rows * columns, dim});
  return cat({register_tokens ? unsqueeze(class_pos_embed, 0) : class_pos_embed, patch_pos_embed}, 1);
}

Tensor VitEmbeddings::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor pixel_values = call.argument(argument);
  const std::int64_t batch = pixel_values.size(0), dim = projection.weight.size(0);
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
  Tensor cls_tokens, distillation_tokens;
  if (cls_token) cls_tokens = expand(cls_token, {batch, 1, dim});
  if (distillation_token) {
    distillation_tokens = expand(distillation_token, {batch, 1, dim});
    embeddings = cat({cls_tokens, distillation_tokens, embeddings}, 1);
  } else if (cls_token) {
    embeddings = cat({cls_tokens, embeddings}, 1);
  }
  if (position_embeddings) {
    const Tensor positions = interpolate_pos_encoding(pixel_values.size(2), pixel_values.size(3));
    embeddings = add(embeddings, positions);
  }
  if (register_tokens) {
    const Tensor cls = slice(embeddings, 1, 0, 1),
                 registers = expand(register_tokens, {batch, register_tokens.size(1), dim}),
                 patches = slice(embeddings, 1, 1, embeddings.size(1) - 1);
    embeddings = cat({cls, registers, patches}, 1);
  }
  return call.result(dropout(embeddings, dropout_prob));
}

Tensor drop_path(const Tensor& hidden_states, double drop_prob) {
  Context& context = hidden_states.context();
  if (drop_prob == 0 || !context.training) return hidden_states;
  Shape shape{hidden_states.size(0)};
  while (shape.ndim() < hidden_states.ndim()) shape.push_back(1);
  const auto numbers = [&](Op op) { return empty(context, op, shape, hidden_states.dtype()); };
  Tensor random_tensor = numbers(Op::empty);
  {
    const Tensor sum = numbers(Op::add);
    random_tensor = numbers(Op::floor);
  }
  const Tensor quotient = div_scalar(hidden_states);
  return mul(quotient, random_tensor);
}

VitLayer::VitLayer(const Builder& builder, const VitConfig& c, const ModelOptions& options)
    : attention(builder.child("attention", c.names->attention), c, options),
      layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
      layernorm_after(builder.child("layernorm_after", "LayerNorm"), c.hidden_size),
      mlp(builder.child("mlp", c.names->mlp), c),
      dropout_prob(c.hidden_dropout_prob),
      module(builder.module) {}

Tensor VitLayer::operator()(const Tensor& hidden_in) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in;
  Tensor hidden_states = layernorm_before(hidden_in);
  AttentionOutputs attended = attention(hidden_states);
  hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
  hidden_states = dropout(hidden_states, dropout_prob);
  hidden_states = add(hidden_states, residual);
  residual = hidden_states;
  hidden_states = layernorm_after(hidden_states);
  hidden_states = mlp(hidden_states);
  hidden_states = dropout(hidden_states, dropout_prob);
  return add(hidden_states, residual);
}

VitLayers::VitLayers(const Builder& builder, const char* name, const VitConfig& c, const ModelOptions& options)
    : blocks(builder), checkpointing(options.checkpointing) {
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(builder.child(name, c.names->layer, i), c, options);
    blocks.add_block(builder);
  }
}

Tensor VitLayers::operator()(Tensor hidden_states) const {
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i]](const Tensor& hidden) { return layer(hidden); };
  };
  return blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.positional = true});
}

void check_pixels(const Tensor& pixel_values, const Tensor& weight) {
  Context& context = pixel_values.context();
  if (pixel_values.dtype() != weight.dtype() && !context.autocast.enabled)
    context.refusal = Error{"inconsistent", "/training/precision",
                            "found weights of another type than the processor's float32 images, which this class "
                            "gives to a convolution as they are: expected autocast, or float32"};
}

ImageModel::ImageModel(Context& context, const VitConfig& c, const DataConfig& data, const ModelOptions& options)
    : context_(context),
      data_(data),
      config_(c),
      dtype_(options.dtype),
      root_{&context,         &parameters,   &buffers,         context.add_root(c.class_name, Modality::vision),
            Modality::vision, options.dtype, options.wrapping, options.quantizer} {
  loss_type = c.classifies ? LossType::cross_entropy : LossType::none;
}

ModelInputs ImageModel::make_inputs(bool with_labels) {
  ModelInputs batch;
  batch.pixel_values =
      empty(context_, Op::input, {data_.images(), config_.num_channels, data_.image_height, data_.image_width},
            data_.pixel_dtype.value_or(dtype_), Role::input);
  if (with_labels && config_.classifies)
    batch.labels = empty(context_, Op::input, {data_.micro_batch_size}, DType::int64, Role::input);
  return batch;
}

ModelOutputs ImageModel::classified(Tensor logits, const ModelInputs& inputs) const {
  ModelOutputs outputs;
  if (inputs.labels) outputs.loss = (*loss_function)(logits, inputs.labels);
  outputs.others.push_back(std::move(logits));
  return outputs;
}

void PooledImageModel::make_classifier() {
  if (config_.classifies)
    classifier_ =
        Linear(root_.child("classifier", "Linear", Modality::none), config_.hidden_size, config_.num_labels, true);
}

ModelOutputs PooledImageModel::forward(const ModelInputs& inputs) {
  Tensor pooled_output;
  Tensor last_hidden_state = model_forward(inputs.pixel_values, pooled_output);
  if (!config_.classifies) return {{}, std::move(pooled_output), {std::move(last_hidden_state)}};
  return classified(classifier_(pooled_output), inputs);
}

namespace {

class Vit : public ImageModel {
 public:
  Vit(Context& context, const VitConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options) {
    const Builder model = c.classifies ? root_.child(c.names->base, c.names->model) : root_;
    model_ = model.module;
    embeddings_ = VitEmbeddings(model.child("embeddings", c.names->embeddings), c, options);
    layers_ = VitLayers(model, "layers", c, options);
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    if (c.classifies) {
      head_ = Linear(root_.child("classifier", "Linear", Modality::none), c.hidden_size, c.num_labels, true);
      return;
    }
    if (c.names->pooler[0] == '\0') return;
    const Builder pooler = model.child("pooler", c.names->pooler);
    pooler_ = pooler.module;
    head_ = Linear(pooler.child("dense", "Linear"), c.hidden_size, c.pooler_output_size, true);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (!config_.classifies) {
      ModelOutputs outputs;
      Tensor sequence_output = model_forward(inputs.pixel_values);
      if (head_.weight) {
        ModuleCall call(context_, pooler_);
        const Tensor first_token_tensor = select(sequence_output, 1, 0);
        Tensor pooled_output = head_(first_token_tensor);
        pooled_output = tanh(pooled_output);
        outputs.pooler_output = call.result(pooled_output);
      }
      outputs.others.push_back(std::move(sequence_output));
      return outputs;
    }
    const Tensor sequence_output = model_forward(inputs.pixel_values);
    const Tensor pooled_output =
        config_.names->averages ? mean(sequence_output, 1, false) : select(sequence_output, 1, 0);
    return classified(head_(pooled_output), inputs);
  }

 private:
  // ViTModel.forward, before its pooler
  Tensor model_forward(const Tensor& argument) const {
    ModuleCall call(context_, model_);
    if (context_.modules) context_.modules->read(embeddings_.projection.weight);  // `expected_dtype`
    const Tensor pixel_values = to(call.argument(argument), embeddings_.projection.weight.dtype());
    const Tensor embedding_output = embeddings_(pixel_values);
    const Tensor hidden_states = layers_(embedding_output);
    return call.result(layernorm_(hidden_states));
  }

  VitEmbeddings embeddings_;
  VitLayers layers_;
  LayerNorm layernorm_;
  Linear head_;  ///< classifier, or the pooler's
  ModuleId model_ = 0, pooler_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_vit(Context& context, const VitConfig& config, const DataConfig& data,
                                 const ModelOptions& options) {
  return std::make_unique<Vit>(context, config, data, options);
}

}  // namespace oometer
