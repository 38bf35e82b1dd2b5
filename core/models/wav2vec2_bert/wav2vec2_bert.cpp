#include "models/wav2vec2_bert/wav2vec2_bert.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "models/kit/audio_input.h"
#include "models/kit/position_bias.h"
#include "models/kit/text_attention.h"
#include "models/masking.h"
#include "models/wav2vec2/parts.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/glu.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

std::int64_t Wav2Vec2BertConfig::frames(double seconds) {
  const auto samples = static_cast<std::int64_t>(std::llround(seconds * 16'000));
  return samples < 400 ? 0 : 1 + (samples - 400) / 160;
}

namespace {

/// ~attention_mask.bool().unsqueeze(-1), of a mask [b, s].
Tensor padding_of(const Tensor& attention_mask) {
  const Tensor is_attended = to(attention_mask, DType::boolean);
  return unsqueeze(empty(attention_mask.context(), Op::bitwise_not, attention_mask.sizes(), DType::boolean), -1);
}

struct FeatureProjection {
  FeatureProjection() = default;
  FeatureProjection(const Builder& builder, const Wav2Vec2BertConfig& c)
      : layer_norm(builder.child("layer_norm", "LayerNorm"), c.feature_projection_input_dim),
        projection(builder.child("projection", "Linear"), c.feature_projection_input_dim, c.hidden_size, true),
        dropout_prob(c.feat_proj_dropout),
        module(builder.module) {}

  /// `norm_hidden_states`: what is projected.
  Tensor operator()(const Tensor& argument, Tensor& norm_hidden_states) const {
    ModuleCall call(argument.context(), module);
    check_audio_input(argument.context(), argument, layer_norm.weight);
    norm_hidden_states = layer_norm(call.argument(argument));
    const Tensor hidden_states = projection(norm_hidden_states);
    return call.result(dropout(hidden_states, dropout_prob));
  }

  LayerNorm layer_norm;
  Linear projection;
  double dropout_prob = 0;
  ModuleId module = 0;
};

/// nn.Conv1d without bias.
struct Conv1d {
  Conv1d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
         std::int64_t its_groups = 1)
      : groups(its_groups), module(builder.module) {
    weight = builder.parameter("weight", {out_channels, in_channels / groups, kernel});
  }

  Tensor operator()(const Tensor& x) const {
    ModuleCall call(x.context(), module);
    return call.result(
        convolution(call.argument(x), weight, {},
                    {.stride = {1}, .padding = {0}, .dilation = {1}, .output_padding = {0}, .groups = groups}));
  }

  std::int64_t groups;
  Tensor weight;
  ModuleId module;
};

struct ConvolutionModule {
  ConvolutionModule(const Builder& builder, const Wav2Vec2BertConfig& c)
      : layer_norm(builder.child("layer_norm", "LayerNorm"), c.hidden_size),
        pointwise_conv1(builder.child("pointwise_conv1", "Conv1d"), c.hidden_size, 2 * c.hidden_size, 1),
        depthwise_conv(builder.child("depthwise_conv", "Conv1d"), c.hidden_size, c.hidden_size,
                       c.conv_depthwise_kernel_size, c.hidden_size),
        depthwise_layer_norm(builder.child("depthwise_layer_norm", "LayerNorm"), c.hidden_size),
        pointwise_conv2(builder.child("pointwise_conv2", "Conv1d"), c.hidden_size, c.hidden_size, 1),
        activation(c.hidden_act),
        padding(c.conv_depthwise_kernel_size - 1),
        dropout_prob(c.conformer_conv_dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = layer_norm(call.argument(argument));
    hidden_states = masked_fill(hidden_states, padding_of(attention_mask));
    hidden_states = transpose(hidden_states, 1, 2);
    hidden_states = pointwise_conv1(hidden_states);
    hidden_states = glu(hidden_states);
    hidden_states = pad(hidden_states, 2, padding);
    hidden_states = depthwise_conv(hidden_states);
    hidden_states = depthwise_layer_norm(transpose(hidden_states, 1, 2));
    hidden_states = transpose(hidden_states, 1, 2);
    hidden_states = activate(activation, hidden_states);
    hidden_states = pointwise_conv2(hidden_states);
    hidden_states = dropout(hidden_states, dropout_prob);
    return call.result(transpose(hidden_states, 1, 2));
  }

  LayerNorm layer_norm;
  Conv1d pointwise_conv1, depthwise_conv;
  LayerNorm depthwise_layer_norm;
  Conv1d pointwise_conv2;
  Activation activation;
  std::int64_t padding;
  double dropout_prob;
  ModuleId module;
};

struct SelfAttention {
  SelfAttention(const Builder& builder, const Wav2Vec2BertConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim()),
        call{.kind = options.attention, .dropout = c.attention_dropout},
        module(builder.module) {
    const auto projection = [&](const char* name) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
    };
    linear_q = projection("linear_q");
    linear_k = projection("linear_k");
    linear_v = projection("linear_v");
    linear_out = projection("linear_out");
    distance_embedding = Embedding(builder.child("distance_embedding", "Embedding"),
                                   c.left_max_position_embeddings + c.right_max_position_embeddings + 1, head_dim);
  }

  AttentionOutputs operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const AttentionInputs states = project(hidden_states, linear_q, linear_k, linear_v, head_dim, false);
    const Tensor position_bias = relative_key(states.query);
    AttentionOutputs attention = attend_with_bias(call, states, attention_mask, position_bias);
    attention.output = reshape(attention.output, hidden_states.sizes());
    attention.output = self.result(linear_out(attention.output));
    return attention;
  }

  // _apply_relative_key_position_encoding
  Tensor relative_key(const Tensor& query) const {
    Context& context = query.context();
    const std::int64_t length = query.size(2);
    const Tensor position_ids_l = integers(context, Op::arange, {length});
    const Tensor position_ids_r = integers(context, Op::arange, {length});
    Tensor distance = integers(context, Op::sub, {length, length});
    distance = integers(context, Op::clamp, {length, length});
    Tensor positional_embedding;
    {
      const Tensor rows = integers(context, Op::add, {length, length});
      positional_embedding = distance_embedding(rows);
    }
    positional_embedding = to(positional_embedding, query.dtype());
    const Tensor weights = einsum("bhld", "lrd", "bhlr", query, positional_embedding);
    return mul_scalar(weights);
  }

  std::int64_t head_dim;
  Linear linear_q, linear_k, linear_v, linear_out;
  Embedding distance_embedding;
  AttentionCall call;
  ModuleId module;
};

/// Conformer block.
struct EncoderLayer {
  EncoderLayer(const Builder& builder, const Wav2Vec2BertConfig& c, const ModelOptions& options)
      : ffn1_layer_norm(norm(builder, "ffn1_layer_norm", c)),
        ffn1(feed_forward(builder, "ffn1", c)),
        self_attn_layer_norm(norm(builder, "self_attn_layer_norm", c)),
        self_attn(builder.child("self_attn", "Wav2Vec2BertSelfAttention"), c, options),
        conv_module(builder.child("conv_module", "Wav2Vec2BertConvolutionModule"), c),
        ffn2_layer_norm(norm(builder, "ffn2_layer_norm", c)),
        ffn2(feed_forward(builder, "ffn2", c)),
        final_layer_norm(norm(builder, "final_layer_norm", c)),
        self_attn_dropout(c.attention_dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& attention_mask, const Tensor& conv_attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in;
    Tensor hidden_states = ffn1_layer_norm(hidden_in);
    hidden_states = half_step(ffn1, std::move(hidden_states), residual);
    residual = hidden_states;
    hidden_states = self_attn_layer_norm(hidden_states);
    AttentionOutputs attended = self_attn(hidden_states, attention_mask);
    hidden_states = std::move(attended.output);  // the weights stay in `_` until the layer returns
    hidden_states = dropout(hidden_states, self_attn_dropout);
    hidden_states = add(hidden_states, residual);
    residual = hidden_states;
    hidden_states = conv_module(hidden_states, conv_attention_mask);
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = ffn2_layer_norm(hidden_states);
    hidden_states = half_step(ffn2, std::move(hidden_states), residual);
    return final_layer_norm(hidden_states);
  }

 private:
  static LayerNorm norm(const Builder& builder, const char* name, const Wav2Vec2BertConfig& c) {
    return LayerNorm(builder.child(name, "LayerNorm"), c.hidden_size);
  }
  static Wav2Vec2FeedForward feed_forward(const Builder& builder, const char* name, const Wav2Vec2BertConfig& c) {
    return Wav2Vec2FeedForward(builder.child(name, "Wav2Vec2BertFeedForward"), c.hidden_size, c.intermediate_size,
                               c.hidden_act, c.activation_dropout, c.hidden_dropout);
  }
  static Tensor half_step(const Wav2Vec2FeedForward& feed_forward, Tensor hidden_states, const Tensor& residual) {
    hidden_states = feed_forward(hidden_states);
    const Tensor half = mul_scalar(hidden_states);
    return add(half, residual);
  }

  LayerNorm ffn1_layer_norm;
  Wav2Vec2FeedForward ffn1;
  LayerNorm self_attn_layer_norm;
  SelfAttention self_attn;
  ConvolutionModule conv_module;
  LayerNorm ffn2_layer_norm;
  Wav2Vec2FeedForward ffn2;
  LayerNorm final_layer_norm;
  double self_attn_dropout;
  ModuleId module;
};

struct ConformerEncoder {
  ConformerEncoder() = default;
  ConformerEncoder(const Builder& builder, const Wav2Vec2BertConfig& c, const ModelOptions& options)
      : blocks(builder),
        hidden_dropout(c.hidden_dropout),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", "Wav2Vec2BertEncoderLayer", i), c, options);
      blocks.add_block(builder);
    }
  }

  Tensor operator()(const Tensor& argument, const Tensor& conv_attention_mask, const Rows& rows) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor attention_mask, hidden_states = masked_fill(call.argument(argument), padding_of(conv_attention_mask));
    MaskArguments given;
    given.attention_mask = conv_attention_mask;
    given.rows = &rows;
    attention_mask = create_bidirectional_mask(hidden_states, given, masked);
    hidden_states = dropout(hidden_states, hidden_dropout);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], attention_mask, conv_attention_mask](const Tensor& hidden) {
        return layer(hidden, attention_mask, conv_attention_mask);
      };
    };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block);
    return call.result(hidden_states);
  }

  std::vector<EncoderLayer> layers;
  BlockStack blocks;
  double hidden_dropout = 0;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class Wav2Vec2BertForCTC final : public Model {
 public:
  Wav2Vec2BertForCTC(Context& context, const Wav2Vec2BertConfig& c, const DataConfig& data, const ModelOptions& options)
      : context_(context),
        data_(data),
        config_(c),
        dtype_(options.dtype),
        root_{&context,       &parameters,   &buffers,         context.add_root("Wav2Vec2BertForCTC", Modality::none),
              Modality::none, options.dtype, options.wrapping, options.quantizer} {
    loss_type = LossType::cross_entropy;  // ForCTCLoss, which forward has itself
    const Builder model = root_.child("wav2vec2_bert", "Wav2Vec2BertModel");
    model_ = model.module;
    feature_projection_ = FeatureProjection(model.child("feature_projection", "Wav2Vec2BertFeatureProjection"), c);
    if (c.has_masked_spec_embed) masked_spec_embed_ = model.parameter("masked_spec_embed", {c.hidden_size});
    encoder_ = ConformerEncoder(model.child("encoder", "Wav2Vec2BertEncoder"), c, options);
    lm_head_ = Linear(root_.child("lm_head", "Linear"), c.hidden_size, c.vocab_size, true);
  }

  void set_data(const DataConfig& data) override { data_ = data; }

  ModelInputs make_inputs(bool with_labels) override {
    // What is shorter than a state is refused by forward.
    const Shape states{data_.micro_batch_size,
                       std::max<std::int64_t>(Wav2Vec2BertConfig::states(data_.audio_seconds), 1)};
    ModelInputs batch;
    batch.input_features = empty(context_, Op::input, {states[0], states[1], config_.feature_projection_input_dim},
                                 data_.pixel_dtype.value_or(dtype_), Role::input);
    batch.attention_mask = empty(context_, Op::input, states, DType::int32, Role::input);
    if (with_labels)
      batch.labels = empty(context_, Op::input, {states[0], data_.sequence_length}, DType::int64, Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    // _compute_mask_indices takes no fewer states than a span of its masks has.
    const std::int64_t least = config_.masks_states && context_.training ? config_.mask_time_length : 1;
    if (Wav2Vec2BertConfig::states(data_.audio_seconds) < least)
      context_.refusal = too_few_states(least, 400 + 160 * (2 * least - 2));
    if (inputs.labels) {
      const Tensor most = integers(context_, Op::max, {});
      const Tensor is_label = empty(context_, Op::ge, {}, DType::boolean);
    }
    Tensor extract_features;
    ModelOutputs outputs;
    Tensor last_hidden_state = model_forward(inputs, extract_features);
    const Tensor hidden_states = dropout(last_hidden_state, config_.final_dropout);
    Tensor logits = lm_head_(hidden_states);
    if (inputs.labels) {
      const Tensor input_lengths = attended(inputs.attention_mask);
      outputs.loss = for_ctc_loss(logits, inputs.labels, config_.ctc_mean, config_.ctc_zero_infinity);
    }
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

 private:
  /// attention_mask.sum(-1)
  Tensor attended(const Tensor& attention_mask) const {
    Tensor sums = integers(context_, Op::sum, {attention_mask.size(0)});
    const Tensor widened = to(attention_mask, DType::int64);
    return sums;
  }

  // Wav2Vec2BertModel.forward
  Tensor model_forward(const ModelInputs& inputs, Tensor& extract_features) const {
    ModuleCall call(context_, model_);
    Rows rows;
    rows.has_mask = true;
    rows.documents.assign(static_cast<std::size_t>(data_.micro_batch_size),
                          {Wav2Vec2BertConfig::attended_states(data_.audio_seconds)});
    Tensor hidden_states = feature_projection_(call.argument(inputs.input_features), extract_features);
    if (config_.masks_states && context_.training)
      hidden_states = mask_hidden_states(hidden_states, inputs.attention_mask);
    hidden_states = encoder_(hidden_states, inputs.attention_mask, rows);
    hidden_states = call.result(hidden_states);
    extract_features = call.result(extract_features);
    return hidden_states;
  }

  // _mask_hidden_states
  Tensor mask_hidden_states(const Tensor& hidden_states, const Tensor& attention_mask) const {
    { const Tensor input_lengths = attended(attention_mask); }
    const std::int64_t masked = spec_augmented_states(hidden_states.size(1), config_.mask_time_prob,
                                                      config_.mask_time_length, config_.mask_time_min_masks);
    return apply_spec_augment(hidden_states, masked_spec_embed_, masked);
  }

  Context& context_;
  DataConfig data_;
  Wav2Vec2BertConfig config_;
  DType dtype_;
  Builder root_;
  FeatureProjection feature_projection_;
  Tensor masked_spec_embed_;
  ConformerEncoder encoder_;
  Linear lm_head_;
  ModuleId model_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_wav2vec2_bert(Context& context, const Wav2Vec2BertConfig& config, const DataConfig& data,
                                           const ModelOptions& options) {
  return std::make_unique<Wav2Vec2BertForCTC>(context, config, data, options);
}

}  // namespace oometer
