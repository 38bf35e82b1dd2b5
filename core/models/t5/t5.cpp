#include "models/t5/t5.h"

#include <optional>
#include <utility>
#include <vector>

#include "models/cross_mask.h"
#include "models/kit/norms.h"
#include "models/kit/position_bias.h"
#include "models/kit/text_attention.h"
#include "models/masking.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

/// What Parts of T5LanguageModel is made of.
namespace t5 {

Tensor t5_layer_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  Tensor hidden_states = call.argument(argument), variance;
  {
    const Tensor as_float = to(hidden_states, DType::float32);
    variance = pow(as_float, 2);
  }
  variance = mean(variance, -1, true);
  {
    Tensor scale = add_scalar(variance);
    scale = rsqrt(scale);
    hidden_states = mul(hidden_states, scale);
  }
  if (norm.weight.dtype() != DType::float32) hidden_states = to(hidden_states, norm.weight.dtype());
  return call.result(mul(norm.weight, hidden_states));
}

Norm make_norm(const Builder& parent, const char* name, const T5Config& c) {
  return Norm(parent.child(name, c.names->norm), t5_layer_norm, {c.hidden_size});
}

/// T5DenseActDense, T5DenseGatedActDense.
struct T5Dense {
  T5Dense(const Builder& builder, const T5Config& c)
      : dropout_rate(c.dropout_rate), act(c.hidden_act), is_gated(c.is_gated_act), module(builder.module) {
    const auto widening = [&](const char* name) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, c.intermediate_size, false);
    };
    wi = widening(is_gated ? "wi_0" : "wi");
    if (is_gated) wi_1 = widening("wi_1");
    wo = Linear(builder.child("wo", "Linear"), c.intermediate_size, c.hidden_size, false);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument), hidden_gelu, hidden_linear;
    if (is_gated) {
      hidden_gelu = wi(hidden_states);
      hidden_gelu = activate(act, hidden_gelu);
      hidden_linear = wi_1(hidden_states);
      hidden_states = mul(hidden_gelu, hidden_linear);
    } else {
      hidden_states = wi(hidden_states);
      hidden_states = activate(act, hidden_states);
    }
    hidden_states = dropout(hidden_states, dropout_rate);
    hidden_states = to(hidden_states, wo.weight.dtype());
    return call.result(wo(hidden_states));
  }

  Linear wi, wi_1, wo;
  double dropout_rate;
  Activation act;
  bool is_gated;
  ModuleId module;
};

struct T5LayerFF {
  T5LayerFF(const Builder& builder, const T5Config& c)
      : dense(builder.child("DenseReluDense", c.is_gated_act ? c.names->gated_dense : c.names->dense), c),
        layer_norm(make_norm(builder, "layer_norm", c)),
        dropout_rate(c.dropout_rate),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    Tensor forwarded_states = layer_norm(hidden_states);
    forwarded_states = dense(forwarded_states);
    const Tensor dropped = dropout(forwarded_states, dropout_rate);
    return call.result(add(hidden_states, dropped));
  }

  T5Dense dense;
  Norm layer_norm;
  double dropout_rate;
  ModuleId module;
};

/// T5Attention._relative_position_bucket of relative positions, integers [q, k].
Tensor relative_position_bucket(const Tensor& relative_position_in, bool bidirectional, T5Variant variant) {
  Context& context = relative_position_in.context();
  const Shape& pairs = relative_position_in.sizes();
  const auto made = [&](Op op, DType dtype = DType::int64) { return empty(context, op, pairs, dtype); };
  Tensor relative_buckets, relative_position, is_small, log_ratio, if_large;
  if (bidirectional) {
    Tensor is_behind = made(Op::gt, DType::boolean);
    Tensor side = made(Op::to_copy);
    is_behind.reset();
    side = made(Op::mul);
    relative_buckets = made(Op::add);
    side.reset();
    relative_position = made(Op::abs);
  } else {
    Tensor zeros = made(Op::zeros_like);
    Tensor smaller = made(Op::minimum);
    zeros.reset();
    relative_position = made(Op::neg);
  }
  is_small = made(Op::lt, DType::boolean);
  if_large = made(Op::to_copy, DType::float32);
  for (const Op op : {Op::div, Op::log, Op::div, Op::mul}) if_large = made(op, DType::float32);
  if (variant == T5Variant::umt5) log_ratio = if_large;  // a name of its own
  for (const Op op : {Op::to_copy, Op::add}) if_large = made(op);
  {
    const Tensor largest = made(Op::full_like);
    if_large = made(Op::minimum);
  }
  const Tensor buckets = made(Op::where);
  if (!bidirectional) relative_buckets = made(Op::add);
  return relative_buckets;
}

struct T5Attention {
  T5Attention(const Builder& builder, const T5Config& c, const ModelOptions& options, bool decodes, bool is_causal,
              bool has_bias)
      : call{.kind = options.attention, .causal = is_causal, .dropout = c.dropout_rate},
        heads(c.num_attention_heads),
        head_dim(c.d_kv),
        is_decoder(decodes),
        variant(c.names->variant),
        module(builder.module) {
    const auto projection = [&](const char* name) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, c.inner_dim(), false);
    };
    q = projection("q");
    k = projection("k");
    v = projection("v");
    o = Linear(builder.child("o", "Linear"), c.inner_dim(), c.hidden_size, false);
    if (has_bias)
      relative_attention_bias =
          Embedding(builder.child("relative_attention_bias", "Embedding"), c.relative_attention_num_buckets, heads);
  }

  Tensor compute_bias(Context& context, std::int64_t queries, std::int64_t keys) const {
    Tensor context_position, relative_position;
    {
      const Tensor range = empty(context, Op::arange, {queries}, DType::int64);
      context_position = empty(context, Op::add, {queries, 1}, DType::int64);
    }
    const Tensor memory_position = empty(context, Op::arange, {keys}, DType::int64);
    relative_position = empty(context, Op::sub, {queries, keys}, DType::int64);
    const Tensor bucket = relative_position_bucket(relative_position, !is_decoder, variant);
    const Tensor values = relative_attention_bias(bucket);
    return unsqueeze(permute(values, {2, 0, 1}), 0);
  }

  /// `key_value_states`: null in self-attention. `shared_bias`: made here where it is null. `cache`: of a decoder;
  /// null: it keeps none.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& key_value_states, const Tensor& mask,
                              Tensor& shared_bias, TensorList* cache) const {
    Context& context = argument.context();
    ModuleCall self(context, module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states;
    states.query = heads_of(q(hidden_states), head_dim);
    const Tensor& current_states = key_value_states ? key_value_states : hidden_states;
    states.key = heads_of(k(current_states), head_dim);
    states.value = heads_of(v(current_states), head_dim);
    // The decoder's config is a copy whose use_cache stays on: DynamicLayer.update appends to nothing.
    if (is_decoder && cache) {
      Tensor keys = cat({states.key}, 2), values = cat({states.value}, 2);
      cache->push_back(keys);
      cache->push_back(values);
      states.key = std::move(keys);
      states.value = std::move(values);
    }
    Tensor own_bias;
    Tensor& position_bias = variant == T5Variant::umt5 ? own_bias : shared_bias;
    if (!position_bias) {
      const std::int64_t queries = hidden_states.size(1), keys = states.key.size(2);
      position_bias = relative_attention_bias.weight
                          ? compute_bias(context, queries, keys)
                          : empty(context, Op::zeros, {1, heads, queries, keys}, states.query.dtype());
    }
    AttentionOutputs attention = attend_with_bias(call, states, mask, position_bias);
    const Shape& sizes = attention.output.sizes();
    attention.output = reshape(attention.output, {sizes[0], sizes[1], sizes[2] * sizes[3]});
    attention.output = self.result(o(attention.output));
    return attention;
  }

  Linear q, k, v, o;
  Embedding relative_attention_bias;
  AttentionCall call;
  std::int64_t heads, head_dim;
  bool is_decoder;
  T5Variant variant;
  ModuleId module;
};

/// T5LayerSelfAttention, T5LayerCrossAttention.
struct T5LayerAttention {
  T5LayerAttention(const Builder& builder, const char* name, const T5Config& c, const ModelOptions& options,
                   bool decodes, bool is_causal, bool has_bias)
      : attention(builder.child(name, c.names->attention), c, options, decodes, is_causal, has_bias),
        layer_norm(make_norm(builder, "layer_norm", c)),
        dropout_rate(c.dropout_rate),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& argument, const Tensor& key_value_states, const Tensor& mask,
                              Tensor& position_bias, TensorList* cache) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const Tensor normed_hidden_states = layer_norm(hidden_states);
    AttentionOutputs outputs = attention(normed_hidden_states, key_value_states, mask, position_bias, cache);
    {
      const Tensor dropped = dropout(outputs.output, dropout_rate);
      outputs.output = add(hidden_states, dropped);
    }
    outputs.output = call.result(outputs.output);
    return outputs;
  }

  T5Attention attention;
  Norm layer_norm;
  double dropout_rate;
  ModuleId module;
};

/// What a stack's blocks share beside the hidden states; the first one makes the biases.
struct T5Shared {
  Tensor attention_mask, encoder_hidden_states, encoder_attention_mask, position_bias, encoder_decoder_position_bias;
  TensorList cache{};  ///< keys and values
  bool keeps_cache = true;
};

struct T5Block {
  T5Block(const Builder& builder, const T5Config& c, const ModelOptions& options, bool decodes, bool has_bias)
      : self_attention(builder.child("layer", c.names->self_attention, 0), "SelfAttention", c, options, decodes,
                       decodes, has_bias),
        module(builder.module) {
    if (decodes)
      cross_attention.emplace(builder.child("layer", c.names->cross_attention, 1), "EncDecAttention", c, options, true,
                              false, false);
    feed_forward.emplace(builder.child("layer", c.names->feed_forward, decodes ? 2 : 1), c);
  }

  Tensor operator()(const Tensor& hidden_in, T5Shared& shared) const {
    const ModuleScope scope(hidden_in.context(), module);
    TensorList* const cache = shared.keeps_cache ? &shared.cache : nullptr;
    AttentionOutputs attended = self_attention(hidden_in, {}, shared.attention_mask, shared.position_bias, cache);
    Tensor hidden_states = std::move(attended.output);  // the weights stay in `_`
    if (cross_attention) {
      AttentionOutputs crossed =
          (*cross_attention)(hidden_states, shared.encoder_hidden_states, shared.encoder_attention_mask,
                             shared.encoder_decoder_position_bias, cache);
      hidden_states = std::move(crossed.output);
      attended.weights = std::move(crossed.weights);
    }
    return (*feed_forward)(hidden_states);
  }

  T5LayerAttention self_attention;
  std::optional<T5LayerAttention> cross_attention;
  std::optional<T5LayerFF> feed_forward;
  ModuleId module;
};

struct T5Stack {
  T5Stack() = default;
  T5Stack(const Builder& builder, const T5Config& c, const ModelOptions& options, bool decodes)
      : is_decoder(decodes),
        dropout_rate(c.dropout_rate),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        own_biases(c.names->variant == T5Variant::umt5),
        module(builder.module) {
    if (checkpointing.mode == CheckpointMode::reentrant) checkpointing.mode = CheckpointMode::none;  // it is refused
    embed_tokens = Embedding(builder.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size);
    blocks = BlockStack(builder);
    const std::int64_t count = decodes ? c.num_decoder_layers : c.num_hidden_layers;
    layers.reserve(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) {
      layers.emplace_back(builder.child("block", c.names->block, i), c, options, decodes, own_biases || i == 0);
      blocks.add_block(builder);
    }
    final_layer_norm = make_norm(builder, "final_layer_norm", c);
  }

  Tensor embed(const Tensor& input_ids) const {
    return embed_tokens(input_ids,
                        [&](Tensor& output) { require_input_grad(checkpointing, output, embed_tokens.module); });
  }

  /// `embedded`: in place of input_ids, if it is not null. `source`: the mask of what the encoder reads. `cache`: what
  /// a decoder has kept, with the outputs.
  Tensor operator()(const Tensor& input_ids, const Tensor& embedded, const Tensor& encoder_hidden_states,
                    const MaskArguments& source, TensorList& cache) const {
    Context& context = input_ids.context();
    ModuleCall call(context, module);
    const Tensor inputs_embeds = embedded ? call.keyword(embedded) : embed(input_ids);
    T5Shared shared;
    shared.encoder_hidden_states = encoder_hidden_states;
    if (is_decoder) {
      shared.attention_mask = create_causal_mask(inputs_embeds, {}, masked);
      shared.encoder_attention_mask = create_cross_mask(inputs_embeds, encoder_hidden_states, source, masked);
    } else {
      shared.attention_mask = create_bidirectional_mask(inputs_embeds, source, masked);
    }
    Tensor hidden_states = dropout(inputs_embeds, dropout_rate);
    if (checkpointing.mode != CheckpointMode::none && context.training) {
      // GradientCheckpointingLayer takes the cache away.
      const auto block = [&](std::size_t i) -> BlockStack::Forward {
        return [&layer = layers[i], attention_mask = shared.attention_mask, encoder_hidden_states,
                encoder_attention_mask = shared.encoder_attention_mask](const Tensor& hidden) {
          T5Shared of_block{attention_mask, encoder_hidden_states, encoder_attention_mask, {}, {}};
          of_block.keeps_cache = false;
          return layer(hidden, of_block);
        };
      };
      hidden_states =
          blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.positional = true});
    } else {
      const auto block = [&](std::size_t i) -> BlockStack::Forward {
        return [&layer = layers[i], &shared](const Tensor& hidden) { return layer(hidden, shared); };
      };
      const auto kind = [&](std::size_t i) { return int{i == 0 && !own_biases}; };  // it makes the biases
      hidden_states =
          blocks.run(0, layers.size(), std::move(hidden_states), {}, block, {.positional = true, .kind = kind});
    }
    cache = shared.cache;
    hidden_states = final_layer_norm(hidden_states);
    return call.result(dropout(hidden_states, dropout_rate));
  }

  bool is_decoder = false;
  Embedding embed_tokens;
  std::vector<T5Block> layers;
  BlockStack blocks;
  Norm final_layer_norm;
  double dropout_rate = 0;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  bool own_biases = false;
  ModuleId module = 0;
};

}  // namespace t5

namespace {

class T5ForConditionalGeneration : public T5LanguageModel {
 public:
  T5ForConditionalGeneration(Context& context, const T5Config& c, const DataConfig& data, const ModelOptions& options)
      : T5LanguageModel(context, c, data, options) {
    make_t5(root_, c, options);
  }

  ModelOutputs forward(const ModelInputs& inputs) override { return run_t5({}, inputs); }
};

}  // namespace

struct T5LanguageModel::Parts {
  Embedding shared;
  t5::T5Stack encoder, decoder;
  Linear lm_head;
  bool scales = false, is_half = false, is_reentrant = false, has_segments = false, has_adapters = false;
};

T5LanguageModel::T5LanguageModel(Context& context, const T5Config& c, const DataConfig& data,
                                 const ModelOptions& options)
    : EncoderModel(context, c, data, options), parts_(std::make_unique<Parts>()) {
  parts_->scales = c.scale_decoder_outputs;
  parts_->is_half = options.dtype == DType::float16;
  parts_->has_adapters = options.wrapping != nullptr;
  parts_->is_reentrant = options.checkpointing.mode == CheckpointMode::reentrant;
  parts_->has_segments = !options.checkpointing.segments.empty() || options.checkpointing.every != 1;
}

T5LanguageModel::~T5LanguageModel() = default;

void T5LanguageModel::make_t5(const Builder& generation, const T5Config& c, const ModelOptions& options,
                              std::size_t first_block) {
  Parts& p = *parts_;
  p.shared = Embedding(generation.child("shared", "Embedding"), c.vocab_size, c.hidden_size);
  p.encoder = t5::T5Stack(generation.child("encoder", c.names->stack), c, options, false);
  p.decoder = t5::T5Stack(generation.child("decoder", c.names->stack), c, options, true);
  p.encoder.blocks.first_block = first_block;
  p.decoder.blocks.first_block = first_block + p.encoder.layers.size();
  p.lm_head = Linear(generation.child("lm_head", "Linear"), c.hidden_size, c.vocab_size, false);
  tie_weight(p.encoder.embed_tokens.weight, p.encoder.embed_tokens.module, p.shared.weight);
  tie_weight(p.decoder.embed_tokens.weight, p.decoder.embed_tokens.module, p.shared.weight);
  if (c.tie_word_embeddings) tie_weight(p.lm_head.weight, p.lm_head.module, p.shared.weight);
}

Tensor T5LanguageModel::embed_shared(const Tensor& input_ids) const {
  const CheckpointingConfig& checkpointing = parts_->encoder.checkpointing;
  return parts_->shared(input_ids,
                        [&](Tensor& output) { require_input_grad(checkpointing, output, parts_->shared.module); });
}

ModelOutputs T5LanguageModel::run_t5(const Tensor& inputs_embeds, const ModelInputs& inputs) {
  if (parts_->is_half)
    context_.refusal =
        Error{"not-modelled", "/training/precision",
              "found float16, in which blocks clamp what is infinite; this is not supported yet: expected bfloat16"};
  if (parts_->is_reentrant || parts_->has_segments)
    context_.refusal = Error{
        "not-modelled", "/training/activation_checkpointing",
        parts_->is_reentrant ? "found \"reentrant\", which is not supported yet with decoders that see an encoder's "
                               "states; expected \"non-reentrant\""
                             : "found checkpoints of some blocks, which are not supported yet with a decoder that "
                               "keeps a cache; expected \"non-reentrant\""};
  if (parts_->has_adapters && parts_->encoder.checkpointing.mode != CheckpointMode::none && context_.modules)
    context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                             "found checkpoints of blocks with adapters and ZeRO-3, which are not supported yet "
                             "together; expected \"none\""};
  TensorList cache;
  const MaskArguments source{{}, inputs.attention_mask, inputs.rows};
  Tensor encoder_states = parts_->encoder(inputs.input_ids, inputs_embeds, {}, source, cache);
  const Tensor decoder_input_ids = inputs.labels ? shift_right(inputs.labels) : inputs.input_ids;
  const Tensor decoder_states = parts_->decoder(decoder_input_ids, {}, encoder_states, source, cache);
  Tensor sequence_output = decoder_states;
  if (parts_->scales) sequence_output = mul_scalar(sequence_output);
  ModelOutputs outputs = outputs_of(parts_->lm_head(sequence_output), inputs);
  outputs.others.push_back(std::move(encoder_states));
  // accelerate makes no float32 of a cache (convert_outputs_to_fp32), whose keys and values are kept for backward,
  // too.
  if (!context_.autocast.enabled)
    for (std::size_t i = 0; i < cache.size(); ++i) outputs.others.push_back(cache[i]);
  else if (!context_.training)
    context_.refusal = Error{"not-modelled", "/training/loop",
                             "found an evaluation under autocast of a model that hands its cache back, which is not "
                             "supported yet: leave one of them out"};
  return outputs;
}

Tensor T5LanguageModel::shift_right(const Tensor& labels) const {
  const Shape tokens = labels.sizes();
  Tensor shifted_input_ids = empty(context_, Op::zeros, tokens, DType::int64);
  { const Tensor kept = empty(context_, Op::clone, {tokens[0], tokens[1] - 1}, DType::int64); }
  const Tensor is_ignored = empty(context_, Op::eq, tokens, DType::boolean);
  return shifted_input_ids;
}

std::unique_ptr<Model> build_t5(Context& context, const FamilyConfig& config, const DataConfig& data,
                                const ModelOptions& options) {
  return std::make_unique<T5ForConditionalGeneration>(context, config.as<T5Config>(), data, options);
}

}  // namespace oometer
