#include "models/dpt/dpt.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "models/vit/self_attention.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "nn/checkpointing.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct DptEmbeddings {
  DptEmbeddings(const Builder& builder, const VitConfig& c, const ModelOptions& options)
      : dropout_prob(c.hidden_dropout_prob), checkpointing(options.checkpointing), module(builder.module) {
    cls_token = builder.parameter("cls_token", {1, 1, c.hidden_size});
    const Builder patches = builder.child("patch_embeddings", c.names->patch_embeddings);
    patch_embeddings = patches.module;
    projection = Conv2d(patches.child("projection", "Conv2d"), c.num_channels, c.hidden_size, c.patch_size, true);
    builder.children_are_through();
    position_embeddings = builder.parameter("position_embeddings", {1, c.num_positions(), c.hidden_size});
  }

  /// _resize_pos_embed, whether the size is another one or not, in the weights' own type.
  Tensor resized_positions(std::int64_t rows, std::int64_t columns) const {
    const std::int64_t positions = position_embeddings.size(1) - 1, dim = position_embeddings.size(2);
    std::int64_t side = 0;
    while ((side + 1) * (side + 1) <= positions) ++side;
    const Tensor posemb_tok = slice(position_embeddings, 1, 0, 1);
    Tensor posemb_grid = slice(select(position_embeddings, 0, 0), 0, 1, positions);
    posemb_grid = permute(reshape(posemb_grid, {1, side, side, dim}), {0, 3, 1, 2});
    posemb_grid = upsample_bilinear2d(posemb_grid, rows, columns);
    posemb_grid = reshape(permute(posemb_grid, {0, 2, 3, 1}), {1, rows * columns, dim});
    return cat({posemb_tok, posemb_grid}, 1);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor pixel_values = call.argument(argument);
    const std::int64_t batch = pixel_values.size(0), dim = cls_token.size(2), patch = projection.weight.size(2);
    const Tensor positions = resized_positions(pixel_values.size(2) / patch, pixel_values.size(3) / patch);
    Tensor embeddings;
    {
      ModuleCall patches(argument.context(), patch_embeddings);
      const Tensor projected = projection(patches.argument(pixel_values));
      embeddings =
          transpose(reshape(projected, {batch, dim, checked_product(projected.size(2), projected.size(3))}), 1, 2);
      embeddings = patches.result(embeddings);
    }
    if (checkpointing.input_require_grads) require_input_grad(checkpointing, embeddings, patch_embeddings);
    const Tensor cls_tokens = expand(cls_token, {batch, 1, dim});
    embeddings = cat({cls_tokens, embeddings}, 1);
    embeddings = add(embeddings, positions);
    return call.result(dropout(embeddings, dropout_prob));
  }

  Tensor cls_token, position_embeddings;
  Conv2d projection;
  double dropout_prob;
  CheckpointingConfig checkpointing;
  ModuleId module, patch_embeddings = 0;
};

struct DptAttention {
  DptAttention(const Builder& builder, const VitConfig& c, const ModelOptions& options)
      : attention(builder.child("attention", "DPTSelfAttention"), c, options, c.qkv_bias), module(builder.module) {
    const Builder its = builder.child("output", "DPTViTSelfOutput");
    output = its.module;
    dense = Linear(its.child("dense", "Linear"), c.hidden_size, c.hidden_size, true);
    dropout_prob = c.hidden_dropout_prob;
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const AttentionOutputs attended = attention(call.argument(argument));
    ModuleCall its(argument.context(), output);
    Tensor hidden_states = dense(its.argument(attended.output));
    hidden_states = its.result(dropout(hidden_states, dropout_prob));
    return call.result(hidden_states);
  }

  VitSelfAttention attention;
  Linear dense;
  double dropout_prob = 0;
  ModuleId module, output = 0;
};

struct DptLayer {
  DptLayer(const Builder& builder, const VitConfig& c, const ModelOptions& options)
      : attention(builder.child("attention", c.names->attention), c, options),
        hidden_act(c.hidden_act),
        dropout_prob(c.hidden_dropout_prob),
        module(builder.module) {
    const Builder inner = builder.child("intermediate", c.names->mlp);
    intermediate = inner.module;
    intermediate_dense = Linear(inner.child("dense", "Linear"), c.hidden_size, c.intermediate_size, true);
    const Builder its = builder.child("output", "DPTViTOutput");
    output = its.module;
    output_dense = Linear(its.child("dense", "Linear"), c.intermediate_size, c.hidden_size, true);
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
    {
      ModuleCall call(context, intermediate);
      Tensor inner = intermediate_dense(call.argument(layer_output));
      inner = activate(hidden_act, inner);
      layer_output = call.result(inner);
    }
    ModuleCall call(context, output);
    const Tensor input_tensor = call.argument(hidden_states);
    Tensor outer = output_dense(call.argument(layer_output));
    outer = dropout(outer, dropout_prob);
    outer = add(outer, input_tensor);
    return call.result(outer);
  }

  DptAttention attention;
  Linear intermediate_dense, output_dense;
  LayerNorm layernorm_before, layernorm_after;
  Activation hidden_act;
  double dropout_prob;
  ModuleId module, intermediate = 0, output = 0;
};

struct DptDepthEstimationHead {
  DptDepthEstimationHead(const Builder& builder, const DptConfig& c) : module(builder.module) {
    const std::int64_t features = c.neck.fusion_hidden_size;
    if (c.add_projection) projection = convolution3x3(builder.child("projection", "Conv2d"), 256, 256);
    const Builder head = builder.child("head", "Sequential");
    sequential = head.module;
    conv0 = convolution3x3(head.child("0", "Conv2d"), features, features / 2);
    conv2 = convolution3x3(head.child("2", "Conv2d"), features / 2, 32);
    conv4 = AnyConv2d(head.child("4", "Conv2d"), 32, 1, {});
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    if (projection) {
      hidden_states = (*projection)(hidden_states);
      hidden_states = relu(hidden_states);
    }
    Tensor predicted_depth;
    {
      ModuleCall head(argument.context(), sequential);
      Tensor input = conv0(head.argument(hidden_states));
      input = upsample_bilinear2d(input, 2 * input.size(2), 2 * input.size(3));
      input = conv2(input);
      input = relu(input);
      input = conv4(input);
      predicted_depth = head.result(relu(input));
    }
    predicted_depth =
        reshape(predicted_depth, {predicted_depth.size(0), predicted_depth.size(2), predicted_depth.size(3)});
    return call.result(predicted_depth);
  }

  std::optional<AnyConv2d> projection;
  AnyConv2d conv0, conv2, conv4;
  ModuleId module, sequential = 0;
};

/// DPTSemanticSegmentationHead, and DPTAuxiliaryHead, which does not stretch its logits.
struct DptSegmentationHead {
  DptSegmentationHead(const Builder& builder, const DptConfig& c, bool is_auxiliary)
      : dropout_prob(is_auxiliary ? 0.1 : c.semantic_classifier_dropout),
        stretches(!is_auxiliary),
        module(builder.module) {
    const std::int64_t features = c.neck.fusion_hidden_size;
    const Builder head = builder.child("head", "Sequential");
    sequential = head.module;
    conv0 = convolution3x3(head.child("0", "Conv2d"), features, features, false);
    norm = BatchNorm2d(head.child("1", "BatchNorm2d"), features);
    conv4 = AnyConv2d(head.child("4", "Conv2d"), features, c.num_labels, {});
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor logits;
    {
      ModuleCall head(argument.context(), sequential);
      Tensor input = conv0(head.argument(call.argument(argument)));
      input = norm(input);
      input = relu(input);
      input = dropout(input, dropout_prob);
      input = conv4(input);
      if (stretches) input = upsample_bilinear2d(input, 2 * input.size(2), 2 * input.size(3));
      logits = head.result(input);
    }
    return call.result(logits);
  }

  AnyConv2d conv0, conv4;
  BatchNorm2d norm;
  double dropout_prob;
  bool stretches;
  ModuleId module, sequential = 0;
};

class Dpt : public ImageModel {
 public:
  Dpt(Context& context, const DptConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c.vit(), data, options), config_(c), checkpointing_(options.checkpointing) {
    if (c.head == DptConfig::Head::segmentation) loss_type = LossType::cross_entropy;
    if (c.has_backbone)
      backbone_ = build_dinov2_backbone(root_.child("backbone", "Dinov2Backbone"), c.backbone, options);
    else
      make_model(c, options);
    if (c.head == DptConfig::Head::none) return;
    neck_.emplace(root_.child("neck", "DPTNeck"), c.neck);
    if (c.head == DptConfig::Head::depth) {
      depth_head_.emplace(root_.child("head", "DPTDepthEstimationHead"), c);
      return;
    }
    head_.emplace(root_.child("head", "DPTSemanticSegmentationHead"), c, false);
    auxiliary_head_.emplace(root_.child("auxiliary_head", "DPTAuxiliaryHead"), c, true);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = ImageModel::make_inputs(with_labels);
    if (with_labels && config_.head == DptConfig::Head::segmentation)
      batch.labels = empty(context_, Op::input, {data_.images(), data_.image_height, data_.image_width}, DType::int64,
                           Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor pooled_output;
    if (config_.head == DptConfig::Head::none) {
      Tensor sequence_output = model_forward(inputs.pixel_values, pooled_output, nullptr);
      return {{}, std::move(pooled_output), {std::move(sequence_output)}};
    }
    TensorList all, feature_maps, hidden_states;
    Tensor last_hidden_state;
    if (backbone_) {
      feature_maps = (*backbone_)(inputs.pixel_values, &all);
      hidden_states = feature_maps;
    } else {
      last_hidden_state = model_forward(inputs.pixel_values, pooled_output, &all);
      for (const std::int64_t i : of_neck()) hidden_states.push_back(all[static_cast<std::size_t>(i) + 1]);
    }
    const std::int64_t patch = config_.vit().patch_size, rows = inputs.pixel_values.size(2) / patch,
                       columns = inputs.pixel_values.size(3) / patch;
    if (!backbone_ && rows != columns) {
      context_.refusal = Error{"inconsistent", "/data/image_size",
                               "found " + std::to_string(rows) + " rows of " + std::to_string(columns) +
                                   " patches; expected as many rows as columns, as DPT's neck makes square images"};
      return {};
    }
    hidden_states = (*neck_)(hidden_states, rows, columns);
    const Tensor& last = hidden_states[config_.head_index()];
    if (config_.head == DptConfig::Head::depth) return {{}, {}, {(*depth_head_)(last)}};
    return segmented(last, hidden_states.back(), inputs);
  }

 private:
  // DPTModel.__init__
  void make_model(const DptConfig& c, const ModelOptions& options) {
    const Builder model = c.head == DptConfig::Head::none ? root_ : root_.child("dpt", c.names->model);
    model_ = model.module;
    embeddings_.emplace(model.child("embeddings", c.names->embeddings), c, options);
    const Builder encoder = model.child("encoder", "DPTViTEncoder");
    encoder_ = encoder.module;
    blocks_ = BlockStack(encoder);
    layers_.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers_.emplace_back(encoder.child("layer", c.names->layer, i), c, options);
      blocks_.add_block(encoder);
    }
    layernorm_ = LayerNorm(model.child("layernorm", "LayerNorm"), c.hidden_size);
    if (c.head == DptConfig::Head::none) {
      const Builder pooler = model.child("pooler", "DPTViTPooler");
      pooler_ = pooler.module;
      dense_ = Linear(pooler.child("dense", "Linear"), c.hidden_size, c.pooler_output_size, true);
    }
  }

  /// backbone_out_indices, in the layers' order
  std::vector<std::int64_t> of_neck() const {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i)
      if (std::count(config_.backbone_out_indices.begin(), config_.backbone_out_indices.end(), i) > 0)
        indices.push_back(i);
    return indices;
  }

  // DPTModel.forward. `all`: what capture_outputs collects, of a class that asks for it.
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output, TensorList* all) const {
    ModuleCall call(context_, model_);
    const Tensor pixel_values = call.argument(argument);
    check_pixels(pixel_values, embeddings_->projection.weight);
    const Tensor embedding_output = (*embeddings_)(pixel_values);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i]](const Tensor& hidden) { return layer(hidden); };
    };
    Tensor sequence_output;
    {
      ModuleCall encoder(context_, encoder_);
      Tensor hidden_states = encoder.argument(embedding_output);
      if (!all) {
        hidden_states = blocks_.run(0, layers_.size(), hidden_states, checkpointing_, block, {.positional = true});
      } else {
        all->push_back(hidden_states);
        for (std::size_t i = 0; i < layers_.size(); ++i) {
          hidden_states = blocks_.run(i, i + 1, hidden_states, checkpointing_, block, {.positional = true});
          all->push_back(hidden_states);
        }
      }
      sequence_output = encoder.result(hidden_states);
    }
    sequence_output = layernorm_(sequence_output);
    if (config_.head == DptConfig::Head::none) {
      ModuleCall pooler(context_, pooler_);
      const Tensor first_token_tensor = select(pooler.argument(sequence_output), 1, 0);
      pooled_output = dense_(first_token_tensor);
      pooled_output = tanh(pooled_output);
      pooled_output = call.result(pooler.result(pooled_output));
    }
    return call.result(sequence_output);
  }

  ModelOutputs segmented(const Tensor& last, const Tensor& finest, const ModelInputs& inputs) const {
    ModelOutputs outputs;
    Tensor logits = (*head_)(last);
    const Tensor auxiliary_logits = (*auxiliary_head_)(finest);
    if (inputs.labels) {
      const std::int64_t height = inputs.labels.size(1), width = inputs.labels.size(2);
      const Tensor upsampled_logits = upsample_bilinear2d(logits, height, width),
                   upsampled_auxiliary_logits = upsample_bilinear2d(auxiliary_logits, height, width);
      const Tensor main_loss = (*loss_function)(upsampled_logits, inputs.labels),
                   auxiliary_loss = (*loss_function)(upsampled_auxiliary_logits, inputs.labels),
                   weighted = mul_scalar(auxiliary_loss);
      outputs.loss = add(main_loss, weighted);
    }
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

  DptConfig config_;
  CheckpointingConfig checkpointing_;
  std::unique_ptr<const Dinov2Backbone> backbone_;  ///< null: what follows
  std::optional<DptEmbeddings> embeddings_;
  std::vector<DptLayer> layers_;
  BlockStack blocks_;
  LayerNorm layernorm_;
  Linear dense_;
  std::optional<DptNeck> neck_;
  std::optional<DptDepthEstimationHead> depth_head_;
  std::optional<DptSegmentationHead> head_, auxiliary_head_;
  ModuleId model_ = 0, encoder_ = 0, pooler_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_dpt(Context& context, const DptConfig& config, const DataConfig& data,
                                 const ModelOptions& options) {
  return std::make_unique<Dpt>(context, config, data, options);
}

}  // namespace oometer
