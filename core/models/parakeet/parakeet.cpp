#include "models/parakeet/parakeet.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "models/kit/audio_input.h"
#include "models/kit/conv1d.h"
#include "models/kit/conv2d.h"
#include "models/kit/text_attention.h"
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

std::int64_t ParakeetConfig::attended_frames(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * 16'000)) / 160;
}

namespace {

/// torch.arange(length) < lengths[:, None]
Tensor are_valid(Context& context, std::int64_t batch, std::int64_t length) {
  const Tensor positions = integers(context, Op::arange, {length});
  return empty(context, Op::lt, {batch, length}, DType::boolean);
}

/// mask.sum(-1)
Tensor lengths_of(const Tensor& mask) {
  Tensor lengths = integers(mask.context(), Op::sum, {mask.size(0)});
  const Tensor widened = to(mask, DType::int64);
  return lengths;
}

/// ParakeetEncoderSubsamplingConv2D.
struct Subsampling {
  Subsampling() = default;
  Subsampling(const Builder& builder, const ParakeetConfig& c) : module(builder.module) {
    const std::int64_t channels = c.subsampling_conv_channels;
    std::int32_t next = 0;
    AnyConv2d::Options strided{.kernel = c.subsampling_conv_kernel_size,
                               .stride = c.subsampling_conv_stride,
                               .padding = (c.subsampling_conv_kernel_size - 1) / 2};
    const auto convolve = [&](std::int64_t in_channels, const AnyConv2d::Options& options) {
      convolutions.emplace_back(builder.child("layers", "Conv2d", next++), in_channels, channels, options);
    };
    const auto activate_next = [&] { builder.child("layers", "ReLU", next++); };
    convolve(1, strided);
    activate_next();
    strided.groups = channels;
    for (std::int64_t i = 1; i < c.subsampling_layers; ++i) {
      convolve(channels, strided);
      convolve(channels, {});
      activate_next();
    }
    std::int64_t out_length = c.num_mel_bins;
    for (std::int64_t i = 0; i < c.subsampling_layers; ++i) out_length /= c.subsampling_conv_stride;
    linear = Linear(builder.child("linear", "Linear"), channels * out_length, c.hidden_size, true);
  }

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor input_features = call.argument(argument);
    check_audio_input(context, input_features, convolutions[0].weight);
    const std::int64_t batch = input_features.size(0);
    Tensor channel_mask, current_lengths, hidden_states = unsqueeze(input_features, 1);
    current_lengths = lengths_of(attention_mask);
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      const AnyConv2d& layer = convolutions[i];
      hidden_states = layer(hidden_states);
      const bool is_strided = layer.options.stride[0] != 1;
      if (is_strided) {
        Tensor output_lengths;
        for (const Op op : {Op::add, Op::add, Op::sub, Op::floor_divide, Op::add})
          output_lengths = integers(context, op, {batch});
        current_lengths = std::move(output_lengths);
      }
      channel_mask = are_valid(context, batch, hidden_states.size(2));
      hidden_states = mul_in_place(hidden_states, unsqueeze(unsqueeze(channel_mask, 1), -1));
      if (i == 0 || !is_strided) hidden_states = relu(hidden_states);
    }
    const std::int64_t states = hidden_states.size(2);
    hidden_states =
        reshape(transpose(hidden_states, 1, 2), {batch, states, hidden_states.size(1) * hidden_states.size(3)});
    return call.result(linear(hidden_states));
  }

  std::vector<AnyConv2d> convolutions;
  Linear linear;
  ModuleId module = 0;
};

/// ParakeetEncoderRelPositionalEncoding.
struct RelPositionalEncoding {
  RelPositionalEncoding() = default;
  RelPositionalEncoding(const Builder& builder, const ParakeetConfig& c) : module(builder.module) {
    Context& context = *builder.context;
    const Shape sizes{(c.hidden_size + 1) / 2};
    const auto floats = [&](Op op) { return empty(context, op, sizes, DType::float32); };
    Tensor exponents = floats(Op::arange);
    exponents = floats(Op::div);
    Tensor powers = floats(Op::pow);
    { const Tensor base = empty(context, Op::empty, {}, DType::float64); }
    exponents.reset();
    {
      const Tensor inverse = floats(Op::reciprocal);
      inv_freq = builder.buffer(sizes, DType::float32);
    }
  }

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const NoGrad no_grad(context);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t batch = hidden_states.size(0), positions = 2 * hidden_states.size(1) - 1,
                       half = inv_freq.size(0);
    const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
    const Tensor position_ids = integers(context, Op::arange, {positions});
    Tensor freqs;
    {
      const Tensor as_float = floats(Op::to_copy, {positions, 1});
      freqs = floats(Op::mul, {positions, half});
    }
    const Tensor sin = floats(Op::sin, {batch, positions, half}), cos = floats(Op::cos, {batch, positions, half});
    const Tensor pos_embed = floats(Op::stack, {batch, positions, 2 * half});
    return call.result(to(pos_embed, hidden_states.dtype()));
  }

  Tensor inv_freq;
  ModuleId module = 0;
};

struct FeedForward {
  FeedForward(const Builder& builder, const ParakeetConfig& c)
      : linear1(builder.child("linear1", "Linear"), c.hidden_size, c.intermediate_size, c.attention_bias),
        linear2(builder.child("linear2", "Linear"), c.intermediate_size, c.hidden_size, c.attention_bias),
        activation(c.hidden_act),
        activation_dropout(c.activation_dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states;
    {
      const Tensor widened = linear1(call.argument(argument));
      hidden_states = activate(activation, widened);
    }
    hidden_states = dropout(hidden_states, activation_dropout);
    return call.result(linear2(hidden_states));
  }

  Linear linear1, linear2;
  Activation activation;
  double activation_dropout;
  ModuleId module;
};

struct ConvolutionModule {
  ConvolutionModule(const Builder& builder, const ParakeetConfig& c)
      : pointwise_conv1(builder.child("pointwise_conv1", "Conv1d"), c.hidden_size, 2 * c.hidden_size,
                        {.bias = c.convolution_bias}),
        depthwise_conv(builder.child("depthwise_conv", "Conv1d"), c.hidden_size, c.hidden_size,
                       {.kernel = c.conv_kernel_size,
                        .padding = (c.conv_kernel_size - 1) / 2,
                        .groups = c.hidden_size,
                        .bias = c.convolution_bias}),
        norm(builder.child("norm", "BatchNorm1d"), c.hidden_size),
        pointwise_conv2(builder.child("pointwise_conv2", "Conv1d"), c.hidden_size, c.hidden_size,
                        {.bias = c.convolution_bias}),
        activation(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    Tensor all_masked_rows, hidden_states = transpose(call.argument(argument), 1, 2);
    hidden_states = pointwise_conv1(hidden_states);
    hidden_states = glu(hidden_states);
    {
      const Tensor is_masked = empty(argument.context(), Op::bitwise_not, attention_mask.sizes(), DType::boolean);
      all_masked_rows = all(Op::all, is_masked, {2}, false);
    }
    hidden_states = masked_fill(hidden_states, all_masked_rows);
    hidden_states = depthwise_conv(hidden_states);
    hidden_states = norm(hidden_states);
    hidden_states = activate(activation, hidden_states);
    hidden_states = pointwise_conv2(hidden_states);
    return call.result(transpose(hidden_states, 1, 2));
  }

  Conv1d pointwise_conv1, depthwise_conv;
  BatchNorm1d norm;
  Conv1d pointwise_conv2;
  Activation activation;
  ModuleId module;
};

struct ParakeetAttention {
  ParakeetAttention(const Builder& builder, const ParakeetConfig& c, const ModelOptions& options)
      : heads(c.num_attention_heads),
        head_dim(c.head_dim),
        call{.kind = options.attention, .dropout = c.attention_dropout},
        module(builder.module) {
    const std::int64_t width = heads * head_dim;
    const auto projection = [&](const char* name, bool bias) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, width, bias);
    };
    q_proj = projection("q_proj", c.attention_bias);
    k_proj = projection("k_proj", c.attention_bias);
    v_proj = projection("v_proj", c.attention_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.attention_bias);
    relative_k_proj = projection("relative_k_proj", false);
    bias_u = builder.parameter("bias_u", {heads, head_dim});
    bias_v = builder.parameter("bias_v", {heads, head_dim});
  }

  AttentionOutputs operator()(const Tensor& argument, const Tensor& position_embeddings,
                              const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall self(context, module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const AttentionInputs projected = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    const auto with_bias = [&](const Tensor& bias) {
      return add(projected.query, view(bias, {1, heads, 1, head_dim}));
    };
    const Tensor query_states_with_bias_u = with_bias(bias_u), query_states_with_bias_v = with_bias(bias_v);
    Tensor relative_key_states = relative_k_proj(position_embeddings);
    const std::int64_t positions = relative_key_states.size(1);
    relative_key_states = view(relative_key_states, {batch, positions, heads, head_dim});
    Tensor matrix_bd = matmul(query_states_with_bias_v, permute(relative_key_states, {0, 2, 3, 1}));
    matrix_bd = rel_shift(matrix_bd);
    matrix_bd = slice(matrix_bd, 3, 0, length);
    matrix_bd = mul_scalar(matrix_bd);
    {
      const Tensor is_masked = empty(context, Op::logical_not, attention_mask.sizes(), DType::boolean);
      matrix_bd = masked_fill_in_place(matrix_bd, is_masked);
    }
    AttentionInputs states{query_states_with_bias_u, projected.key, projected.value};
    AttentionOutputs attention = attend(call, 0, states, {}, matrix_bd);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  // _rel_shift
  static Tensor rel_shift(const Tensor& scores) {
    const Shape sizes = scores.sizes();
    Tensor attention_scores = pad(scores, 3, 1);
    attention_scores = view(attention_scores, {sizes[0], sizes[1], sizes[3] + 1, sizes[2]});
    return view(slice(attention_scores, 2, 1, sizes[3]), sizes);
  }

  std::int64_t heads, head_dim;
  Linear q_proj, k_proj, v_proj, o_proj, relative_k_proj;
  Tensor bias_u, bias_v;
  AttentionCall call;
  ModuleId module;
};

/// ParakeetEncoderBlock.
struct EncoderBlock {
  EncoderBlock(const Builder& builder, const ParakeetConfig& c, const ModelOptions& options)
      : feed_forward1(builder.child("feed_forward1", "ParakeetEncoderFeedForward"), c),
        self_attn(builder.child("self_attn", "ParakeetEncoderAttention"), c, options),
        conv(builder.child("conv", "ParakeetEncoderConvolutionModule"), c),
        feed_forward2(builder.child("feed_forward2", "ParakeetEncoderFeedForward"), c),
        module(builder.module) {
    const auto norm = [&](const char* name) { return LayerNorm(builder.child(name, "LayerNorm"), c.hidden_size); };
    norm_feed_forward1 = norm("norm_feed_forward1");
    norm_self_att = norm("norm_self_att");
    norm_conv = norm("norm_conv");
    norm_feed_forward2 = norm("norm_feed_forward2");
    norm_out = norm("norm_out");
  }

  Tensor operator()(const Tensor& hidden_in, const Tensor& attention_mask, const Tensor& position_embeddings) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor hidden_states;
    {
      const Tensor normed = norm_feed_forward1(hidden_in);
      hidden_states = feed_forward1(normed);
    }
    hidden_states = half_step(hidden_in, hidden_states);
    const Tensor normalized_hidden_states = norm_self_att(hidden_states);
    const AttentionOutputs attended = self_attn(normalized_hidden_states, position_embeddings, attention_mask);
    hidden_states = add(hidden_states, attended.output);
    Tensor conv_output, ff2_output;
    {
      const Tensor normed = norm_conv(hidden_states);
      conv_output = conv(normed, attention_mask);
    }
    hidden_states = add(hidden_states, conv_output);
    {
      const Tensor normed = norm_feed_forward2(hidden_states);
      ff2_output = feed_forward2(normed);
    }
    hidden_states = half_step(hidden_states, ff2_output);
    return norm_out(hidden_states);
  }

  static Tensor half_step(const Tensor& residual, const Tensor& step) {
    const Tensor half = mul_scalar(step);
    return add(residual, half);
  }

  FeedForward feed_forward1;
  ParakeetAttention self_attn;
  ConvolutionModule conv;
  FeedForward feed_forward2;
  LayerNorm norm_feed_forward1, norm_self_att, norm_conv, norm_feed_forward2, norm_out;
  ModuleId module;
};

struct ParakeetEncoder final : ParakeetStates {
  ParakeetEncoder() = default;
  ParakeetEncoder(const Builder& builder, const ParakeetConfig& c, const ModelOptions& options)
      : subsampling(builder.child("subsampling", "ParakeetEncoderSubsamplingConv2D"), c),
        encode_positions(builder.child("encode_positions", "ParakeetEncoderRelPositionalEncoding"), c),
        blocks(builder),
        hidden_dropout(c.dropout),
        dropout_positions(c.dropout_positions),
        subsampling_layers(c.subsampling_layers),
        checkpointing(options.checkpointing),
        module(builder.module) {
    layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", "ParakeetEncoderBlock", i), c, options);
      blocks.add_block(builder);
    }
  }

  Tensor operator()(const Tensor& argument, const Tensor& mask, Tensor& output_mask) const override {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_states = subsampling(call.argument(argument), mask);
    hidden_states = mul_scalar(hidden_states);
    Tensor position_embeddings = encode_positions(hidden_states);
    hidden_states = dropout(hidden_states, hidden_dropout);
    position_embeddings = dropout(position_embeddings, dropout_positions);
    const std::int64_t batch = hidden_states.size(0), states = hidden_states.size(1);
    const Tensor attends = output_attention_mask(mask, states);
    const Tensor attention_mask = empty(context, Op::bitwise_and, {batch, 1, states, states}, DType::boolean);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], attention_mask, position_embeddings](const Tensor& hidden) {
        return layer(hidden, attention_mask, position_embeddings);
      };
    };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block);
    output_mask = to(attends, DType::int32);
    return call.result(hidden_states);
  }

  // _get_output_attention_mask
  Tensor output_attention_mask(const Tensor& mask, std::int64_t states) const {
    Context& context = mask.context();
    const Shape batch{mask.size(0)};
    const auto floats = [&](Op op) { return empty(context, op, batch, DType::float32); };
    Tensor output_lengths;
    {
      Tensor lengths = lengths_of(mask);
      const Tensor input_lengths = lengths;
      for (std::int64_t i = 0; i < subsampling_layers; ++i) {
        Tensor step;
        if (i == 0) {  // what the floor gives is float32 already
          step = floats(Op::to_copy);
          step = floats(Op::add);
        } else {
          step = floats(Op::add);
        }
        step = floats(Op::div);
        lengths = floats(Op::add);
        step.reset();
        lengths = floats(Op::floor);
      }
      output_lengths = empty(context, Op::to_copy, batch, DType::int32);
    }
    return are_valid(context, batch[0], states);
  }

  Subsampling subsampling;
  RelPositionalEncoding encode_positions;
  std::vector<EncoderBlock> layers;
  BlockStack blocks;
  double hidden_dropout = 0, dropout_positions = 0;
  std::int64_t subsampling_layers = 0;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class ParakeetForCTC final : public Model {
 public:
  ParakeetForCTC(Context& context, const ParakeetConfig& c, const DataConfig& data, const ModelOptions& options)
      : context_(context),
        data_(data),
        config_(c),
        dtype_(options.dtype),
        root_{&context,       &parameters,   &buffers,         context.add_root("ParakeetForCTC", Modality::none),
              Modality::none, options.dtype, options.wrapping, options.quantizer} {
    loss_type = LossType::cross_entropy;  // ForCTCLoss, which forward has itself
    encoder_ = ParakeetEncoder(root_.child("encoder", "ParakeetEncoder"), c, options);
    ctc_head_ = Conv1d(root_.child("ctc_head", "ParakeetEncoderCTCHead"), c.hidden_size, c.vocab_size, {});
  }

  void set_data(const DataConfig& data) override { data_ = data; }

  ModelInputs make_inputs(bool with_labels) override {
    const Shape frames{data_.micro_batch_size, ParakeetConfig::frames(data_.audio_seconds)};
    ModelInputs batch;
    batch.input_features = empty(context_, Op::input, {frames[0], frames[1], config_.num_mel_bins},
                                 data_.pixel_dtype.value_or(dtype_), Role::input);
    batch.attention_mask = empty(context_, Op::input, frames, DType::boolean, Role::input);
    if (with_labels)
      batch.labels = empty(context_, Op::input, {frames[0], data_.sequence_length}, DType::int64, Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor output_mask;
    const Tensor hidden_states = encoder_(inputs.input_features, inputs.attention_mask, output_mask);
    Tensor logits = [&] {
      ModuleCall call(context_, ctc_head_.module);
      const Tensor x = transpose(call.argument(hidden_states), 1, 2);
      return call.result(transpose(convolution(x, ctc_head_.weight, ctc_head_.bias, ctc_head_.options), 1, 2));
    }();
    ModelOutputs outputs;
    if (inputs.labels) {
      const Tensor encoder_lengths = lengths_of(output_mask);
      outputs.loss = for_ctc_loss(logits, inputs.labels, config_.ctc_mean, config_.ctc_zero_infinity);
    }
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

 private:
  Context& context_;
  DataConfig data_;
  ParakeetConfig config_;
  DType dtype_;
  Builder root_;
  ParakeetEncoder encoder_;
  Conv1d ctc_head_;
};

}  // namespace

std::unique_ptr<ParakeetStates> make_parakeet_encoder(const Builder& builder, const ParakeetConfig& config,
                                                      const ModelOptions& options) {
  return std::make_unique<ParakeetEncoder>(builder, config, options);
}

std::unique_ptr<Model> build_parakeet(Context& context, const ParakeetConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<ParakeetForCTC>(context, config, data, options);
}

}  // namespace oometer
