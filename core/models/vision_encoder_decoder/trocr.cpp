#include <utility>
#include <vector>

#include "models/masking.h"
#include "models/vision_encoder_decoder/parts.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/trocr/modeling_trocr.py. Names and order of steps are that file's.
namespace oometer {

namespace {

struct TrocrAttention {
  /// `key_dim`: of what keys and values are made of.
  TrocrAttention(const Builder& builder, const TrocrConfig& c, std::int64_t key_dim)
      : head_dim(c.hidden_size / c.decoder_attention_heads), dropout_prob(c.attention_dropout), module(builder.module) {
    k_proj = Linear(builder.child("k_proj", "Linear"), key_dim, c.hidden_size, true);
    v_proj = Linear(builder.child("v_proj", "Linear"), key_dim, c.hidden_size, true);
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, c.hidden_size, true);
    out_proj = Linear(builder.child("out_proj", "Linear"), c.hidden_size, c.hidden_size, true);
  }

  /// `key_value_states`: null in self-attention.
  Tensor operator()(const Tensor& argument, const Tensor& key_value_states, const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall self(context, module);
    const Tensor hidden_states = self.keyword(argument),
                 current_states = key_value_states ? self.keyword(key_value_states) : hidden_states;
    const std::int64_t batch = hidden_states.size(0), tgt_len = hidden_states.size(1), width = hidden_states.size(2),
                       heads = width / head_dim;
    Tensor query_states, key_states, value_states;
    {
      const Tensor projected = q_proj(hidden_states);
      query_states = mul_scalar(projected);
    }
    key_states = k_proj(current_states);
    value_states = v_proj(current_states);
    key_states = heads_of(key_states, head_dim);
    value_states = heads_of(value_states, head_dim);
    if (context.past_key_values) {
      KvCache::States cached = context.past_key_values->update(0, key_states, value_states);
      key_states = std::move(cached.keys);
      value_states = std::move(cached.values);
    }
    query_states = heads_of(query_states, head_dim);
    const std::int64_t src_len = key_states.size(2);
    query_states = reshape(query_states, {batch * heads, tgt_len, head_dim});
    key_states = reshape(key_states, {batch * heads, src_len, head_dim});
    value_states = reshape(value_states, {batch * heads, src_len, head_dim});
    Tensor attn_weights;
    {
      const Tensor query = autocast_lower(query_states), key = autocast_lower(key_states);
      attn_weights = bmm(query, transpose(key, 1, 2));
    }
    if (attention_mask) {
      attn_weights = add(view(attn_weights, {batch, heads, tgt_len, src_len}), attention_mask);
      attn_weights = view(attn_weights, {batch * heads, tgt_len, src_len});
    }
    attn_weights = softmax(attn_weights, context.autocast.enabled ? DType::float32 : attn_weights.dtype());
    const Tensor attn_probs = dropout(attn_weights, dropout_prob);
    Tensor attn_output;
    {
      const Tensor probs = autocast_lower(attn_probs), value = autocast_lower(value_states);
      attn_output = bmm(probs, value);
    }
    attn_output = transpose(view(attn_output, {batch, heads, tgt_len, head_dim}), 1, 2);
    attn_output = reshape(attn_output, {batch, tgt_len, width});
    return self.result(out_proj(attn_output));
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim;
  double dropout_prob;
  ModuleId module;
};

struct TrocrLayer {
  TrocrLayer(const Builder& builder, const TrocrConfig& c)
      : self_attn(builder.child("self_attn", "TrOCRAttention"), c, c.hidden_size),
        self_attn_layer_norm(builder.child("self_attn_layer_norm", "LayerNorm"), c.hidden_size),
        encoder_attn(builder.child("encoder_attn", "TrOCRAttention"), c,
                     c.cross_attention_hidden_size != 0 ? c.cross_attention_hidden_size : c.hidden_size),
        encoder_attn_layer_norm(builder.child("encoder_attn_layer_norm", "LayerNorm"), c.hidden_size),
        fc1(builder.child("fc1", "Linear"), c.hidden_size, c.decoder_ffn_dim, true),
        fc2(builder.child("fc2", "Linear"), c.decoder_ffn_dim, c.hidden_size, true),
        final_layer_norm(builder.child("final_layer_norm", "LayerNorm"), c.hidden_size),
        dropout_prob(c.dropout),
        activation_dropout(c.activation_dropout),
        activation_fn(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& encoder_hidden_states) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, hidden_states;
    const auto join = [&](const LayerNorm& norm) {
      hidden_states = dropout(hidden_states, dropout_prob);
      hidden_states = add(residual, hidden_states);
      hidden_states = norm(hidden_states);
    };
    hidden_states = self_attn(hidden_in, {}, mask);
    join(self_attn_layer_norm);
    residual = hidden_states;
    hidden_states = encoder_attn(hidden_states, encoder_hidden_states, {});
    join(encoder_attn_layer_norm);
    residual = hidden_states;
    {
      const Tensor widened = fc1(hidden_states);
      hidden_states = activate(activation_fn, widened);
    }
    hidden_states = dropout(hidden_states, activation_dropout);
    hidden_states = fc2(hidden_states);
    join(final_layer_norm);
    return hidden_states;
  }

  TrocrAttention self_attn;
  LayerNorm self_attn_layer_norm;
  TrocrAttention encoder_attn;
  LayerNorm encoder_attn_layer_norm;
  Linear fc1, fc2;
  LayerNorm final_layer_norm;
  double dropout_prob, activation_dropout;
  Activation activation_fn;
  ModuleId module;
};

class TrocrDecoder : public BartDecoderInside {
 public:
  TrocrDecoder(const Builder& builder, const TrocrConfig& c, const ModelOptions& options, std::size_t first_block)
      : dropout_prob_(c.dropout), checkpointing_(options.checkpointing), module_(builder.module) {
    embed_tokens = Embedding(builder.child("embed_tokens", "TrOCRScaledWordEmbedding"), c.vocab_size, c.hidden_size);
    embed_positions_ = Embedding(builder.child("embed_positions", "TrOCRLearnedPositionalEmbedding"),
                                 c.max_position_embeddings + kOffset, c.hidden_size);
    if (c.layernorm_embedding)
      layernorm_embedding_ = LayerNorm(builder.child("layernorm_embedding", "LayerNorm"), c.hidden_size);
    blocks_ = BlockStack(builder);
    blocks_.first_block = first_block;
    layers_.reserve(static_cast<std::size_t>(c.decoder_layers));
    for (std::int32_t i = 0; i < c.decoder_layers; ++i) {
      layers_.emplace_back(builder.child("layers", kTrocrLayer, i), c);
      blocks_.add_block(builder);
    }
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& given, KvCache* cache) const override {
    Context& context = input_ids.context();
    ModuleCall call(context, module_);
    const Tensor encoder_hidden_states = call.keyword(given);
    const std::int64_t length = input_ids.size(1);
    Tensor inputs_embeds;
    {
      const Tensor looked_up = embed_tokens(input_ids);
      inputs_embeds = mul_scalar(looked_up);
    }
    if (checkpointing_.input_require_grads) require_input_grad(checkpointing_, inputs_embeds, embed_tokens.module);
    Tensor embed_pos;
    {
      ModuleCall embedding_call(context, embed_positions_.module);
      const Tensor position_ids = empty(context, Op::arange, {length}, DType::int64),
                   offset = empty(context, Op::add, input_ids.sizes(), DType::int64);
      embed_pos = embedding_call.result(embedding(embed_positions_.weight, offset));
    }
    Tensor hidden_states = add(inputs_embeds, embed_pos);
    if (layernorm_embedding_.weight) hidden_states = layernorm_embedding_(hidden_states);
    hidden_states = dropout(hidden_states, dropout_prob_);
    const Tensor attention_mask = create_causal_mask(inputs_embeds, {}, MaskedBy::eager);
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], attention_mask, encoder_hidden_states](const Tensor& hidden) {
        return layer(hidden, attention_mask, encoder_hidden_states);
      };
    };
    const Scoped<KvCache*> with_cache(context.past_key_values, cache);
    hidden_states =
        blocks_.run(0, layers_.size(), std::move(hidden_states), checkpointing_, block, {.positional = true});
    return call.result(hidden_states);
  }

 private:
  static constexpr std::int64_t kOffset = 2;  ///< TrOCRLearnedPositionalEmbedding.offset

  Embedding embed_positions_;
  LayerNorm layernorm_embedding_;
  std::vector<TrocrLayer> layers_;
  BlockStack blocks_;
  double dropout_prob_;
  CheckpointingConfig checkpointing_;
  ModuleId module_;
};

}  // namespace

std::unique_ptr<BartDecoderInside> make_trocr_decoder(const Builder& builder, const TrocrConfig& config,
                                                      const ModelOptions& options, std::size_t first_block) {
  return std::make_unique<TrocrDecoder>(builder, config, options, first_block);
}

}  // namespace oometer
