#include <algorithm>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/alibi.h"
#include "models/kit/positioned.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_attention.h"
#include "nn/kv_cache.h"
#include "ops/bloom.h"
#include "ops/cub.h"
#include "ops/ops.h"

/// transformers 5.23, models/bloom/modeling_bloom.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "BloomForCausalLM", "BloomModel", "BloomBlock", "BloomAttention", "BloomMLP", "LayerNorm", ""};
constexpr ModelClass kClasses[] = {{"bloom", kNames.causal_lm},
                                   {"bloom", "BloomForSequenceClassification"},
                                   {"bloom", "BloomForQuestionAnswering"},
                                   {"bloom", "BloomForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 250880);
  c.hidden_size = read_mapped(reader, "hidden_size", "n_embed", 64);
  c.num_hidden_layers = read_mapped(reader, "n_layer", "num_hidden_layers", 2, layer_count);
  c.num_attention_heads = c.num_key_value_heads = read_mapped(reader, "n_head", "num_attention_heads", 8);
  c.intermediate_size = 4 * c.hidden_size;
  c.layer_dropout = reader.number("hidden_dropout", 0, 0, 1);
  c.classifier.dropout = 0;
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  reader.refuse("apply_residual_connection_post_layernorm", "it is not supported yet");
  reader.refuse("slow_but_exact", "it is not supported yet");
  reader.ignore({"pretraining_tp", "layer_norm_epsilon", "attention_softmax_in_fp32", "bias_dropout_fusion",
                 "masked_softmax_fusion", "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "n_inner",
                 "unk_token_id"});
  c.head_dim = std::max<std::int64_t>(1, c.hidden_size / c.num_attention_heads);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found(reader.has("n_embed") ? "n_embed" : "hidden_size", "inconsistent",
                      "expected a multiple of the number of heads (" + std::to_string(c.num_attention_heads) + ")");
  return c;
}

struct BloomAttention {
  BloomAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : query_key_value(builder.child("query_key_value", "Linear"), c.hidden_size, 3 * c.hidden_size, true),
        dense(builder.child("dense", "Linear"), c.hidden_size, c.hidden_size, true),
        num_heads(c.num_attention_heads),
        head_dim(c.head_dim),
        hidden_dropout(c.layer_dropout),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& residual, const Tensor& alibi,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), all = batch * num_heads;
    const Tensor fused_qkv = query_key_value(hidden_states);
    AttentionInputs states;
    {
      const Tensor of_heads = view(fused_qkv, {batch, length, num_heads, 3, head_dim});
      states.query = transpose(select(of_heads, 3, 0), 1, 2);
      states.key = transpose(select(of_heads, 3, 1), 1, 2);
      states.value = transpose(select(of_heads, 3, 2), 1, 2);
    }
    if (KvCache* const layer_past = hidden_states.context().past_key_values) {
      const KvCache::States updated = layer_past->update(layer_idx, states.key, states.value);
      states.key = updated.keys;
      states.value = updated.values;
    }
    const std::int64_t keys = states.key.size(2);
    states.query = reshape(states.query, {all, length, head_dim});
    for (Tensor* layer : {&states.key, &states.value}) *layer = reshape(*layer, {all, keys, head_dim});
    const Tensor attention_scores = baddbmm(alibi, states.query, transpose(states.key, 1, 2));
    Tensor attn_weights = view(attention_scores, {batch, num_heads, length, keys});
    if (attention_mask) attn_weights = add(attn_weights, attention_mask);
    AttentionOutputs outputs;
    Tensor& attention_probs = outputs.weights;
    attention_probs = softmax(attn_weights, DType::float32);
    attention_probs = to(attention_probs, states.query.dtype());
    attention_probs = dropout(attention_probs, call.dropout);
    Tensor context_layer;
    {
      const Tensor value = autocast_lower(states.value);
      const Tensor probs = autocast_lower(view(attention_probs, {all, length, keys}));
      context_layer = bmm(probs, value);
    }
    context_layer = reshape(transpose(view(context_layer, {batch, num_heads, length, head_dim}), 1, 2),
                            {batch, length, num_heads * head_dim});
    outputs.output = dense(context_layer);
    outputs.output = self.result(dropout_add(outputs.output, residual, hidden_dropout));
    return outputs;
  }

  Linear query_key_value, dense;
  std::int64_t num_heads, head_dim;
  double hidden_dropout;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

struct BloomMLP {
  BloomMLP(const Builder& builder, const TextConfig& c)
      : dense_h_to_4h(builder.child("dense_h_to_4h", "Linear"), c.hidden_size, 4 * c.hidden_size, true),
        gelu_impl(builder.child("gelu_impl", "BloomGelu").module),
        dense_4h_to_h(builder.child("dense_4h_to_h", "Linear"), 4 * c.hidden_size, c.hidden_size, true),
        hidden_dropout(c.layer_dropout),
        module(builder.module) {}

  Tensor operator()(const Tensor& x, const Tensor& residual) const {
    ModuleCall call(x.context(), module);
    Tensor hidden_states = dense_h_to_4h(x);
    {
      ModuleCall gelu(x.context(), gelu_impl);
      hidden_states = gelu.result(bloom_gelu(hidden_states));
    }
    const Tensor intermediate_output = dense_4h_to_h(hidden_states);
    return call.result(dropout_add(intermediate_output, residual, hidden_dropout));
  }

  Linear dense_h_to_4h;
  ModuleId gelu_impl;
  Linear dense_4h_to_h;
  double hidden_dropout;
  ModuleId module;
};

/// It returns the weights, too, which the model's loop calls `outputs` until the next block has returned.
class BloomBlock : public DecoderLayer {
 public:
  BloomBlock(const Builder& builder, const TextConfig& c, const ModelOptions& options, Tensor& outputs)
      : input_layernorm_(builder.child("input_layernorm", "LayerNorm"), torch_layer_norm, {c.hidden_size}, true),
        self_attention_(builder.child("self_attention", kNames.attention), c, options),
        post_attention_layernorm_(builder.child("post_attention_layernorm", "LayerNorm"), torch_layer_norm,
                                  {c.hidden_size}, true),
        mlp_(builder.child("mlp", kNames.mlp), c),
        outputs_(outputs),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    Context& context = hidden_states.context();
    const ModuleScope scope(context, module_);
    Tensor layernorm_output = input_layernorm_(hidden_states);
    AttentionOutputs attention = self_attention_(layernorm_output, hidden_states, positions.alibi, attention_mask);
    layernorm_output = post_attention_layernorm_(attention.output);
    Tensor output = mlp_(layernorm_output, attention.output);
    if (!context.recomputing) outputs_ = std::move(attention.weights);
    return output;
  }

 private:
  Norm input_layernorm_;
  BloomAttention self_attention_;
  Norm post_attention_layernorm_;
  BloomMLP mlp_;
  Tensor& outputs_;
  ModuleId module_;
};

class BloomForCausalLM : public PositionedLM {
 public:
  BloomForCausalLM(Context& context, const TextConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options), heads_(c.num_attention_heads) {
    takes_position_ids = false;
    const Builder transformer = root_.child("transformer", kNames.model);
    begin_decoder(transformer, c, options);
    language_model_.embed_tokens =
        Embedding(transformer.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size);
    const auto norm = [&](const char* name) {
      return Norm(transformer.child(name, "LayerNorm"), torch_layer_norm, {c.hidden_size}, true);
    };
    word_embeddings_layernorm_ = norm("word_embeddings_layernorm");
    make_layers(transformer, "h", c,
                [&](const Builder& layer) { return std::make_unique<BloomBlock>(layer, c, options, outputs_); });
    language_model_.norm = norm("ln_f");
    make_head(root_, c);
  }

 private:
  /// Of each head and key, [b * heads, 1, keys]. Without a mask forward has made the slopes itself.
  Tensor build_alibi(const Tensor& attention_mask, const Shape& tokens, DType dtype) const {
    const NoGrad no_grad(context_);
    if (!attention_mask) {
      const KvCache* const cache = context_.past_key_values;
      const std::int64_t kv_length = cache ? cache->mask_length(tokens[1], 0) : tokens[1];
      Tensor alibi;
      {
        const Tensor keys = empty(context_, Op::arange, {kv_length}, DType::int64);
        alibi = empty(context_, Op::mul, {heads_, 1, kv_length}, DType::float32);
      }
      const Tensor repeated = empty(context_, Op::repeat, {tokens[0] * heads_, 1, kv_length}, DType::float32);
      return to(repeated, dtype);
    }
    const Tensor slopes = AlibiSlopes(context_, heads_).slopes;
    Tensor arange_tensor = empty(context_, Op::cumsum, tokens, DType::int64);
    if (tokens[0] == 1) const Workspace scan(context_, Op::cumsum, cub_scan_bytes(tokens[1]));
    arange_tensor = empty(context_, Op::sub, tokens, DType::int64);
    arange_tensor = empty(context_, Op::mul, tokens, DType::int64);
    const Tensor alibi = empty(context_, Op::mul, {tokens[0] * heads_, 1, tokens[1]}, DType::float32);
    return to(alibi, dtype);
  }

  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    // Its backward would make zeros for the weights that a block returns.
    if (language_model_.checkpointing.mode == CheckpointMode::reentrant)
      context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                               "found \"reentrant\", which is not supported yet with BloomForCausalLM; expected "
                               "\"non-reentrant\""};
    Tensor hidden_states = word_embeddings_layernorm_(inputs_embeds);
    PositionEmbeddings positions;
    const Shape tokens{inputs_embeds.size(0), inputs_embeds.size(1)};
    const Tensor slopes = given.attention_mask ? Tensor() : AlibiSlopes(context_, heads_).slopes;
    positions.alibi = build_alibi(given.attention_mask, tokens, hidden_states.dtype());
    MaskArguments without_positions = given;
    without_positions.position_ids = {};
    const Tensor mask = causal_mask(inputs_embeds, without_positions);
    hidden_states = run_layers(std::move(hidden_states), positions, mask);
    hidden_states = language_model_.norm(hidden_states);
    outputs_.reset();
    return hidden_states;
  }

  Norm word_embeddings_layernorm_;
  std::int64_t heads_;
  mutable Tensor outputs_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  t.lora_targets = {"query_key_value"};
  t.ia3_targets = {"query_key_value", "mlp.dense_4h_to_h"};
  t.ia3_feedforward = {"mlp.dense_4h_to_h"};
  t.ln_tuning_targets = {"input_layernorm", "post_attention_layernorm", "ln_f"};
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.language = "transformer";
  t.refuse(Feature::sdpa, "inconsistent", "BLOOM has attention of its own, not SDPA: expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent", "transformers has no flash attention for BLOOM: expected eager");
  refuse_generate_options(t);
  t.refuse(Feature::packing, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family bloom = positioned_family<TextConfig, read, BloomForCausalLM>(
    kClasses, kBlocks, traits, without_dropout<TextConfig, &TextConfig::attention_dropout>);
}  // namespace family

}  // namespace oometer
