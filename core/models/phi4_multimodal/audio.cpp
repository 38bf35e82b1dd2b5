#include "models/phi4_multimodal/audio.h"

#include <utility>
#include <vector>

#include "models/phi4_multimodal/vision.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Phi4AudioMLP::Phi4AudioMLP(const Builder& builder, const Phi4AudioConfig& c)
    : layer_norm(builder.child("layer_norm", "LayerNorm"), c.hidden_size),
      gate_up_proj(builder.child("gate_up_proj", "Linear"), c.hidden_size, 2 * c.intermediate_size, true),
      down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, true),
      act_fn(c.activation),
      dropout_rate(c.dropout_rate),
      module(builder.module) {}

Tensor Phi4AudioMLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = layer_norm(call.argument(argument));
  Tensor up_states = gate_up_proj(hidden_states), gate;
  {
    const std::int64_t half = up_states.size(-1) / 2;
    const TensorList halves = split(up_states, {half, half}, -1);
    up_states = halves[0];
    gate = halves[1];
  }
  {
    const Tensor activated = activate(act_fn, gate);
    up_states = mul(up_states, activated);
  }
  up_states = dropout(up_states, dropout_rate);
  hidden_states = down_proj(up_states);
  return call.result(dropout(hidden_states, dropout_rate));
}

Phi4AudioAttention::Phi4AudioAttention(const Builder& builder, const Phi4AudioConfig& c, const ModelOptions& options)
    : head_dim(c.hidden_size / c.num_attention_heads),
      call{.kind = options.attention, .dropout = c.dropout_rate},
      module(builder.module) {
  // The mask has its heads innermost, which the fused kernels refuse (check_last_dim_stride_equals_1_dense).
  if (call.kind == AttentionKind::sdpa) call.kind = AttentionKind::sdpa_math;
  const auto projection = [&](const char* name) {
    return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
  };
  q_proj = projection("q_proj");
  k_proj = projection("k_proj");
  v_proj = projection("v_proj");
  o_proj = projection("o_proj");
}

Tensor Phi4AudioAttention::operator()(const Tensor& argument, const Tensor& attention_mask) const {
  ModuleCall self(argument.context(), module);
  const Tensor hidden_states = self.argument(argument);
  const AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
  AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, attention_mask);
  attention.output = reshape(attention.output, hidden_states.sizes());
  return self.result(o_proj(attention.output));
}

Phi4AudioConvModule::Phi4AudioConvModule(const Builder& builder, const Phi4AudioConfig& c)
    : layer_norm(builder.child("layer_norm", "LayerNorm"), c.hidden_size),
      glu_act(c.conv_glu_type),
      act(c.conv_activation),
      kernel_size(c.kernel_size),
      dropout_rate(c.dropout_rate),
      module(builder.module) {
  const Builder gated = builder.child("glu", "Phi4MultimodalAudioGluPointWiseConv");
  glu_module = gated.module;
  glu_conv = Conv1d(gated.child("ext_pw_conv_1d", "Conv1d"), c.hidden_size, 2 * c.hidden_size, {});
  b1 = gated.parameter("b1", {1, c.hidden_size, 1});
  b2 = gated.parameter("b2", {1, c.hidden_size, 1});
  const Builder apart = builder.child("dw_sep_conv_1d", "Phi4MultimodalAudioDepthWiseSeparableConv1d");
  separable = apart.module;
  const std::int64_t wide = c.hidden_size * c.depthwise_multiplier;
  dw_conv = Conv1d(apart.child("dw_conv", "Conv1d"), c.hidden_size, wide,
                   {.kernel = c.kernel_size, .padding = c.kernel_size - 1, .groups = c.hidden_size});
  pw_conv = Conv1d(apart.child("pw_conv", "Conv1d"), wide, c.hidden_size, {});
  ext_pw_conv_1d = Conv1d(builder.child("ext_pw_conv_1d", "Conv1d"), c.hidden_size, c.hidden_size, {});
}

Tensor Phi4AudioConvModule::glu(const Tensor& argument) const {
  ModuleCall call(argument.context(), glu_module);
  Tensor hidden_states = permute(call.argument(argument), {0, 2, 1});
  hidden_states = glu_conv(hidden_states);
  const std::int64_t half = hidden_states.size(1) / 2;
  Tensor gated = add(slice(hidden_states, 1, 0, half), b1), gate;
  {
    const Tensor shifted = add(slice(hidden_states, 1, half, half), b2);
    gate = activate(glu_act, shifted);
  }
  gated = mul(gated, gate);
  return call.result(permute(gated, {0, 2, 1}));
}

Tensor Phi4AudioConvModule::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states;
  {
    const Tensor normed = layer_norm(call.argument(argument));
    hidden_states = glu(normed);
  }
  {
    ModuleCall apart(argument.context(), separable);
    Tensor convolved;
    {
      const Tensor by_channel = dw_conv(apart.argument(permute(hidden_states, {0, 2, 1})));
      convolved = pw_conv(by_channel);
    }
    hidden_states = apart.result(convolved);
  }
  if (kernel_size > 1) hidden_states = slice(hidden_states, 2, 0, hidden_states.size(2) - (kernel_size - 1));
  hidden_states = activate(act, hidden_states);
  hidden_states = ext_pw_conv_1d(hidden_states);
  return call.result(dropout(permute(hidden_states, {0, 2, 1}), dropout_rate));
}

Phi4AudioLayer::Phi4AudioLayer(const Builder& builder, const Phi4AudioConfig& c, const ModelOptions& options)
    : feed_forward_in(builder.child("feed_forward_in", "Phi4MultimodalAudioMLP"), c),
      self_attn(builder.child("self_attn", "Phi4MultimodalAudioAttention"), c, options),
      conv(builder.child("conv", "Phi4MultimodalAudioConvModule"), c),
      feed_forward_out(builder.child("feed_forward_out", "Phi4MultimodalAudioMLP"), c),
      layer_norm_att(builder.child("layer_norm_att", "LayerNorm"), c.hidden_size),
      layer_norm(builder.child("layer_norm", "LayerNorm"), c.hidden_size),
      module(builder.module) {}

namespace {

Tensor with_half(const Tensor& hidden_states, const Phi4AudioMLP& feed_forward) {
  Tensor half;
  {
    const Tensor whole = feed_forward(hidden_states);
    half = mul_scalar(whole);
  }
  return add(hidden_states, half);
}

}  // namespace

Tensor Phi4AudioLayer::operator()(const Tensor& argument, const Tensor& attention_mask) const {
  ModuleCall call(argument.context(), module);
  const Tensor residual = with_half(call.argument(argument), feed_forward_in);
  Tensor hidden_states = layer_norm_att(residual);
  {
    const Tensor attended = self_attn(hidden_states, attention_mask);
    hidden_states = add(residual, attended);
  }
  {
    const Tensor convolved = conv(hidden_states);
    hidden_states = add(hidden_states, convolved);
  }
  hidden_states = with_half(hidden_states, feed_forward_out);
  return call.result(layer_norm(hidden_states));
}

Phi4AudioModel::Phi4AudioModel(const Builder& builder, const Phi4AudioConfig& c, const ModelOptions& options)
    : config(c), module(builder.module) {
  const Builder normalizing = builder.child("encoder_embedding", "Phi4MultimodalAudioMeanVarianceNormLayer");
  encoder_embedding = normalizing.module;
  global_mean = normalizing.buffer({c.input_size}, normalizing.dtype);
  global_invstd = normalizing.buffer({c.input_size}, normalizing.dtype);
  const Builder embedding = builder.child("embed", "Phi4MultimodalAudioNemoConvSubsampling");
  embed_module = embedding.module;
  const std::int64_t channels = c.nemo_conv_channels;
  std::int32_t next = 0;
  const auto convolve = [&](std::int64_t in_channels, const AnyConv2d::Options& options_of) {
    convolutions.emplace_back(embedding.child("conv", "Conv2d", next++), in_channels, channels, options_of);
  };
  AnyConv2d::Options strided{.kernel = 3, .stride = 2, .padding = 1};
  convolve(1, strided);
  ++next;  // an activation
  strided.groups = channels;
  for (std::int64_t i = 1; i < c.convolutions; ++i) {
    convolve(channels, strided);
    convolve(channels, {});
    ++next;
  }
  out = Linear(embedding.child("out", "Linear"), channels * c.nemo_final_size, c.hidden_size, true);
  const Builder bias = builder.child("relative_attention_bias_layer", "Phi4MultimodalAudioRelativeAttentionBias");
  bias_module = bias.module;
  bias_values = Embedding(bias.child("bias_values", "Embedding"), c.num_buckets, c.num_attention_heads);
  encoders.reserve(static_cast<std::size_t>(c.num_blocks));
  for (std::int32_t i = 0; i < c.num_blocks; ++i)
    encoders.emplace_back(builder.child("encoders", "Phi4MultimodalAudioConformerEncoderLayer", i), c, options);
}

// Phi4MultimodalAudioNemoConvSubsampling.forward
Tensor Phi4AudioModel::embed(const Tensor& argument, const Tensor& mask, Tensor& pad_mask) const {
  Context& context = argument.context();
  ModuleCall call(context, embed_module);
  Tensor hidden_states = unsqueeze(call.argument(argument), 1);
  for (std::size_t i = 0; i < convolutions.size(); ++i) {
    hidden_states = convolutions[i](hidden_states);
    if (i % 2 == 0) hidden_states = activate(config.nemo_activation, hidden_states);
  }
  const std::int64_t batch = hidden_states.size(0), states = hidden_states.size(2);
  {
    const Tensor flat =
        reshape(transpose(hidden_states, 1, 2), {batch, states, hidden_states.size(1) * hidden_states.size(3)});
    hidden_states = out(flat);
  }
  if (mask) {
    const Tensor feature_lens = sum(mask, {1}, false);
    Tensor padding_length;
    {
      const Tensor quotient = empty(context, Op::div, {batch}, DType::float32);
      padding_length = empty(context, Op::floor, {batch}, DType::float32);
    }
    const Tensor positions = integers(context, Op::arange, {states});
    pad_mask = unsqueeze(empty(context, Op::lt, {batch, states}, DType::boolean), 1);
  }
  return call.result(hidden_states);
}

// Phi4MultimodalAudioRelativeAttentionBias.forward
Tensor Phi4AudioModel::relative_attention_bias(const Tensor& argument) const {
  Context& context = argument.context();
  ModuleCall call(context, bias_module);
  const std::int64_t max_pos = call.argument(argument).size(1);
  const Shape pairs{max_pos, max_pos};
  const Tensor context_position = integers(context, Op::arange, {max_pos}),
               memory_position = integers(context, Op::arange, {max_pos});
  Tensor relative_position = integers(context, Op::sub, pairs);
  for (const Op comparison : {Op::lt, Op::gt}) {
    const Tensor is_far = empty(context, comparison, pairs, DType::boolean);
    relative_position = integers(context, Op::masked_fill, pairs);
  }
  Tensor bias_idx = relative_position;
  bias_idx = integers(context, config.bias_symmetric ? Op::abs : Op::add, pairs);
  const Tensor att_bias = bias_values(bias_idx);
  return call.result(unsqueeze(permute(att_bias, {2, 0, 1}), 0));
}

Tensor Phi4AudioModel::operator()(const Tensor& argument, const Tensor& mask) const {
  Context& context = argument.context();
  ModuleCall call(context, module);
  Tensor hidden_states;
  {
    ModuleCall normalize(context, encoder_embedding);
    const Tensor centred = sub(normalize.argument(call.argument(argument)), global_mean);
    hidden_states = normalize.result(mul(centred, global_invstd));
  }
  const std::int64_t batch = hidden_states.size(0);
  Tensor hs_mask, pad_mask;
  {  // forward_embeddings
    const std::int64_t factor = config.time_reduction(), states = (hidden_states.size(1) + factor - 1) / factor;
    // A mask of chunks, which is made on the host.
    const Tensor enc_streaming_mask = empty(context, Op::to_copy, {batch, states, states}, DType::boolean);
    hidden_states = embed(hidden_states, mask, pad_mask);
    hs_mask = pad_mask ? empty(context, Op::bitwise_and, {batch, states, states}, DType::boolean) : enc_streaming_mask;
  }
  const Tensor bias = relative_attention_bias(hidden_states);
  const Tensor attention_mask = add(unsqueeze(hs_mask, 1), bias);
  for (const Phi4AudioLayer& layer : encoders) hidden_states = layer(hidden_states, attention_mask);
  return call.result(hidden_states);
}

Phi4AudioEmbedding::Phi4AudioEmbedding(const Builder& builder, const Phi4Config& c, const ModelOptions& options)
    : encoder(builder.child("encoder", "Phi4MultimodalAudioModel"), c.audio, options),
      drop(c.text.embedding_dropout),
      module(builder.module) {
  const auto projection = [&](const char* name, std::int64_t in_features) {
    return Linear(builder.child(name, "Linear"), in_features, c.text.hidden_size, true);
  };
  up_proj_for_speech = projection("up_proj_for_speech", c.audio.hidden_size);
  down_proj_for_speech = projection("down_proj_for_speech", c.text.hidden_size);
  up_proj_for_vision_speech = projection("up_proj_for_vision_speech", c.audio.hidden_size);
  down_proj_for_vision_speech = projection("down_proj_for_vision_speech", c.text.hidden_size);
}

Tensor Phi4AudioEmbedding::operator()(const Tensor& input_ids, const Tensor& inputs_embeds, const Phi4Audio& audio,
                                      bool beside_images) const {
  Context& context = input_ids.context();
  ModuleCall call(context, module);
  const Tensor& given = audio.audio_input_features;
  const std::int64_t factor = encoder.config.time_reduction(), states = (given.size(1) + factor - 1) / factor;
  const Tensor positions_tuple = positions_of_tokens(input_ids, checked_product(given.size(0), states));
  const Linear &up_proj = beside_images ? up_proj_for_vision_speech : up_proj_for_speech,
               &down_proj = beside_images ? down_proj_for_vision_speech : down_proj_for_speech;
  const Tensor audio_input_features = to(call.keyword(given), up_proj.bias.dtype());
  Tensor audio_encoder_hidden_states = encoder(audio_input_features, audio.audio_attention_mask);
  audio_encoder_hidden_states = up_proj(audio_encoder_hidden_states);
  audio_encoder_hidden_states = gelu(audio_encoder_hidden_states);
  Tensor audio_embeds = down_proj(audio_encoder_hidden_states);
  Tensor merged_audio_embeds;
  {
    std::vector<Tensor> of_each;
    for (std::int64_t i = 0; i < given.size(0); ++i) of_each.push_back(slice(select(audio_embeds, 0, i), 0, 0, states));
    merged_audio_embeds = cat(of_each, 0);
  }
  merged_audio_embeds = to(merged_audio_embeds, inputs_embeds.dtype());
  audio_embeds = put_at_tokens(inputs_embeds, positions_tuple, merged_audio_embeds);
  audio_embeds = dropout(audio_embeds, drop);
  return call.result(audio_embeds);
}

}  // namespace oometer
