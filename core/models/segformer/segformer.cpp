#include "models/segformer/segformer.h"

#include <optional>
#include <utility>

#include "models/kit/conv2d.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// flatten(2).transpose(1, 2) of images
Tensor tokens_of(const Tensor& images) {
  const std::int64_t count = checked_product(images.size(2), images.size(3));
  return transpose(reshape(images, {images.size(0), images.size(1), count}), 1, 2);
}

/// transpose(1, 2).reshape(b, c, height, width) of tokens: a view, with the channels last.
Tensor images_of(const Tensor& tokens, std::int64_t height, std::int64_t width) {
  const Tensor cut = view(tokens, {tokens.size(0), height, width, tokens.size(2)});
  Tensor images = permute(cut, {0, 3, 1, 2});
  // reshape gives a dimension of one the next one's extent as its stride (TensorUtils.cpp, computeStride_impl).
  if (images.size(0) == 1) images->strides[0] = images.size(1);
  return images;
}

struct SegformerOverlapPatchEmbeddings {
  SegformerOverlapPatchEmbeddings(const Builder& builder, const SegformerConfig& c, std::size_t stage)
      : proj(builder.child("proj", "Conv2d"), stage == 0 ? c.num_channels : c.hidden_sizes[stage - 1],
             c.hidden_sizes[stage],
             {.kernel = c.patch_sizes[stage], .stride = c.strides[stage], .padding = c.patch_sizes[stage] / 2}),
        layer_norm(builder.child("layer_norm", "LayerNorm"), c.hidden_sizes[stage]),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, std::int64_t& height, std::int64_t& width) const {
    ModuleCall call(argument.context(), module);
    Tensor embeddings = proj(call.argument(argument));
    height = embeddings.size(2);
    width = embeddings.size(3);
    embeddings = tokens_of(embeddings);
    return call.result(layer_norm(embeddings));
  }

  AnyConv2d proj;
  LayerNorm layer_norm;
  ModuleId module;
};

struct SegformerSequenceReduction {
  SegformerSequenceReduction(const Builder& builder, std::int64_t hidden_size, std::int64_t ratio)
      : sequence_reduction(builder.child("sequence_reduction", "Conv2d"), hidden_size, hidden_size,
                           {.kernel = ratio, .stride = ratio}),
        layer_norm(builder.child("layer_norm", "LayerNorm"), hidden_size),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, std::int64_t height, std::int64_t width) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = images_of(call.argument(argument), height, width);
    hidden_states = sequence_reduction(hidden_states);
    hidden_states = tokens_of(hidden_states);
    return call.result(layer_norm(hidden_states));
  }

  AnyConv2d sequence_reduction;
  LayerNorm layer_norm;
  ModuleId module;
};

struct SegformerAttention {
  SegformerAttention(const Builder& builder, const VitConfig& c, std::int64_t ratio, const ModelOptions& options)
      : q_proj(builder.child("q_proj", "Linear"), c.hidden_size, c.hidden_size, true),
        k_proj(builder.child("k_proj", "Linear"), c.hidden_size, c.hidden_size, true),
        v_proj(builder.child("v_proj", "Linear"), c.hidden_size, c.hidden_size, true),
        o_proj(builder.child("o_proj", "Linear"), c.hidden_size, c.hidden_size, true),
        head_dim(c.head_dim()),
        call{.kind = options.attention, .dropout = c.attention_probs_dropout_prob},
        module(builder.module) {
    if (ratio > 1)
      sequence_reduction.emplace(builder.child("sequence_reduction", "SegformerSequenceReduction"), c.hidden_size,
                                 ratio);
  }

  AttentionOutputs operator()(const Tensor& argument, std::int64_t height, std::int64_t width) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    const Tensor kv_hidden_states =
        sequence_reduction ? (*sequence_reduction)(hidden_states, height, width) : hidden_states;
    states.key = heads_of(k_proj(kv_hidden_states), head_dim);
    states.value = heads_of(v_proj(kv_hidden_states), head_dim);
    AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, {});
    attention.output = reshape(attention.output, hidden_states.sizes());
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<SegformerSequenceReduction> sequence_reduction;
  std::int64_t head_dim;
  AttentionCall call;
  ModuleId module;
};

struct SegformerMixMLP {
  SegformerMixMLP(const Builder& builder, const VitConfig& c)
      : fc1(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true),
        dwconv_builder(builder.child("dwconv", "SegformerDepthWiseConv")),
        dwconv(dwconv_builder.child("dwconv", "Conv2d"), c.intermediate_size, c.intermediate_size,
               {.kernel = 3, .padding = 1, .groups = c.intermediate_size}),
        fc2(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true),
        activation_fn(c.hidden_act),
        dropout_prob(c.hidden_dropout_prob),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, std::int64_t height, std::int64_t width) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = fc1(call.argument(argument));
    {
      ModuleCall depthwise(argument.context(), dwconv_builder.module);
      const Tensor images = dwconv(images_of(depthwise.argument(hidden_states), height, width));
      hidden_states = depthwise.result(tokens_of(images));
    }
    hidden_states = activate(activation_fn, hidden_states);
    hidden_states = dropout(hidden_states, dropout_prob);
    hidden_states = fc2(hidden_states);
    return call.result(dropout(hidden_states, dropout_prob));
  }

  Linear fc1;
  Builder dwconv_builder;
  AnyConv2d dwconv;
  Linear fc2;
  Activation activation_fn;
  double dropout_prob;
  ModuleId module;
};

struct SegformerLayer {
  SegformerLayer(const Builder& builder, const VitConfig& c, std::int64_t ratio, double drop_path_rate,
                 const ModelOptions& options)
      : layernorm_before(builder.child("layernorm_before", "LayerNorm"), c.hidden_size),
        attention(builder.child("attention", c.names->attention), c, ratio, options),
        layernorm_after((builder.child("drop_path", drop_path_rate > 0 ? "SegformerDropPath" : "Identity"),
                         builder.child("layernorm_after", "LayerNorm")),
                        c.hidden_size),
        mlp(builder.child("mlp", c.names->mlp), c),
        dropout_prob(c.hidden_dropout_prob),
        drop_prob(drop_path_rate),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, std::int64_t height, std::int64_t width) const {
    const ModuleScope scope(hidden_in.context(), module);
    const auto added = [&](const Tensor& x, const Tensor& to_what) {
      const Tensor kept = drop_path(x, drop_prob);
      return add(kept, to_what);
    };
    Tensor residual = hidden_in;
    Tensor hidden_states = layernorm_before(hidden_in);
    AttentionOutputs attended = attention(hidden_states, height, width);
    hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
    hidden_states = dropout(hidden_states, dropout_prob);
    hidden_states = added(hidden_states, residual);
    residual = hidden_states;
    hidden_states = layernorm_after(hidden_states);
    hidden_states = mlp(hidden_states, height, width);
    return added(hidden_states, residual);
  }

  LayerNorm layernorm_before;
  SegformerAttention attention;
  LayerNorm layernorm_after;
  SegformerMixMLP mlp;
  double dropout_prob, drop_prob;
  ModuleId module;
};

struct SegformerStage {
  /// `first_layer`: layers of all stages before.
  SegformerStage(const Builder& builder, const SegformerConfig& c, std::size_t stage, std::int64_t first_layer,
                 const ModelOptions& options)
      : patch_embeddings(builder.child("patch_embeddings", c.names->patch_embeddings), c, stage),
        blocks(builder),
        checkpointing(options.checkpointing),
        module(builder.module) {
    VitConfig its = c;
    its.hidden_size = c.hidden_sizes[stage];
    its.num_attention_heads = c.num_heads[stage];
    its.intermediate_size = checked_product(its.hidden_size, c.mlp_ratios[stage]);
    layers.reserve(static_cast<std::size_t>(c.depths[stage]));
    for (std::int32_t i = 0; i < c.depths[stage]; ++i) {
      layers.emplace_back(builder.child("blocks", c.names->layer, i), its, c.sr_ratios[stage],
                          first_layer + i == 0 ? 0 : c.drop_path_rate, options);
      blocks.add_block(builder);
    }
    blocks.first_block = static_cast<std::size_t>(first_layer);
    layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), its.hidden_size);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    std::int64_t height = 0, width = 0;
    Tensor hidden_states = patch_embeddings(call.argument(argument), height, width);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], height, width](const Tensor& hidden) { return layer(hidden, height, width); };
    };
    const auto drops = [&](std::size_t i) { return layers[i].drop_prob > 0 ? 1 : 0; };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block,
                               {.positional = true, .kind = drops});
    hidden_states = layer_norm(hidden_states);
    return call.result(contiguous(images_of(hidden_states, height, width)));
  }

  SegformerOverlapPatchEmbeddings patch_embeddings;
  std::vector<SegformerLayer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
  LayerNorm layer_norm;
  ModuleId module;
};

struct SegformerDecodeHead {
  SegformerDecodeHead(const Builder& builder, const SegformerConfig& c)
      : dropout_prob(c.classifier_dropout_prob), module(builder.module) {
    const auto stages = static_cast<std::int64_t>(c.hidden_sizes.size());
    for (std::int64_t i = 0; i < stages; ++i) {
      const Builder mlp = builder.child("linear_projections", "SegformerMLP", static_cast<std::int32_t>(i));
      projection_modules.push_back(mlp.module);
      projections.emplace_back(mlp.child("proj", "Linear"), c.hidden_sizes[static_cast<std::size_t>(i)],
                               c.decoder_hidden_size, true);
    }
    linear_fuse = AnyConv2d(builder.child("linear_fuse", "Conv2d"), c.decoder_hidden_size * stages,
                            c.decoder_hidden_size, {.bias = false});
    const Builder norm = builder.child("batch_norm", "BatchNorm2d");
    batch_norm_module = norm.module;
    batch_norm_weight = norm.parameter("weight", {c.decoder_hidden_size});
    batch_norm_bias = norm.parameter("bias", {c.decoder_hidden_size});
    for (int i = 0; i < 2; ++i) norm.buffer({c.decoder_hidden_size}, norm.dtype);  // running_mean, running_var
    norm.buffer({}, DType::int64);                                                 // num_batches_tracked
    classifier = AnyConv2d(builder.child("classifier", "Conv2d"), c.decoder_hidden_size, c.num_labels, {});
  }

  Tensor operator()(const TensorList& encoder_hidden_states) const {
    Context& context = encoder_hidden_states[0].context();
    ModuleCall call(context, module);
    const std::int64_t height = encoder_hidden_states[0].size(2), width = encoder_hidden_states[0].size(3);
    std::vector<Tensor> all_hidden_states;
    for (std::size_t i = 0; i < projections.size(); ++i) {
      const Tensor& of_stage = encoder_hidden_states[i];
      Tensor hidden_states = [&] {
        ModuleCall mlp(context, projection_modules[i]);
        return mlp.result(projections[i](tokens_of(mlp.argument(of_stage))));
      }();
      hidden_states = images_of(hidden_states, of_stage.size(2), of_stage.size(3));
      all_hidden_states.push_back(upsample_bilinear2d(hidden_states, height, width));
    }
    Tensor hidden_states = [&] {
      const Tensor joined = cat({all_hidden_states.rbegin(), all_hidden_states.rend()}, 1);
      return linear_fuse(joined);
    }();
    {
      ModuleCall norm(context, batch_norm_module);
      hidden_states =
          norm.result(batch_norm(norm.argument(hidden_states), batch_norm_weight, batch_norm_bias, context.training));
    }
    hidden_states = relu(hidden_states);
    hidden_states = dropout(hidden_states, dropout_prob);
    return call.result(classifier(hidden_states));
  }

  std::vector<Linear> projections;
  std::vector<ModuleId> projection_modules;
  AnyConv2d linear_fuse, classifier;
  Tensor batch_norm_weight, batch_norm_bias;
  double dropout_prob;
  ModuleId module, batch_norm_module = 0;
};

class Segformer : public ImageModel {
 public:
  Segformer(Context& context, const SegformerConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), config_(c) {
    if (c.segments) loss_type = LossType::cross_entropy;
    const Builder model = c.classifies || c.segments ? root_.child("segformer", c.names->model) : root_;
    model_ = model.module;
    std::int64_t before = 0;
    stages_.reserve(c.depths.size());
    for (std::size_t i = 0; i < c.depths.size(); ++i) {
      stages_.emplace_back(model.child("stages", "SegformerStage", static_cast<std::int32_t>(i)), c, i, before,
                           options);
      before += c.depths[i];
    }
    if (c.segments) decode_head_.emplace(root_.child("decode_head", "SegformerDecodeHead"), c);
    if (c.classifies)
      classifier_ = Linear(root_.child("classifier", "Linear", Modality::none), c.hidden_size, c.num_labels, true);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = ImageModel::make_inputs(with_labels);
    if (with_labels && config_.segments)
      batch.labels = empty(context_, Op::input, {data_.images(), data_.image_height, data_.image_width}, DType::int64,
                           Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const TensorList hidden_states = model_forward(inputs.pixel_values);
    if (config_.segments) return segmented(hidden_states, inputs);
    Tensor last = hidden_states[0];
    if (!config_.classifies) return {{}, {}, {std::move(last)}};
    Tensor sequence_output = permute(last, {0, 2, 3, 1});
    sequence_output = reshape(sequence_output, {last.size(0), last.size(2) * last.size(3), last.size(1)});
    sequence_output = mean(sequence_output, 1, false);
    return classified(classifier_(sequence_output), inputs);
  }

 private:
  // SegformerModel.forward: what each stage gives, or, where nobody asks for all, the last one.
  TensorList model_forward(const Tensor& argument) const {
    ModuleCall call(context_, model_);
    TensorList all;
    Tensor hidden_states = call.argument(argument);
    check_pixels(hidden_states, stages_[0].patch_embeddings.proj.weight);
    for (const SegformerStage& stage : stages_) {
      hidden_states = stage(hidden_states);
      if (config_.segments) all.push_back(hidden_states);
    }
    if (!config_.segments) all.push_back(call.result(hidden_states));
    return all;
  }

  ModelOutputs segmented(const TensorList& encoder_hidden_states, const ModelInputs& inputs) const {
    ModelOutputs outputs;
    Tensor logits = (*decode_head_)(encoder_hidden_states);
    if (inputs.labels) {
      const Tensor upsampled_logits = upsample_bilinear2d(logits, inputs.labels.size(1), inputs.labels.size(2));
      outputs.loss = (*loss_function)(upsampled_logits, inputs.labels);
    }
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

  SegformerConfig config_;
  std::vector<SegformerStage> stages_;
  std::optional<SegformerDecodeHead> decode_head_;
  Linear classifier_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_segformer(Context& context, const SegformerConfig& config, const DataConfig& data,
                                       const ModelOptions& options) {
  return std::make_unique<Segformer>(context, config, data, options);
}

}  // namespace oometer
