#include "models/bart/bart.h"

#include <optional>
#include <utility>
#include <vector>

#include "models/bert/bert.h"
#include "models/cross_mask.h"
#include "models/kit/shift_tokens.h"
#include "models/kit/text_attention.h"
#include "models/masking.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

struct BartAttention {
  BartAttention(const Builder& builder, const BartConfig& c, std::int64_t heads, const ModelOptions& options,
                bool is_causal)
      : call{.kind = options.attention, .causal = is_causal, .dropout = c.attention_dropout},
        head_dim(c.hidden_size / heads),
        module(builder.module) {
    const auto projection = [&](const char* name) {
      return Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
    };
    k_proj = projection("k_proj");
    v_proj = projection("v_proj");
    q_proj = projection("q_proj");
    out_proj = projection("out_proj");
  }

  /// `key_value_states`: null in self-attention.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& key_value_states, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    const Tensor& current_states = key_value_states ? key_value_states : hidden_states;
    states.key = k_proj(current_states);
    states.value = v_proj(current_states);
    states.key = heads_of(states.key, head_dim);
    states.value = heads_of(states.value, head_dim);
    AttentionOutputs attention = attend(call, 0, states, {}, mask, eager_in_own_type);
    attention.output = self.result(out_proj(attention.output));
    return attention;
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  AttentionCall call;
  std::int64_t head_dim;
  ModuleId module;
};

/// BartEncoderLayer, BartDecoderLayer: the second has attention to what the encoder gave, too.
struct BartLayer {
  BartLayer(const Builder& builder, const BartConfig& c, const ModelOptions& options, bool is_decoder)
      : self_attn(builder.child("self_attn", c.names->attention), c,
                  is_decoder ? c.decoder_attention_heads : c.num_attention_heads, options, is_decoder),
        hidden_dropout(c.dropout),
        activation_dropout(c.activation_dropout),
        activation_fn(c.hidden_act),
        norms_first(c.names->norms_first()),
        module(builder.module) {
    const auto norm = [&](const char* name) { return LayerNorm(builder.child(name, "LayerNorm"), c.hidden_size); };
    const std::int64_t width = is_decoder ? c.decoder_ffn_dim : c.intermediate_size;
    self_attn_layer_norm = norm("self_attn_layer_norm");
    if (is_decoder) {
      encoder_attn.emplace(builder.child("encoder_attn", c.names->attention), c, c.decoder_attention_heads, options,
                           false);
      encoder_attn_layer_norm = norm("encoder_attn_layer_norm");
    }
    fc1 = Linear(builder.child("fc1", "Linear"), c.hidden_size, width, true);
    fc2 = Linear(builder.child("fc2", "Linear"), width, c.hidden_size, true);
    final_layer_norm = norm("final_layer_norm");
  }

  /// `encoder_hidden_states`: of a decoder's layer, and which of them it sees.
  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& encoder_hidden_states,
                    const Tensor& encoder_attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, hidden_states = hidden_in, weights;  // `_`
    const auto attend_with = [&](const BartAttention& attention, const LayerNorm& norm, const Tensor& keys,
                                 const Tensor& its_mask) {
      residual = hidden_states;
      if (norms_first) hidden_states = norm(hidden_states);
      AttentionOutputs outputs = attention(hidden_states, keys, its_mask);
      hidden_states = std::move(outputs.output);
      weights = std::move(outputs.weights);
      hidden_states = dropout(hidden_states, hidden_dropout);
      hidden_states = add(residual, hidden_states);
      if (!norms_first) hidden_states = norm(hidden_states);
    };
    attend_with(self_attn, self_attn_layer_norm, {}, mask);
    if (encoder_attn)
      attend_with(*encoder_attn, encoder_attn_layer_norm, encoder_hidden_states, encoder_attention_mask);
    residual = hidden_states;
    if (norms_first) hidden_states = final_layer_norm(hidden_states);
    {
      const Tensor widened = fc1(hidden_states);
      hidden_states = activate(activation_fn, widened);
    }
    hidden_states = dropout(hidden_states, activation_dropout);
    hidden_states = fc2(hidden_states);
    hidden_states = dropout(hidden_states, hidden_dropout);
    hidden_states = add(residual, hidden_states);
    if (!norms_first) hidden_states = final_layer_norm(hidden_states);
    return hidden_states;
  }

  BartAttention self_attn;
  std::optional<BartAttention> encoder_attn;
  LayerNorm self_attn_layer_norm, encoder_attn_layer_norm, final_layer_norm;
  Linear fc1, fc2;
  double hidden_dropout, activation_dropout;
  Activation activation_fn;
  bool norms_first;
  ModuleId module;
};

}  // namespace

Tensor make_sines(const Builder& builder, std::int64_t count, std::int64_t width, DType dtype) {
  Context& context = *builder.context;
  const std::int64_t half = width / 2;
  const auto floats = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
  Tensor emb, weights, joined;
  {
    const Tensor steps = empty(context, Op::arange, {half}, DType::int64);
    emb = floats(Op::to_copy, {half});
  }
  for (const Op op : {Op::mul, Op::exp}) emb = floats(op, {half});
  {
    Tensor positions = empty(context, Op::arange, {count}, DType::int64);
    positions = floats(Op::to_copy, {count});
    emb = floats(Op::mul, {count, half});
  }
  {
    const Tensor sines = floats(Op::sin, {count, half}), cosines = floats(Op::cos, {count, half});
    if (dtype == DType::float32)
      weights = builder.buffer({count, width}, dtype);
    else
      joined = floats(Op::cat, {count, width});
  }
  emb.reset();
  if (!weights) weights = builder.buffer({count, width}, dtype);
  return weights;
}

namespace {

/// BartEncoder, BartDecoder.
struct BartStack {
  BartStack() = default;
  BartStack(const Builder& builder, const BartConfig& c, const ModelOptions& options, bool decodes)
      : names(c.names),
        is_decoder(decodes),
        hidden_dropout(c.dropout),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    if (checkpointing.mode == CheckpointMode::reentrant) checkpointing.mode = CheckpointMode::none;  // it is refused
    embed_tokens = Embedding(builder.child("embed_tokens", c.names->embedding), c.vocab_size, c.hidden_size);
    const Builder positions_builder = builder.child("embed_positions", names->positions);
    const bool freezes = names->freezes_positions();
    if (names->variant == BartVariant::m2m_100) {
      position_weights = make_sines(positions_builder, c.max_position_embeddings + 2, c.hidden_size, options.dtype);
      positions_module = positions_builder.module;
    } else {
      const std::int64_t offset = freezes || names->is_blenderbot() ? 0 : 2;
      embed_positions = Embedding(positions_builder, c.max_position_embeddings + offset, c.hidden_size);
    }
    if (freezes) embed_positions.weight->leaf_requires_grad = false;
    const std::int64_t count = decodes ? c.decoder_layers : c.num_hidden_layers;
    blocks = BlockStack(builder);
    layers.reserve(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) {
      layers.emplace_back(builder.child("layers", decodes ? c.names->decoder_layer : c.names->encoder_layer, i), c,
                          options, decodes);
      blocks.add_block(builder);
    }
    if (names->norms_embeddings())
      layernorm_embedding = LayerNorm(builder.child("layernorm_embedding", "LayerNorm"), c.hidden_size);
    if (names->norms_first()) layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), c.hidden_size);
  }

  /// M2M100SinusoidalPositionalEmbedding.
  Tensor counted_sines(const Tensor& input_ids) const {
    Context& context = input_ids.context();
    const ModuleScope scope(context, positions_module);
    const NoGrad no_grad(context);
    const Tensor position_ids = create_position_ids(input_ids);
    const Shape& tokens = input_ids.sizes();
    const Tensor rows = index_select(position_weights, 0, view(position_ids, {input_ids.numel()}));
    return view(rows, {tokens[0], tokens[1], position_weights.size(1)});
  }

  /// MarianSinusoidalPositionalEmbedding, PegasusSinusoidalPositionalEmbedding.
  Tensor sines(const Tensor& given) const {
    const NoGrad no_grad(given.context());
    return embed_positions(given);
  }

  /// BartLearnedPositionalEmbedding of tokens [b, s], or of embeddings of as many: the decoder, which has made their
  /// positions, looks up one row. `given`: these.
  Tensor positions(const Tensor& input_ids, const Tensor& given) const {
    Context& context = input_ids.context();
    const std::int64_t length = input_ids.size(1);
    if (names->variant == BartVariant::m2m_100) return counted_sines(input_ids);
    const bool freezes = names->freezes_positions(), offsets = !freezes && !names->is_blenderbot();
    if (!offsets && is_decoder) return freezes ? sines(given) : embed_positions(given);
    Tensor position_ids;
    if (!is_decoder) position_ids = empty(context, Op::arange, {length}, DType::int64);
    if (!offsets) return freezes ? sines(position_ids) : embed_positions(position_ids);
    const Tensor offset = empty(context, Op::add, {is_decoder ? 1 : input_ids.size(0), length}, DType::int64);
    return embed_positions(offset);
  }

  /// BartScaledWordEmbedding, and the hook that checkpointing puts behind it.
  Tensor embed(const Embedding& table, const Tensor& input_ids) const {
    Tensor embedded = table(input_ids);
    const auto require_grad = [&](Tensor& output) { require_input_grad(checkpointing, output, table.module); };
    // Others' embeddings are scaled by their module.
    const bool is_small = names->variant == BartVariant::blenderbot_small;
    const bool scales_behind = names->freezes_positions() || is_small;
    if (scales_behind) require_grad(embedded);
    if (is_small && is_decoder) return embedded;
    Tensor inputs_embeds = mul_scalar(embedded);
    if (!scales_behind) require_grad(inputs_embeds);
    return inputs_embeds;
  }

  /// `source`: the mask of what the encoder reads. `given`: inputs_embeds, in place of input_ids.
  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_hidden_states, const MaskArguments& source,
                    const Tensor& given = {}, KvCache* cache = nullptr) const {
    Context& context = given ? given.context() : input_ids.context();
    ModuleCall call(context, module);
    Tensor inputs_embeds = given ? given : embed(embed_tokens, input_ids);
    const Tensor& tokens = given ? given : input_ids;
    Tensor attended, attention_mask, encoder_attention_mask, position_ids;
    if (is_decoder) {
      if (names->variant != BartVariant::m2m_100) {
        position_ids = empty(context, Op::arange, {tokens.size(1)}, DType::int64);
        position_ids = empty(context, Op::add, {tokens.size(1)}, DType::int64);
      }
      attended = empty(context, Op::ones_like, tokens.sizes(), DType::float32);
      attention_mask = create_causal_mask(inputs_embeds, {{}, attended}, masked);
      if (names->variant == BartVariant::m2m_100) attended.reset();  // one name for both
      encoder_attention_mask = create_cross_mask(inputs_embeds, encoder_hidden_states, source, masked);
    }
    const Tensor embed_pos = positions(tokens, position_ids);
    // One name in BART, but in mBART's and Marian's decoder the positions' is that of their embeddings.
    if (names->variant == BartVariant::bart)
      attended.reset();
    else if (names->variant != BartVariant::pegasus)
      position_ids.reset();
    const bool norms_before_sum = is_decoder && names->variant == BartVariant::blenderbot_small;
    if (norms_before_sum) inputs_embeds = layernorm_embedding(inputs_embeds);
    Tensor hidden_states = add(inputs_embeds, embed_pos);
    if (layernorm_embedding.weight && !norms_before_sum) hidden_states = layernorm_embedding(hidden_states);
    hidden_states = dropout(hidden_states, hidden_dropout);
    if (!is_decoder) attention_mask = create_bidirectional_mask(inputs_embeds, source, masked);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], attention_mask, encoder_hidden_states, encoder_attention_mask](const Tensor& hidden) {
        return layer(hidden, attention_mask, encoder_hidden_states, encoder_attention_mask);
      };
    };
    const Scoped<KvCache*> with_cache(context.past_key_values, cache ? cache : context.past_key_values);
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block, {.positional = true});
    if (layer_norm.weight) hidden_states = layer_norm(hidden_states);
    return call.result(hidden_states);
  }

  const BartClassNames* names = nullptr;
  bool is_decoder = false;
  Embedding embed_tokens, embed_positions;
  Tensor position_weights;  ///< M2M-100's
  ModuleId positions_module = 0;
  std::vector<BartLayer> layers;
  BlockStack blocks;
  LayerNorm layernorm_embedding, layer_norm;
  double hidden_dropout = 0;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class BartForConditionalGeneration : public EncoderModel {
 public:
  BartForConditionalGeneration(Context& context, const BartConfig& c, const DataConfig& data,
                               const ModelOptions& options)
      : EncoderModel(context, c, data, options), variant_(c.names->variant) {
    const Builder model = root_.child("model", c.names->model);
    model_ = model.module;
    Embedding shared(model.child("shared", c.names->embedding), c.vocab_size, c.hidden_size);
    encoder_ = BartStack(model.child("encoder", c.names->encoder), c, options, false);
    decoder_ = BartStack(model.child("decoder", c.names->decoder), c, options, true);
    decoder_.blocks.first_block = encoder_.layers.size();
    tie_weight(decoder_.embed_tokens.weight, decoder_.embed_tokens.module, shared.weight);
    tie_weight(encoder_.embed_tokens.weight, encoder_.embed_tokens.module, shared.weight);
    if (variant_ != BartVariant::m2m_100) final_logits_bias_ = root_.buffer({1, c.vocab_size}, options.dtype);
    lm_head_ = Linear(root_.child("lm_head", "Linear"), c.hidden_size, c.vocab_size, false);
    tie_weight(lm_head_.weight, lm_head_.module, shared.weight);
    is_half_ = options.dtype == DType::float16;
    is_reentrant_ = options.checkpointing.mode == CheckpointMode::reentrant;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (is_half_)
      refuse("/training/precision",
             "found float16, in which the encoder's layers look for what is not finite; this is not supported yet: "
             "expected bfloat16");
    if (is_reentrant_)
      refuse("/training/activation_checkpointing",
             "found \"reentrant\", which is not supported yet with decoders that see an encoder's states; expected "
             "\"non-reentrant\"");
    const Tensor decoder_input_ids = inputs.labels ? shifted(inputs.labels) : inputs.input_ids;
    const MaskArguments source{{}, inputs.attention_mask, inputs.rows};
    if (encoder_.masked == MaskedBy::flash_attention && inputs.rows->are_padded(inputs.input_ids.size(1)))
      refuse("/data/lengths",
             "found samples that are padded with flash-attn, which is not supported yet: expected sdpa");
    Tensor encoder_states, decoder_states;
    {
      ModuleCall call(context_, model_);
      encoder_states = encoder_(inputs.input_ids, {}, source);
      decoder_states = call.result(decoder_(decoder_input_ids, encoder_states, source));
    }
    Tensor lm_logits = lm_head_(decoder_states);
    if (final_logits_bias_) lm_logits = add(lm_logits, final_logits_bias_);
    ModelOutputs outputs = outputs_of(std::move(lm_logits), inputs);
    outputs.others.push_back(std::move(encoder_states));
    return outputs;
  }

 private:
  void refuse(const char* pointer, const char* message) { context_.refusal = Error{"not-modelled", pointer, message}; }

  Tensor shifted(const Tensor& labels) const {
    if (variant_ != BartVariant::mbart) return shift_tokens_right(labels);
    const Shape tokens = labels.sizes(), behind{tokens[0], tokens[1] - 1}, rows{tokens[0]};
    const auto made = [&](Op op, const Shape& sizes, DType dtype = DType::int64) {
      return empty(context_, op, sizes, dtype);
    };
    Tensor prev_output_tokens = made(Op::clone, tokens), index_of_eos, decoder_start_tokens;
    { const Tensor is_ignored = made(Op::eq, tokens, DType::boolean); }
    {
      Tensor count;
      {
        const Tensor is_token = made(Op::eq, tokens, DType::boolean);
        count = made(Op::sum, rows);
        const Tensor as_integers = made(Op::to_copy, tokens);
      }
      index_of_eos = made(Op::sub, rows);
    }
    decoder_start_tokens = made(Op::gather, rows);
    { const Tensor kept = made(Op::clone, behind); }
    return prev_output_tokens;
  }

  BartVariant variant_;
  bool is_half_ = false, is_reentrant_ = false;
  ModuleId model_ = 0;
  BartStack encoder_, decoder_;
  Tensor final_logits_bias_;
  Linear lm_head_;
};

class OwnBartInside : public BartInside {
 public:
  OwnBartInside(const Builder& model, const BartConfig& c, const ModelOptions& options) {
    shared = Embedding(model.child("shared", c.names->embedding), c.vocab_size, c.hidden_size);
    encoder_ = BartStack(model.child("encoder", c.names->encoder), c, options, false);
    decoder_ = BartStack(model.child("decoder", c.names->decoder), c, options, true);
    decoder_.blocks.first_block = encoder_.layers.size();
  }

  Tensor embed(const Tensor& input_ids) const override { return encoder_.embed(shared, input_ids); }
  Tensor encode(const Tensor& inputs_embeds, const MaskArguments& source) const override {
    return encoder_({}, {}, source, inputs_embeds);
  }
  Tensor decode(const Tensor& input_ids, const Tensor& encoder_hidden_states,
                const MaskArguments& source) const override {
    return decoder_(input_ids, encoder_hidden_states, source);
  }
  std::vector<Embedding*> tied() override { return {&decoder_.embed_tokens, &encoder_.embed_tokens}; }

 private:
  BartStack encoder_, decoder_;
};

class OwnBartDecoder : public BartDecoderInside {
 public:
  OwnBartDecoder(const Builder& decoder, const BartConfig& c, const ModelOptions& options, std::size_t first_block)
      : decoder_(decoder, c, options, true) {
    decoder_.blocks.first_block = first_block;
    embed_tokens = decoder_.embed_tokens;
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_hidden_states, KvCache* cache) const override {
    return decoder_(input_ids, encoder_hidden_states, {}, {}, cache);
  }

 private:
  BartStack decoder_;
};

}  // namespace

std::unique_ptr<BartDecoderInside> make_bart_decoder(const Builder& decoder, const BartConfig& config,
                                                     const ModelOptions& options, std::size_t first_block) {
  return std::make_unique<OwnBartDecoder>(decoder, config, options, first_block);
}

std::unique_ptr<BartInside> make_bart_inside(const Builder& model, const BartConfig& config,
                                             const ModelOptions& options) {
  return std::make_unique<OwnBartInside>(model, config, options);
}

std::unique_ptr<Model> build_bart(Context& context, const FamilyConfig& config, const DataConfig& data,
                                  const ModelOptions& options) {
  return std::make_unique<BartForConditionalGeneration>(context, config.as<BartConfig>(), data, options);
}

}  // namespace oometer
