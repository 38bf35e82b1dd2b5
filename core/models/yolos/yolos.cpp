#include "models/yolos/yolos.h"

#include <optional>
#include <utility>

#include "models/bert/bert.h"
#include "models/kit/detection.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct YolosAttention {
  YolosAttention(const Builder& builder, const YolosConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim()),
        dropout_prob(c.hidden_dropout_prob),
        attention{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
        module(builder.module) {
    const Builder self = builder.child("attention", "YolosSelfAttention");
    self_module = self.module;
    const auto projection = [&](const char* name) {
      return Linear(self.child(name, "Linear"), c.hidden_size, c.hidden_size, c.qkv_bias);
    };
    query = projection("query");
    key = projection("key");
    value = projection("value");
    const Builder output = builder.child("output", "YolosSelfOutput");
    output_module = output.module;
    dense = Linear(output.child("dense", "Linear"), c.hidden_size, c.hidden_size, true);
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(argument);
    AttentionOutputs attended = [&] {
      ModuleCall self(context, self_module);
      const Tensor own = self.argument(hidden_states);
      AttentionInputs states;
      states.key = heads_of(key(own), head_dim);
      states.value = heads_of(value(own), head_dim);
      states.query = heads_of(query(own), head_dim);
      AttentionOutputs outputs = attention.kind == AttentionKind::eager
                                     ? eager_in_own_type(attention, states, {})
                                     : attention_forward(attention, states.query, states.key, states.value, {});
      outputs.output = self.result(reshape(outputs.output, own.sizes()));
      return outputs;
    }();
    ModuleCall output(context, output_module);
    const Tensor projected = dense(output.argument(attended.output));
    return call.result(output.result(dropout(projected, dropout_prob)));
  }

  Linear query, key, value, dense;
  std::int64_t head_dim;
  double dropout_prob;
  AttentionCall attention;
  ModuleId module, self_module = 0, output_module = 0;
};

struct YolosLayer {
  YolosLayer(const Builder& builder, const YolosConfig& c, const ModelOptions& options)
      : attention(builder.child("attention", c.names->attention), c, options),
        activation(c.hidden_act),
        dropout_prob(c.hidden_dropout_prob),
        module(builder.module) {
    const Builder intermediate = builder.child("intermediate", c.names->mlp);
    intermediate_module = intermediate.module;
    intermediate_dense = Linear(intermediate.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true);
    const Builder output = builder.child("output", "YolosOutput");
    output_module = output.module;
    output_dense = Linear(output.child("dense", "Linear"), c.intermediate_size, c.hidden_size, true);
    layernorm_before = LayerNorm(builder.child("layernorm_before", "LayerNorm"), c.hidden_size);
    layernorm_after = LayerNorm(builder.child("layernorm_after", "LayerNorm"), c.hidden_size);
  }

  Tensor operator()(const Tensor& hidden_in) const {
    Context& context = hidden_in.context();
    const ModuleScope scope(context, module);
    const Tensor hidden_states_norm = layernorm_before(hidden_in);
    const Tensor attention_output = attention(hidden_states_norm);
    const Tensor hidden_states = add(attention_output, hidden_in);
    Tensor layer_output = layernorm_after(hidden_states);
    layer_output = [&] {
      ModuleCall call(context, intermediate_module);
      Tensor inner = intermediate_dense(call.argument(layer_output));
      inner = activate(activation, inner);
      return call.result(inner);
    }();
    layer_output = [&] {
      ModuleCall call(context, output_module);
      Tensor inner = output_dense(call.argument(layer_output));
      inner = dropout(inner, dropout_prob);
      inner = add(inner, hidden_states);
      return call.result(inner);
    }();
    return layer_output;
  }

  YolosAttention attention;
  Linear intermediate_dense, output_dense;
  Activation activation;
  LayerNorm layernorm_before, layernorm_after;
  double dropout_prob;
  ModuleId module, intermediate_module = 0, output_module = 0;
};

class Yolos : public ImageModel {
 public:
  Yolos(Context& context, const YolosConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), own_(c), checkpointing_(options.checkpointing) {
    const Builder model = c.detects ? root_.child("vit", c.names->model) : root_;
    model_ = model.module;
    make_embeddings(model.child("embeddings", c.names->embeddings));
    const Builder encoder = model.child("encoder", "YolosEncoder");
    encoder_ = encoder.module;
    blocks_ = BlockStack(encoder);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.emplace_back(encoder.child("layer", c.names->layer, i), c, options);
      blocks_.add_block(encoder);
    }
    if (c.use_mid_position_embeddings) {
      const Builder interpolation = encoder.child("interpolation", "InterpolateMidPositionEmbeddings");
      mid_interpolation_ = interpolation.module;
      mid_position_embeddings_ =
          interpolation.parameter("mid_position_embeddings", {c.num_hidden_layers - 1, 1, tokens(), c.hidden_size});
    }
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    if (!c.detects) {
      const Builder pooler = model.child("pooler", "YolosPooler");
      pooler_ = pooler.module;
      pooler_dense_ = Linear(pooler.child("dense", "Linear"), c.hidden_size, c.hidden_size, true);
      return;
    }
    class_labels_classifier_ = DetectionHead(root_.child("class_labels_classifier", "YolosMLPPredictionHead"),
                                             c.hidden_size, c.hidden_size, c.num_labels + 1, 3);
    bbox_predictor_ =
        DetectionHead(root_.child("bbox_predictor", "YolosMLPPredictionHead"), c.hidden_size, c.hidden_size, 4, 3);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = ImageModel::make_inputs(with_labels);
    if (with_labels && own_.detects) batch.others = make_detection_labels(context_, data_);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    ModelOutputs outputs;
    Tensor last_hidden_state = model_forward(inputs.pixel_values);
    if (!own_.detects) {
      ModuleCall call(context_, pooler_);
      const Tensor first_token_tensor = select(last_hidden_state, 1, 0);
      Tensor pooled_output = pooler_dense_(first_token_tensor);
      pooled_output = tanh(pooled_output);
      outputs.pooler_output = call.result(pooled_output);
      outputs.others.push_back(std::move(last_hidden_state));
      return outputs;
    }
    Predictions predictions;
    {
      const std::int64_t count = own_.num_detection_tokens;
      const Tensor sequence_output = slice(last_hidden_state, 1, last_hidden_state.size(1) - count, count);
      predictions.logits = class_labels_classifier_(sequence_output);
      const Tensor boxes = bbox_predictor_(sequence_output);
      predictions.boxes = sigmoid(boxes);
    }
    if (!inputs.others.empty()) {
      DetectionLoss loss = object_detection_loss(predictions, inputs.others, own_.num_labels);
      outputs.loss = std::move(loss.loss);
      for (Tensor& one : loss.loss_dict) outputs.others.push_back(std::move(one));
    }
    outputs.others.push_back(std::move(predictions.logits));
    outputs.others.push_back(std::move(predictions.boxes));
    outputs.others.push_back(std::move(last_hidden_state));
    return outputs;
  }

 private:
  std::int64_t tokens() const { return own_.num_patches() + own_.num_detection_tokens + 1; }

  void make_embeddings(const Builder& builder) {
    embeddings_ = builder.module;
    cls_token_ = builder.parameter("cls_token", {1, 1, own_.hidden_size});
    detection_tokens_ = builder.parameter("detection_tokens", {1, own_.num_detection_tokens, own_.hidden_size});
    const Builder patches = builder.child("patch_embeddings", own_.names->patch_embeddings);
    patch_embeddings_ = patches.module;
    projection_ =
        Conv2d(patches.child("projection", "Conv2d"), own_.num_channels, own_.hidden_size, own_.patch_size, true);
    position_embeddings_ = builder.parameter("position_embeddings", {1, tokens(), own_.hidden_size});
    interpolation_ = builder.child("interpolation", "InterpolateInitialPositionEmbeddings").module;
  }

  // InterpolateInitialPositionEmbeddings.forward, and InterpolateMidPositionEmbeddings.forward, of positions of layers.
  Tensor interpolated(const Tensor& positions, ModuleId module, std::int64_t height, std::int64_t width) const {
    ModuleCall call(context_, module);
    const bool is_mid = positions.ndim() == 4;
    const int at = is_mid ? 2 : 1;
    const std::int64_t dim = own_.hidden_size, rows = height / own_.patch_size, columns = width / own_.patch_size,
                       depth = positions.size(0), patches = own_.num_patches();
    const Tensor pos_embed = call.argument(positions);
    const Tensor cls_pos_embed = unsqueeze(select(pos_embed, at, 0), 1),
                 det_pos_embed = slice(pos_embed, at, patches + 1, own_.num_detection_tokens);
    Tensor patch_pos_embed = transpose(slice(pos_embed, at, 1, patches), at, at + 1);
    patch_pos_embed =
        view(patch_pos_embed, {depth, dim, own_.image_height / own_.patch_size, own_.image_width / own_.patch_size});
    patch_pos_embed = upsample_bicubic2d(patch_pos_embed, rows, columns);
    patch_pos_embed = transpose(reshape(patch_pos_embed, {depth, dim, rows * columns}), 1, 2);
    if (is_mid) patch_pos_embed = view(contiguous(patch_pos_embed), {depth, 1, rows * columns, dim});
    return call.result(cat({cls_pos_embed, patch_pos_embed, det_pos_embed}, at));
  }

  // YolosEmbeddings.forward
  Tensor embeddings_of(const Tensor& argument) const {
    ModuleCall call(context_, embeddings_);
    const Tensor pixel_values = call.argument(argument);
    check_pixels(pixel_values, projection_.weight);
    const std::int64_t batch = pixel_values.size(0), dim = own_.hidden_size;
    Tensor embeddings;
    {
      ModuleCall patches(context_, patch_embeddings_);
      const Tensor projected = projection_(patches.argument(pixel_values));
      embeddings =
          transpose(reshape(projected, {batch, dim, checked_product(projected.size(2), projected.size(3))}), 1, 2);
      embeddings = patches.result(embeddings);
    }
    if (checkpointing_.input_require_grads) require_input_grad(checkpointing_, embeddings, patch_embeddings_);
    const Tensor cls_tokens = expand(cls_token_, {batch, 1, dim}),
                 detection_tokens = expand(detection_tokens_, {batch, own_.num_detection_tokens, dim});
    embeddings = cat({cls_tokens, embeddings, detection_tokens}, 1);
    const Tensor positions =
        interpolated(position_embeddings_, interpolation_, pixel_values.size(2), pixel_values.size(3));
    embeddings = add(embeddings, positions);
    return call.result(dropout(embeddings, own_.hidden_dropout_prob));
  }

  // YolosEncoder.forward
  Tensor encode(const Tensor& argument, std::int64_t height, std::int64_t width) const {
    ModuleCall call(context_, encoder_);
    Tensor hidden_states = call.argument(argument);
    Tensor mid_position_embeddings;
    if (mid_position_embeddings_)
      mid_position_embeddings = interpolated(mid_position_embeddings_, mid_interpolation_, height, width);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i]](const Tensor& hidden) { return layer(hidden); };
    };
    const BlockTraits traits{.positional = true};
    if (!mid_position_embeddings_)
      return call.result(blocks_.run(0, layers_.size(), std::move(hidden_states), checkpointing_, block, traits));
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      hidden_states = blocks_.run(i, i + 1, std::move(hidden_states), checkpointing_, block, traits);
      if (i + 1 == layers_.size()) break;
      const Tensor own = select(mid_position_embeddings, 0, static_cast<std::int64_t>(i));
      hidden_states = add(hidden_states, own);
    }
    return call.result(hidden_states);
  }

  // YolosModel.forward, before its pooler
  Tensor model_forward(const Tensor& argument) const {
    ModuleCall call(context_, model_);
    const Tensor pixel_values = call.argument(argument);
    const Tensor embedding_output = embeddings_of(pixel_values);
    const Tensor encoder_outputs = encode(embedding_output, pixel_values.size(2), pixel_values.size(3));
    return call.result(layernorm_(encoder_outputs));
  }

  YolosConfig own_;
  CheckpointingConfig checkpointing_;
  Tensor cls_token_, detection_tokens_, position_embeddings_, mid_position_embeddings_;
  Conv2d projection_;
  std::vector<YolosLayer> layers_;
  BlockStack blocks_;
  LayerNorm layernorm_;
  Linear pooler_dense_;
  DetectionHead class_labels_classifier_, bbox_predictor_;
  ModuleId model_ = 0, embeddings_ = 0, patch_embeddings_ = 0, interpolation_ = 0, encoder_ = 0, mid_interpolation_ = 0,
           pooler_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_yolos(Context& context, const YolosConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  return std::make_unique<Yolos>(context, config, data, options);
}

}  // namespace oometer
