#include "models/t5gemma/t5gemma.h"

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "models/cross_mask.h"
#include "models/kit/norms.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "models/masking.h"
#include "nn/activation.h"
#include "nn/block_stack.h"
#include "ops/ops.h"

namespace oometer {

namespace {

Norm make_norm(const Builder& parent, const char* name, const TextConfig& c) {
  return Norm(parent.child(name, "T5GemmaRMSNorm"), rms_norm_one_plus, {c.hidden_size});
}

/// T5GemmaSelfAttention, T5GemmaCrossAttention.
struct T5GemmaAttention {
  /// `key_value_size`: elements of the states that keys and values are made of.
  T5GemmaAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options, bool is_causal,
                   std::int64_t key_value_size)
      : call(attention_call(c, options)), head_dim(c.head_dim), module(builder.module) {
    call.causal = is_causal;
    const auto projection = [&](const char* name, std::int64_t from, std::int64_t to) {
      return Linear(builder.child(name, "Linear"), from, to, c.qkv_bias);
    };
    q_proj = projection("q_proj", c.hidden_size, c.num_attention_heads * head_dim);
    k_proj = projection("k_proj", key_value_size, c.num_key_value_heads * head_dim);
    v_proj = projection("v_proj", key_value_size, c.num_key_value_heads * head_dim);
    o_proj = projection("o_proj", c.num_attention_heads * head_dim, c.hidden_size);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    return attended(self, states, positions, mask);
  }

  /// With what the encoder gave.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& encoder_hidden_states, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    states.key = heads_of(k_proj(encoder_hidden_states), head_dim);
    states.value = heads_of(v_proj(encoder_hidden_states), head_dim);
    return attended(self, states, {}, mask);
  }

  AttentionOutputs attended(ModuleCall& self, AttentionInputs& states, const PositionEmbeddings& positions,
                            const Tensor& mask) const {
    AttentionOutputs attention = attend(call, 0, states, positions, mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  AttentionCall call;
  std::int64_t head_dim;
  ModuleId module;
};

/// Gemma2MLP with dropout.
struct T5GemmaMLP {
  T5GemmaMLP(const Builder& builder, const TextConfig& c, double rate)
      : gate_proj(builder.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, false),
        act_fn(c.hidden_act),
        dropout_rate(rate),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor hidden_states;
    {
      Tensor activated = gate_proj(x);
      activated = activate(act_fn, activated);
      const Tensor up = up_proj(x);
      hidden_states = mul(activated, up);
    }
    hidden_states = dropout(hidden_states, dropout_rate);
    return call.result(down_proj(hidden_states));
  }

  Linear gate_proj, up_proj, down_proj;
  Activation act_fn;
  double dropout_rate;
  ModuleId module;
};

/// T5GemmaEncoderLayer, T5GemmaDecoderLayer: the second has attention to what the encoder gave, too.
struct T5GemmaLayer {
  /// `encoder`: of a decoder's layer.
  T5GemmaLayer(const Builder& builder, const TextConfig& c, const ModelOptions& options, double rate,
               const TextConfig* encoder)
      : self_attn(builder.child("self_attn", "T5GemmaSelfAttention"), c, options, encoder != nullptr, c.hidden_size),
        pre_self_attn_layernorm(make_norm(builder, "pre_self_attn_layernorm", c)),
        post_self_attn_layernorm(make_norm(builder, "post_self_attn_layernorm", c)),
        mlp(builder.child("mlp", "T5GemmaMLP"), c, rate),
        pre_feedforward_layernorm(make_norm(builder, "pre_feedforward_layernorm", c)),
        post_feedforward_layernorm(make_norm(builder, "post_feedforward_layernorm", c)),
        dropout_rate(rate),
        module(builder.module) {
    if (!encoder) return;
    cross_attn.emplace(builder.child("cross_attn", "T5GemmaCrossAttention"), c, options, false, encoder->hidden_size);
    pre_cross_attn_layernorm = make_norm(builder, "pre_cross_attn_layernorm", c);
    post_cross_attn_layernorm = make_norm(builder, "post_cross_attn_layernorm", c);
  }

  /// `encoder_hidden_states`: of a decoder's layer, and which of them it sees.
  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions, const Tensor& attention_mask,
                    const Tensor& encoder_hidden_states, const Tensor& encoder_attention_mask) const {
    const ModuleScope scope(hidden_in.context(), module);
    Tensor residual = hidden_in, weights;  // `_`
    Tensor hidden_states = pre_self_attn_layernorm(hidden_in);
    const auto take = [&](AttentionOutputs outputs) {
      hidden_states = std::move(outputs.output);
      weights = std::move(outputs.weights);
    };
    const auto add_to_residual = [&] {
      const Tensor dropped = dropout(hidden_states, dropout_rate);
      hidden_states = add(residual, dropped);
    };
    take(self_attn(hidden_states, positions, attention_mask));
    hidden_states = post_self_attn_layernorm(hidden_states);
    add_to_residual();
    if (cross_attn) {
      residual = hidden_states;
      hidden_states = pre_cross_attn_layernorm(hidden_states);
      take((*cross_attn)(hidden_states, encoder_hidden_states, encoder_attention_mask));
      hidden_states = post_cross_attn_layernorm(hidden_states);
      add_to_residual();
    }
    residual = hidden_states;
    hidden_states = pre_feedforward_layernorm(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = post_feedforward_layernorm(hidden_states);
    add_to_residual();
    return hidden_states;
  }

  T5GemmaAttention self_attn;
  Norm pre_self_attn_layernorm, post_self_attn_layernorm;
  T5GemmaMLP mlp;
  Norm pre_feedforward_layernorm, post_feedforward_layernorm;
  double dropout_rate;
  std::optional<T5GemmaAttention> cross_attn;
  Norm pre_cross_attn_layernorm, post_cross_attn_layernorm;
  ModuleId module;
};

/// T5GemmaEncoder, T5GemmaDecoder.
struct T5GemmaStack {
  T5GemmaStack() = default;
  T5GemmaStack(const Builder& builder, const TextConfig& c, const ModelOptions& options, double rate,
               const TextConfig* encoder = nullptr)
      : is_decoder(encoder != nullptr),
        embed_tokens(builder.child("embed_tokens", "Embedding"), c.vocab_size, c.hidden_size),
        norm(make_norm(builder, "norm", c)),
        blocks(builder),
        dropout_rate(rate),
        sliding_window(c.sliding_window),
        windows(c.layer_windows),
        masked(masked_by(options.attention)),
        checkpointing(options.checkpointing),
        module(builder.module) {
    if (checkpointing.mode == CheckpointMode::reentrant) checkpointing.mode = CheckpointMode::none;  // it is refused
    layers.reserve(windows.size());
    for (std::int32_t i = 0; i < c.num_hidden_layers; ++i) {
      layers.emplace_back(builder.child("layers", is_decoder ? "T5GemmaDecoderLayer" : "T5GemmaEncoderLayer", i), c,
                          options, rate, encoder);
      blocks.add_block(builder);
    }
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", "T5GemmaRotaryEmbedding"), c);
  }

  /// `source`: the mask of what the encoder reads.
  Tensor operator()(const Tensor& input_ids, const Tensor& encoder_hidden_states, const MaskArguments& source) const {
    Context& context = input_ids.context();
    ModuleCall call(context, module);
    const Tensor inputs_embeds = embed_tokens(
        input_ids, [&](Tensor& embedded) { require_input_grad(checkpointing, embedded, embed_tokens.module); });
    Tensor position_ids = empty(context, Op::arange, {input_ids.size(1)}, DType::int64);
    if (is_decoder) position_ids = empty(context, Op::add, {input_ids.size(1)}, DType::int64);  // past_seen_tokens
    position_ids = unsqueeze(position_ids, 0);
    MaskArguments own = source;
    if (is_decoder) own = {position_ids, {}};
    if (!own.attention_mask) own.attention_mask = default_mask(input_ids);
    Tensor full_attention, sliding_attention, encoder_attention_mask;
    if (is_decoder) {
      full_attention = create_causal_mask(inputs_embeds, own, masked);
      sliding_attention = create_causal_mask(inputs_embeds, own, masked, sliding_window);
      encoder_attention_mask = create_cross_mask(inputs_embeds, encoder_hidden_states, source, masked);
    } else {
      full_attention = create_bidirectional_mask(inputs_embeds, own, masked);
      sliding_attention = create_bidirectional_mask(inputs_embeds, own, masked, sliding_window);
    }
    Tensor hidden_states = mul_scalar(inputs_embeds);
    hidden_states = dropout(hidden_states, dropout_rate);
    PositionEmbeddings positions = rotary_emb(hidden_states, position_ids);
    positions.position_ids = position_ids;
    positions.rows = own.rows;
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers[i], positions, mask = windows[i] != 0 ? sliding_attention : full_attention,
              encoder_hidden_states, encoder_attention_mask](const Tensor& hidden) {
        return layer(hidden, positions, mask, encoder_hidden_states, encoder_attention_mask);
      };
    };
    const auto kind = [&](std::size_t i) { return int{windows[i] != 0}; };
    hidden_states = blocks.run(0, layers.size(), std::move(hidden_states), checkpointing, block,
                               {.nested = {positions.cos, positions.sin}, .positional = true, .kind = kind});
    hidden_states = norm(hidden_states);
    return call.result(dropout(hidden_states, dropout_rate));
  }

  /// make_default_2d_attention_mask
  static Tensor default_mask(const Tensor& token_ids) {
    Context& context = token_ids.context();
    const Tensor is_token = empty(context, Op::ne, token_ids.sizes(), DType::boolean);
    return empty(context, Op::to_copy, token_ids.sizes(), DType::int64);
  }

  bool is_decoder = false;
  Embedding embed_tokens;
  Norm norm;
  BlockStack blocks;
  std::vector<T5GemmaLayer> layers;
  LlamaRotaryEmbedding rotary_emb;
  double dropout_rate = 0;
  std::int64_t sliding_window = 0;
  std::vector<std::int64_t> windows;  ///< by layer
  MaskedBy masked = MaskedBy::eager;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

class T5GemmaForConditionalGeneration : public EncoderModel {
 public:
  T5GemmaForConditionalGeneration(Context& context, const T5GemmaConfig& c, const DataConfig& data,
                                  const ModelOptions& options)
      : EncoderModel(context, c, data, options), softcaps_logits_(c.decoder.softcaps_logits) {
    loss_type = LossType::masked_lm;
    const Builder model = root_.child("model", "T5GemmaModel");
    model_ = model.module;
    encoder_ = T5GemmaStack(model.child("encoder", "T5GemmaEncoder"), c.encoder, options, c.dropout_rate);
    decoder_ = T5GemmaStack(model.child("decoder", "T5GemmaDecoder"), c.decoder, options, c.dropout_rate, &c.encoder);
    decoder_.blocks.first_block = encoder_.layers.size();
    const Builder head = root_.child("lm_head", "T5GemmaLMHead");
    lm_head_ = head.module;
    out_proj_ = Linear(head.child("out_proj", "Linear"), c.hidden_size, c.vocab_size, false);
    if (c.tie_word_embeddings) tie_weight(out_proj_.weight, out_proj_.module, decoder_.embed_tokens.weight);
    is_reentrant_ = options.checkpointing.mode == CheckpointMode::reentrant;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (is_reentrant_)
      context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                               "found \"reentrant\", which is not supported yet with decoders that see an encoder's "
                               "states; expected \"non-reentrant\""};
    const Tensor decoder_input_ids = inputs.labels ? shift_right(inputs.labels) : inputs.input_ids;
    const MaskArguments source{{}, inputs.attention_mask, inputs.rows};
    Tensor encoder_states, decoder_states, logits;
    {
      ModuleCall call(context_, model_);
      encoder_states = encoder_(inputs.input_ids, {}, source);
      decoder_states = call.result(decoder_(decoder_input_ids, encoder_states, source));
    }
    {
      ModuleCall call(context_, lm_head_);
      logits = call.result(out_proj_(call.argument(decoder_states)));
    }
    if (softcaps_logits_) logits = softcap(std::move(logits));
    ModelOutputs outputs = outputs_of(std::move(logits), inputs);
    outputs.others.push_back(std::move(decoder_states));  // decoder_hidden_states, asked for or not
    outputs.others.push_back(std::move(encoder_states));
    return outputs;
  }

 private:
  Tensor shift_right(const Tensor& labels) const {
    const Shape tokens = labels.sizes();
    Tensor shifted_input_ids = empty(context_, Op::zeros, tokens, DType::int64);
    { const Tensor kept = empty(context_, Op::clone, {tokens[0], tokens[1] - 1}, DType::int64); }
    const Tensor is_ignored = empty(context_, Op::eq, tokens, DType::boolean);
    return shifted_input_ids;
  }

  bool softcaps_logits_, is_reentrant_ = false;
  ModuleId model_ = 0, lm_head_ = 0;
  T5GemmaStack encoder_, decoder_;
  Linear out_proj_;
};

}  // namespace

std::unique_ptr<Model> build_t5gemma(Context& context, const T5GemmaConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<T5GemmaForConditionalGeneration>(context, config, data, options);
}

}  // namespace oometer
