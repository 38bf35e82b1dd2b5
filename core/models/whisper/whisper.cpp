#include "models/whisper/whisper.h"

#include <utility>

#include "models/bert/bert.h"
#include "models/kit/audio_input.h"
#include "models/kit/shift_tokens.h"
#include "models/kit/text_attention.h"
#include "models/masking.h"
#include "models/whisper/ladder.h"
#include "models/whisper/reversible.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// gradient_checkpointing_enable calls enable_input_require_grads only where the main input is text, and it is not
/// here; who trains adapters calls it.
void require_grad_for_adapters(const CheckpointingConfig& checkpointing, Tensor& embeddings, ModuleId module) {
  if (checkpointing.input_require_grads) require_input_grad(checkpointing, embeddings, module);
}

/// The loop over the layers, each followed by the side network's.
void run_beside(const SideNetwork& side, const std::vector<WhisperLayer>& layers, Tensor& hidden_states,
                const Tensor& mask, const Tensor& encoder_states, const Tensor& encoder_side_states, Tensor& states) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i == 0) side.begin(hidden_states, states);
    Tensor output = layers[i](hidden_states, mask, encoder_states);
    side.step(i, output, mask, encoder_side_states, states);
    hidden_states = std::move(output);
  }
}

}  // namespace

WhisperAttention::WhisperAttention(const Builder& builder, const WhisperConfig& c, std::int64_t heads,
                                   const ModelOptions& options, bool is_causal)
    : call{.kind = options.attention, .causal = is_causal, .dropout = c.attention_dropout},
      head_dim(c.hidden_size / heads),
      module(builder.module) {
  const auto projection = [&](const char* name, bool bias) {
    return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, bias);
  };
  k_proj = projection("k_proj", false);
  v_proj = projection("v_proj", true);
  q_proj = projection("q_proj", true);
  out_proj = projection("out_proj", true);
}

AttentionOutputs WhisperAttention::operator()(const Tensor& argument, const Tensor& key_value_states,
                                              const Tensor& mask) const {
  ModuleCall self(argument.context(), module);
  const Tensor hidden_states = self.argument(argument);
  AttentionInputs states;
  {
    Tensor query = q_proj(hidden_states);
    query = mul_scalar(query);
    states.query = contiguous(heads_of(query, head_dim));
  }
  const Tensor& current_states = key_value_states ? key_value_states : hidden_states;
  const auto heads = [&](const Linear& projection) {
    const Tensor projected = projection(current_states);
    return contiguous(heads_of(projected, head_dim));
  };
  states.key = heads(k_proj);
  states.value = heads(v_proj);
  AttentionOutputs attention = attend(call, 0, states, {}, mask, eager_in_own_type);
  attention.output = self.result(out_proj(attention.output));
  return attention;
}

WhisperAdapter::WhisperAdapter(const Builder& builder, const WhisperConfig& c)
    : dense1(builder.child("dense1", "Linear"), c.hidden_size, c.adapter_bottleneck_dim, true),
      dense2(builder.child("dense2", "Linear"), c.adapter_bottleneck_dim, c.hidden_size, true),
      hidden_dropout(c.dropout),
      activation_fn(c.hidden_act),
      module(builder.module) {}

Tensor WhisperAdapter::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = dense1(call.argument(argument));
  hidden_states = activate(activation_fn, hidden_states);
  hidden_states = dropout(hidden_states, hidden_dropout);
  return call.result(dense2(hidden_states));
}

WhisperLayer::WhisperLayer(const Builder& builder, const WhisperConfig& c, const char* attention,
                           const ModelOptions& options, bool is_decoder)
    : self_attn(builder.child("self_attn", attention), c,
                is_decoder ? c.decoder_attention_heads : c.num_attention_heads, options, is_decoder),
      hidden_dropout(c.dropout),
      activation_dropout(c.activation_dropout),
      activation_fn(c.hidden_act),
      clamps_float16(!is_decoder),
      module(builder.module) {
  const auto norm = [&](const char* name) { return LayerNorm(builder.child(name, "LayerNorm"), c.hidden_size); };
  const std::int64_t width = is_decoder ? c.decoder_ffn_dim : c.intermediate_size;
  self_attn_layer_norm = norm("self_attn_layer_norm");
  if (is_decoder) {
    encoder_attn.emplace(builder.child("encoder_attn", attention), c, c.decoder_attention_heads, options, false);
    encoder_attn_layer_norm = norm("encoder_attn_layer_norm");
  }
  fc1 = Linear(builder.child("fc1", "Linear"), c.hidden_size, width, true);
  fc2 = Linear(builder.child("fc2", "Linear"), width, c.hidden_size, true);
  final_layer_norm = norm("final_layer_norm");
  if (c.f_arch != WhisperConfig::Reversible::none) {
    ffn_adapter.emplace(builder.child("ffn_adapter", "Adapter"), c);
    rev_adapter.emplace(builder.child("rev_adapter", "Adapter"), c);
  }
}

Tensor WhisperLayer::operator()(const Tensor& hidden_in, const Tensor& mask,
                                const Tensor& encoder_hidden_states) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in, hidden_states = hidden_in, weights;  // `_`
  const auto attend_with = [&](const WhisperAttention& attention, const LayerNorm& norm, const Tensor& keys,
                               const Tensor& its_mask) {
    residual = hidden_states;
    hidden_states = norm(hidden_states);
    AttentionOutputs outputs = attention(hidden_states, keys, its_mask);
    hidden_states = std::move(outputs.output);
    weights = std::move(outputs.weights);
    hidden_states = dropout(hidden_states, hidden_dropout);
    hidden_states = add(residual, hidden_states);
  };
  attend_with(self_attn, self_attn_layer_norm, {}, mask);
  if (encoder_attn) attend_with(*encoder_attn, encoder_attn_layer_norm, encoder_hidden_states, {});
  residual = hidden_states;
  hidden_states = final_layer_norm(hidden_states);
  const Tensor adapter_change = ffn_adapter ? (*ffn_adapter)(hidden_states) : Tensor();
  {
    const Tensor widened = fc1(hidden_states);
    hidden_states = activate(activation_fn, widened);
  }
  hidden_states = dropout(hidden_states, activation_dropout);
  hidden_states = fc2(hidden_states);
  hidden_states = dropout(hidden_states, hidden_dropout);
  if (adapter_change) hidden_states = add(hidden_states, adapter_change);
  hidden_states = add(residual, hidden_states);
  if (clamps_float16 && hidden_states.dtype() == DType::float16) hidden_states = clamp(hidden_states, true);
  return hidden_states;
}

SpectrogramConv::SpectrogramConv(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels,
                                 std::int64_t its_stride)
    : stride(its_stride), module(builder.module) {
  weight = builder.parameter("weight", {out_channels, in_channels, 3});
  bias = builder.parameter("bias", {out_channels});
}

Tensor SpectrogramConv::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(convolution(call.argument(x), weight, bias,
                                 {.stride = {stride}, .padding = {1}, .dilation = {1}, .output_padding = {0}}));
}

WhisperEncoder::WhisperEncoder(const Builder& builder, const WhisperConfig& c, const WhisperClassNames& names,
                               const ModelOptions& options)
    : conv1(builder.child("conv1", "Conv1d"), c.num_mel_bins, c.hidden_size, 1),
      conv2(builder.child("conv2", "Conv1d"), c.hidden_size, c.hidden_size, 2),
      hidden_dropout(c.dropout),
      positions(names.positions),
      pool(names.pool),
      checkpointing(options.checkpointing),
      reversible(c.f_arch),
      module(builder.module) {
  Builder table = builder.child("embed_positions", "Embedding");
  if (positions == WhisperClassNames::Positions::added_in_float32) table.dtype = DType::float32;
  embed_positions = Embedding(table, c.max_source_positions, c.hidden_size);
  embed_positions.weight->leaf_requires_grad = false;  // sinusoids
  blocks = BlockStack(builder);
  layers.reserve(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.emplace_back(builder.child("layers", names.layer, i), c, names.attention, options, false);
    blocks.add_block(builder);
  }
  layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), c.hidden_size);
  if (c.ladder.task_reduction_factor)
    side = std::make_shared<SideNetwork>(builder.child("side", "Side"), c, options, false);
}

Tensor WhisperEncoder::operator()(const Tensor& input_features, const Tensor& attention_mask) const {
  return (*this)(input_features, [&attention_mask](const Tensor&) { return attention_mask; });
}

Tensor WhisperEncoder::operator()(const Tensor& argument, const MakeMask& make_mask, Tensor* side_states) const {
  using Positions = WhisperClassNames::Positions;
  Context& context = argument.context();
  ModuleCall call(context, module);
  const Scoped<KvCache*> has_no_cache(context.past_key_values, nullptr);
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor attention_mask, hidden_states, all_positions, inputs_embeds;
  {
    const Tensor given = call.argument(argument);
    const Tensor input_features = positions == Positions::looked_up ? given : to(given, conv1.weight.dtype());
    check_audio_input(context, input_features, conv1.weight);
    Tensor convolved = conv1(input_features);
    require_grad_for_adapters(checkpointing, convolved, conv1.module);
    inputs_embeds = activate(Activation::gelu, convolved);
  }
  {
    const Tensor convolved = conv2(inputs_embeds);
    inputs_embeds = activate(Activation::gelu, convolved);
  }
  inputs_embeds = transpose(inputs_embeds, 1, 2);
  if (positions == Positions::looked_up) {
    all_positions = empty(context, Op::arange, {embed_positions.weight.size(0)}, DType::int64);
    const Tensor looked_up = embed_positions(all_positions);
    hidden_states = add(inputs_embeds, looked_up);
  } else {
    if (context.modules) context.modules->read(embed_positions.weight);
    hidden_states = add(inputs_embeds, embed_positions.weight);
    if (positions == Positions::added_in_float32) hidden_states = to(hidden_states, inputs_embeds.dtype());
  }
  hidden_states = dropout(hidden_states, hidden_dropout);
  attention_mask = make_mask(hidden_states);
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    return [&layer = layers[i], attention_mask](const Tensor& hidden) { return layer(hidden, attention_mask, {}); };
  };
  if (reversible != WhisperConfig::Reversible::none)
    hidden_states = run_reversible(layers, reversible, std::move(hidden_states), attention_mask, {});
  else if (side)
    run_beside(*side, layers, hidden_states, attention_mask, {}, {}, *side_states);
  else
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.positional = true});
  if (pool != 1) {  // nn.AvgPool1d(pool, stride=pool), an avg_pool2d of one row
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1) / pool,
                       width = hidden_states.size(2);
    hidden_states = transpose(hidden_states, 1, 2);
    hidden_states = avg_pool(unsqueeze(hidden_states, 2), {batch, width, 1, length});
    hidden_states = view(hidden_states, {batch, width, length});
    hidden_states = transpose(hidden_states, 1, 2);
  }
  hidden_states = layer_norm(hidden_states);
  return call.result(hidden_states);
}

namespace {

struct WhisperDecoder {
  WhisperDecoder() = default;
  WhisperDecoder(const Builder& builder, const WhisperConfig& c, const ModelOptions& options)
      : embed_tokens(builder.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size),
        blocks(builder),
        hidden_dropout(c.dropout),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        reversible(c.f_arch),
        module(builder.module) {
    const Builder positions = builder.child("embed_positions", "WhisperPositionalEmbedding");
    positions_module = positions.module;
    embed_positions = positions.parameter("weight", {c.max_position_embeddings, c.hidden_size});
    layers.reserve(static_cast<std::size_t>(c.decoder_layers));
    for (std::int32_t i = 0; i < c.decoder_layers; ++i) {
      layers.emplace_back(builder.child("layers", "WhisperDecoderLayer", i), c, "WhisperAttention", options, true);
      blocks.add_block(builder);
    }
    layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), c.hidden_size);
    if (c.ladder.task_reduction_factor)
      side = std::make_shared<SideNetwork>(builder.child("side", "Side"), c, options, true);
  }

  /// `side_states`: the encoder's in, the decoder's out.
  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_hidden_states, Tensor* side_states) const {
    Context& context = input_ids.context();
    ModuleCall call(context, module);
    const std::int64_t batch = input_ids.size(0), length = input_ids.size(1);
    const Tensor inputs_embeds = embed_tokens(input_ids, [&](Tensor& embeddings) {
      require_grad_for_adapters(checkpointing, embeddings, embed_tokens.module);
    });
    Tensor position_ids;
    {
      Tensor one = empty(context, Op::arange, {length}, DType::int64);
      one = empty(context, Op::add, {length}, DType::int64);
      position_ids = empty(context, Op::repeat, {batch, length}, DType::int64);
    }
    Tensor positions;
    {
      ModuleCall embedding(context, positions_module);
      positions = view(index(embed_positions, position_ids), {batch, length, embed_positions.size(1)});
      positions = embedding.result(positions);
    }
    Tensor hidden_states = add(inputs_embeds, positions);
    hidden_states = dropout(hidden_states, hidden_dropout);
    const Tensor causal_mask = create_causal_mask(inputs_embeds, {position_ids, {}}, masked);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], causal_mask, encoder_hidden_states](const Tensor& hidden) {
        return layer(hidden, causal_mask, encoder_hidden_states);
      };
    };
    if (reversible != WhisperConfig::Reversible::none)
      hidden_states = run_reversible(layers, reversible, std::move(hidden_states), causal_mask, encoder_hidden_states);
    else if (side) {
      const Tensor encoder_side_states = std::move(*side_states);
      run_beside(*side, layers, hidden_states, causal_mask, encoder_hidden_states, encoder_side_states, *side_states);
    } else
      hidden_states =
          blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.positional = true});
    hidden_states = layer_norm(hidden_states);
    return call.result(hidden_states);
  }

  Embedding embed_tokens;
  Tensor embed_positions;
  std::vector<WhisperLayer> layers;
  BlockStack blocks;
  LayerNorm layer_norm;
  std::shared_ptr<const SideNetwork> side;
  double hidden_dropout = 0;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  WhisperConfig::Reversible reversible = WhisperConfig::Reversible::none;
  ModuleId module = 0, positions_module = 0;
};

class WhisperForConditionalGeneration : public EncoderModel {
 public:
  WhisperForConditionalGeneration(Context& context, const WhisperConfig& c, const DataConfig& data,
                                  const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        features_{c.num_mel_bins, c.frames()},
        dtype_(options.dtype),
        is_reentrant_(options.checkpointing.mode == CheckpointMode::reentrant) {
    ModelOptions its = options;
    if (is_reentrant_) its.checkpointing.mode = CheckpointMode::none;  // it is refused
    const Builder model = root_.child("model", "WhisperModel");
    model_ = model.module;
    encoder_ = WhisperEncoder(model.child("encoder", "WhisperEncoder"), c, kWhisperEncoder, its);
    decoder_ = WhisperDecoder(model.child("decoder", "WhisperDecoder"), c, its);
    decoder_.blocks.first_block = encoder_.layers.size();
    proj_out_ = Linear(root_.child("proj_out", "Linear"), c.hidden_size, c.vocab_size, false);
    if (c.tie_word_embeddings) tie_weight(proj_out_.weight, proj_out_.module, decoder_.embed_tokens.weight);
    if (!c.ladder.task_reduction_factor) return;
    side_final_upsample_ =
        Linear(root_.child("side_final_upsample", "Linear"), c.side_size(), c.hidden_size, c.ladder.has_bias);
    if (c.ladder.merges_last) gate_ = LadderGate(root_, "side_gate_params_merge_last");
  }

  ModelInputs make_inputs(bool with_labels) override {
    const Shape tokens{data_.micro_batch_size, data_.sequence_length};
    ModelInputs batch;
    batch.input_features = empty(context_, Op::input, {data_.micro_batch_size, features_[0], features_[1]},
                                 data_.pixel_dtype.value_or(dtype_), Role::input);
    Tensor& targets = with_labels ? batch.labels : batch.input_ids;
    targets = empty(context_, Op::input, tokens, DType::int64, Role::input);
    batch.rows = &data_.rows;
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (is_reentrant_)
      context_.refusal =
          Error{"not-modelled", "/training/activation_checkpointing",
                "found \"reentrant\", which is not supported yet with decoders that see an encoder's states; expected "
                "\"non-reentrant\""};
    const Tensor decoder_input_ids = inputs.labels ? shift_tokens_right(inputs.labels) : inputs.input_ids;
    if (decoder_.side) return forward_beside(inputs, decoder_input_ids);
    Tensor encoder_states, decoder_states;
    {
      ModuleCall call(context_, model_);
      encoder_states = encoder_(inputs.input_features);
      decoder_states = call.result(decoder_(decoder_input_ids, encoder_states, nullptr));
    }
    ModelOutputs outputs = outputs_of(proj_out_(decoder_states), inputs);
    outputs.others.push_back(std::move(encoder_states));
    return outputs;
  }

 private:
  ModelOutputs forward_beside(const ModelInputs& inputs, const Tensor& decoder_input_ids) {
    Tensor states, sequence_output;
    const Tensor encoder_states = encoder_(
        inputs.input_features, [](const Tensor&) { return Tensor(); }, &states);
    states = encoder_.side->final_layer_norm(states);
    const Tensor decoder_states = decoder_(decoder_input_ids, encoder_states, &states);
    sequence_output = decoder_.side->final_layer_norm(states);
    states.reset();
    sequence_output = side_final_upsample_(sequence_output);
    if (gate_.parameter) sequence_output = gate_(sequence_output, [&] { return decoder_states; });
    ModelOutputs outputs = outputs_of(proj_out_(sequence_output), inputs);
    outputs.others.push_back(encoder_states);
    return outputs;
  }

  Shape features_;
  DType dtype_;
  bool is_reentrant_;
  ModuleId model_ = 0;
  WhisperEncoder encoder_;
  WhisperDecoder decoder_;
  Linear proj_out_, side_final_upsample_;
  LadderGate gate_;  ///< side_gate_params_merge_last
};

class WhisperForAudioClassification : public EncoderModel {
 public:
  WhisperForAudioClassification(Context& context, const WhisperConfig& c, const DataConfig& data,
                                const ModelOptions& options)
      : EncoderModel(context, c, data, options),
        features_{c.num_mel_bins, c.frames()},
        dtype_(options.dtype),
        encoder_(root_.child("encoder", "WhisperEncoder"), c, kWhisperEncoder, options),
        projector_(root_.child("projector", "Linear"), c.hidden_size, c.classifier_proj_size, true),
        classifier_(root_.child("classifier", "Linear"), c.classifier_proj_size, c.num_labels, true) {}

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch;
    batch.input_features = empty(context_, Op::input, {data_.micro_batch_size, features_[0], features_[1]},
                                 data_.pixel_dtype.value_or(dtype_), Role::input);
    if (with_labels) batch.labels = empty(context_, Op::input, {data_.micro_batch_size}, DType::int64, Role::input);
    batch.rows = &data_.rows;
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor encoder_states = encoder_(inputs.input_features);
    const Tensor hidden_states = projector_(encoder_states);
    const Tensor pooled_output = mean(hidden_states, 1, false);
    return outputs_of(classifier_(pooled_output), inputs);
  }

 private:
  Shape features_;
  DType dtype_;
  WhisperEncoder encoder_;
  Linear projector_, classifier_;
};

}  // namespace

std::unique_ptr<Model> build_whisper(Context& context, const WhisperConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  if (config.head == EncoderHead::sequence_classification)
    return std::make_unique<WhisperForAudioClassification>(context, config, data, options);
  return std::make_unique<WhisperForConditionalGeneration>(context, config, data, options);
}

}  // namespace oometer
