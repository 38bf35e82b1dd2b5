#include <tuple>
#include <utility>

#include "config/reader.h"
#include "models/kit/alibi.h"
#include "models/kit/positioned.h"
#include "nn/activation.h"
#include "nn/flash_attention.h"
#include "nn/kv_cache.h"
#include "ops/cub.h"
#include "ops/list_index.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/falcon/modeling_falcon.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"FalconForCausalLM", "FalconModel", "FalconDecoderLayer",   "FalconAttention",
                                 "FalconMLP",         "LayerNorm",   "FalconRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"falcon", kNames.causal_lm},
                                   {"falcon", "FalconForSequenceClassification"},
                                   {"falcon", "FalconForTokenClassification"},
                                   {"falcon", "FalconForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct FalconConfig : TextConfig {
  bool new_decoder_architecture = false;
  bool multi_query = true;
  bool alibi = false;
  bool bias = false;
  std::int64_t num_ln_in_parallel_attn = 1;

  bool operator==(const FalconConfig&) const = default;
};

FalconConfig read(ConfigReader& reader) {
  FalconConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 65024);
  c.hidden_size = read_mapped(reader, "n_embed", "hidden_size", 4544);
  c.num_hidden_layers = read_mapped(reader, "n_layer", "num_hidden_layers", 32, layer_count);
  c.num_attention_heads = read_mapped(reader, "n_head", "num_attention_heads", 71);
  c.num_key_value_heads = read_mapped(reader, "n_head_kv", "num_kv_heads", c.num_attention_heads);
  c.intermediate_size = reader.optional_integer("ffn_hidden_size").value_or(4 * c.hidden_size);
  c.hidden_act = reader.activation("activation", Activation::gelu);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 2048);
  c.layer_dropout = reader.number("hidden_dropout", 0, 0, 1);
  c.classifier.dropout = 0;
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  c.alibi = reader.boolean("alibi", false);
  c.bias = reader.boolean("bias", false);
  c.new_decoder_architecture = reader.boolean("new_decoder_architecture", false);
  c.multi_query = reader.boolean("multi_query", true);
  c.is_parallel = reader.boolean("parallel_attn", true);
  c.num_ln_in_parallel_attn =
      reader.optional_integer("num_ln_in_parallel_attn", {1, 2}).value_or(c.new_decoder_architecture ? 2 : 1);
  reader.ignore({"layer_norm_epsilon", "apply_residual_connection_post_layernorm"});
  share_hidden_size(reader, c);
  if (!c.new_decoder_architecture) c.num_key_value_heads = c.multi_query ? 1 : c.num_attention_heads;
  check_llama_heads(reader, c);
  // FalconDecoderLayer.forward asks for norms that its __init__ has not made.
  if (c.new_decoder_architecture && !c.is_parallel)
    reader.fail_found("parallel_attn", "inconsistent", "expected true with new_decoder_architecture");
  if (!c.new_decoder_architecture && c.is_parallel && c.num_ln_in_parallel_attn != 1)
    reader.fail_found("num_ln_in_parallel_attn", "inconsistent", "expected 1 without new_decoder_architecture");
  return c;
}

/// FalconLinear: `input @ self.weight.T`, a view that autocast casts anew in each call, and the bias after it.
struct FalconLinear {
  FalconLinear(const Builder& builder, std::int64_t in_features, std::int64_t out_features, bool bias)
      : linear(builder, in_features, out_features, bias) {}

  Tensor operator()(const Tensor& input) const {
    Context& context = input.context();
    if (linear.wrapper && linear.bias)
      context.refusal = Error{"not-modelled", "/training",
                              "found an adapter on a projection with a bias, which is not supported yet with "
                              "FalconForCausalLM: leave it out"};
    if (linear.wrapper) return linear(input);  // bitsandbytes leaves this class as it is
    ModuleCall call(context, linear.module);
    const Tensor hidden_states = matmul(call.argument(input), transpose(linear.weight, 0, 1));
    return call.result(linear.bias ? add(hidden_states, linear.bias) : hidden_states);
  }

  Linear linear;
};

struct FalconAttention {
  FalconAttention(const Builder& builder, const FalconConfig& c, const ModelOptions& options)
      : query_key_value(builder.child("query_key_value", "FalconLinear"), c.hidden_size,
                        (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim, c.bias),
        dense(builder.child("dense", "FalconLinear"), c.hidden_size, c.hidden_size, c.bias),
        num_heads(c.num_attention_heads),
        num_kv_heads(c.num_key_value_heads),
        head_dim(c.head_dim),
        new_decoder_architecture(c.new_decoder_architecture),
        multi_query(c.multi_query),
        alibi(c.alibi),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    attention_dropout = builder.child("attention_dropout", "Dropout").module;
    if (!alibi) call.dropout = 0;
  }

  /// _split_heads: [b, s, heads, d].
  AttentionInputs split_heads(const Tensor& fused_qkv) const {
    const std::int64_t batch = fused_qkv.size(0), length = fused_qkv.size(1);
    if (new_decoder_architecture) {
      const std::int64_t group = num_heads / num_kv_heads;
      const Tensor qkv = view(fused_qkv, {batch, length, num_kv_heads, group + 2, head_dim});
      const Tensor query = slice(qkv, 3, 0, group);
      Tensor key = index_with_list(qkv, 3);
      Tensor value = index_with_list(qkv, 3);
      key = expand(key, query.sizes());
      value = expand(value, query.sizes());
      AttentionInputs flat;
      const auto flatten = [&](const Tensor& x) { return reshape(x, {batch, length, num_heads, head_dim}); };
      flat.query = flatten(query);
      flat.key = flatten(key);
      flat.value = flatten(value);
      return flat;
    }
    if (!multi_query) {
      const Tensor qkv = view(fused_qkv, {batch, length, num_heads, 3, head_dim});
      return {select(qkv, 3, 0), select(qkv, 3, 1), select(qkv, 3, 2)};
    }
    const Tensor qkv = view(fused_qkv, {batch, length, num_heads + 2, head_dim});
    AttentionInputs split{slice(qkv, 2, 0, num_heads), {}, {}};
    split.key = index_with_list(qkv, 2);
    split.value = index_with_list(qkv, 2);
    return split;
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    Context& context = hidden_states.context();
    ModuleCall self(context, module);
    const Tensor fused_qkv = query_key_value(hidden_states);
    AttentionInputs states = split_heads(fused_qkv);
    const std::int64_t batch = states.query.size(0), query_length = states.query.size(1);
    for (Tensor* layer : {&states.query, &states.key, &states.value}) *layer = transpose(*layer, 1, 2);
    if (!alibi) std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    if (KvCache* const layer_past = context.past_key_values) {
      KvCache::States cached = layer_past->update(layer_idx, states.key, states.value);
      states.key = std::move(cached.keys);
      states.value = std::move(cached.values);
    }
    AttentionOutputs attention;
    Tensor matmul_result, attention_scores, attention_logits;
    Tensor& attn_output = attention.output;
    if (is_flash_attention(call.kind)) {
      attn_output = flash_attention_forward(call, states.query, states.key, states.value, attention_mask,
                                            {positions.position_ids, positions.rows, {}});
    } else if (call.kind != AttentionKind::eager) {
      // Fewer heads of keys are no enable_gqa, but spread as any operand is: later kernels take them as they are.
      const AttentionKernel kernel =
          choose_kernel(call, states.query, states.key, states.value, attention_mask, /*enable_gqa=*/false);
      const bool spreads = states.key.size(1) != num_heads && kernel != AttentionKernel::math;
      const AttentionOptions options{false, spreads, context.training ? call.dropout : 0};
      attn_output =
          scaled_dot_product_attention(kernel, states.query, states.key, states.value, attention_mask, options);
      attn_output = transpose(attn_output, 1, 2);
    } else if (!alibi) {
      attention_scores = matmul(states.query, transpose(states.key, 2, 3));
      attention_scores = mul_scalar_(std::move(attention_scores));
      {
        const Tensor masked = add(attention_scores, attention_mask);
        attention_scores = softmax(masked, hidden_states.dtype());
      }
      attn_output = matmul(attention_scores, states.value);
      attn_output = transpose(attn_output, 1, 2);
    } else {
      matmul_result = matmul(states.query, transpose(states.key, 2, 3));
      attention_scores = to(matmul_result, DType::float32);
      attention_logits = add(attention_scores, positions.alibi);
      attention_logits = mul_scalar_(std::move(attention_logits));
      {
        const Tensor masked = add(attention_logits, attention_mask);
        attention.weights = softmax(masked, hidden_states.dtype());
      }
      {
        ModuleCall drop(context, attention_dropout);
        attention.weights = drop.result(dropout(attention.weights, call.dropout));
      }
      attn_output = matmul(attention.weights, states.value);
      attn_output = transpose(attn_output, 1, 2);
    }
    attn_output = reshape(attn_output, {batch, query_length, num_heads * head_dim});
    attn_output = self.result(dense(attn_output));
    if (!alibi) attention.weights = std::move(attention_scores);
    return attention;
  }

  FalconLinear query_key_value, dense;
  ModuleId attention_dropout = 0;
  std::int64_t num_heads, num_kv_heads, head_dim;
  bool new_decoder_architecture, multi_query, alibi;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

struct FalconMLP {
  FalconMLP(const Builder& builder, const FalconConfig& c)
      : dense_h_to_4h(builder.child("dense_h_to_4h", "FalconLinear"), c.hidden_size, c.intermediate_size, c.bias),
        dense_4h_to_h(builder.child("dense_4h_to_h", "FalconLinear"), c.intermediate_size, c.hidden_size, c.bias),
        act(c.hidden_act),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor x = dense_h_to_4h(argument);
    x = activate(act, x);
    x = dense_4h_to_h(x);
    return call.result(x);
  }

  FalconLinear dense_h_to_4h, dense_4h_to_h;
  Activation act;
  ModuleId module;
};

/// It returns the weights, too, which the model's loop calls `outputs` until the next block has returned.
class FalconDecoderLayer : public DecoderLayer {
 public:
  FalconDecoderLayer(const Builder& builder, const FalconConfig& c, const ModelOptions& options, Tensor& outputs)
      : self_attention_(builder.child("self_attention", kNames.attention), c, options),
        mlp_(builder.child("mlp", kNames.mlp), c),
        is_parallel_(c.is_parallel),
        attention_dropout_(c.attention_dropout),
        hidden_dropout_(c.layer_dropout),
        outputs_(outputs),
        module_(builder.module) {
    const auto norm = [&](const char* name) {
      return Norm(builder.child(name, "LayerNorm"), torch_layer_norm, {c.hidden_size}, true);
    };
    if (!c.is_parallel) {
      post_attention_layernorm_ = norm("post_attention_layernorm");
      input_layernorm_ = norm("input_layernorm");
    } else if (c.num_ln_in_parallel_attn == 2) {
      input_layernorm_ = norm("ln_attn");
      ln_mlp_ = norm("ln_mlp");
    } else {
      input_layernorm_ = norm("input_layernorm");
    }
  }

  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    Context& context = hidden_states.context();
    const ModuleScope scope(context, module_);
    Tensor residual = hidden_states;
    const Tensor attention_layernorm_out = input_layernorm_(hidden_states);
    Tensor mlp_layernorm_out = ln_mlp_ ? ln_mlp_(hidden_states) : attention_layernorm_out;
    AttentionOutputs attention = self_attention_(attention_layernorm_out, positions, attention_mask);
    if (!is_parallel_) {
      residual = dropout_add(attention.output, residual, attention_dropout_);
      mlp_layernorm_out = post_attention_layernorm_(residual);
    }
    Tensor mlp_output = mlp_(mlp_layernorm_out);
    if (is_parallel_) mlp_output = add_in_place(mlp_output, attention.output);
    Tensor output = dropout_add(mlp_output, residual, hidden_dropout_);
    if (!context.recomputing) outputs_ = std::move(attention.weights);
    return output;
  }

 private:
  FalconAttention self_attention_;
  FalconMLP mlp_;
  Norm post_attention_layernorm_, input_layernorm_, ln_mlp_;
  bool is_parallel_;
  double attention_dropout_, hidden_dropout_;
  Tensor& outputs_;
  ModuleId module_;
};

class FalconForCausalLM : public PositionedLM {
 public:
  FalconForCausalLM(Context& context, const FalconConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options),
        num_heads_(c.num_attention_heads),
        use_alibi_(c.alibi),
        is_eager_(options.attention == AttentionKind::eager) {
    const Builder transformer = root_.child("transformer", kNames.model);
    begin_decoder(transformer, c, options);
    language_model_.embed_tokens =
        Embedding(transformer.child("word_embeddings", "Embedding"), c.vocab_size, c.hidden_size);
    make_layers(transformer, "h", c, [&](const Builder& layer) {
      return std::make_unique<FalconDecoderLayer>(layer, c, options, outputs_);
    });
    language_model_.norm = final_norm(torch_layer_norm, true)(transformer.child("ln_f", "LayerNorm"), c.hidden_size);
    language_model_.rotary_emb = LlamaRotaryEmbedding(transformer.child("rotary_emb", kNames.rotary_embedding), c);
    make_head(root_, c);
  }

 private:
  /// Of each head and key, [b, heads, 1, keys]. `mask`: forward's name.
  Tensor build_alibi(const Tensor& mask, DType dtype) const {
    const std::int64_t batch = mask.size(0), keys = mask.size(1);
    const AlibiSlopes slopes(context_, num_heads_);
    Tensor arange_tensor;
    {
      const Tensor places = empty(context_, Op::cumsum, {batch, keys}, DType::int64);
      if (batch == 1) const Workspace scan(context_, Op::cumsum, cub_scan_bytes(keys));
      arange_tensor = empty(context_, Op::sub, {batch, keys}, DType::int64);
    }
    arange_tensor = empty(context_, Op::mul, {batch, keys}, DType::int64);
    Tensor alibi;
    {
      const Tensor halves = to(slopes.slopes, DType::bfloat16);
      alibi = empty(context_, Op::mul, {batch, num_heads_, 1, keys}, DType::bfloat16);
    }
    return to(alibi, dtype);
  }

  /// The mask with the bias in it, [b, heads, queries, keys].
  Tensor add_alibi(Tensor causal_mask, const Tensor& alibi) const {
    const DType dtype = alibi.dtype();
    Shape sizes = causal_mask.sizes();
    if (causal_mask.dtype() == DType::boolean) {
      const Tensor zero = empty(context_, Op::full_like, {}, dtype);
      const Tensor minimum = empty(context_, Op::to_copy, {}, dtype);
      causal_mask = empty(context_, Op::where, sizes, dtype);
    }
    const Tensor scaled = div_scalar(alibi);
    const Tensor masked = empty(context_, Op::lt, sizes, DType::boolean);
    sizes[1] = num_heads_;
    return empty(context_, Op::masked_fill, sizes, dtype);
  }

  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    // Its backward would make zeros for the weights that a block returns.
    if (language_model_.checkpointing.mode == CheckpointMode::reentrant && is_eager_)
      context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                               "found \"reentrant\", which is not supported yet with FalconForCausalLM and eager "
                               "attention; expected \"non-reentrant\""};
    Tensor mask, alibi;
    if (use_alibi_) {
      const NoGrad no_grad(context_);
      const KvCache* const past = context_.past_key_values;
      mask = given.attention_mask
                 ? given.attention_mask
                 : empty(context_, Op::ones_like,
                         {inputs_embeds.size(0), inputs_embeds.size(1) + (past ? past->length() : 0)}, DType::int64);
      alibi = build_alibi(mask, inputs_embeds.dtype());
    }
    const Tensor position_ids =
        given.position_ids ? given.position_ids : language_model_.positions(context_, inputs_embeds.size(1));
    MaskArguments arguments = given;
    arguments.position_ids = {};
    arguments.is_always_made = true;
    Tensor attention_mask = causal_mask(inputs_embeds, arguments);
    if (use_alibi_ && attention_mask) {
      const NoGrad no_grad(context_);
      attention_mask = add_alibi(std::move(attention_mask), alibi);
    }
    PositionEmbeddings positions = language_model_.rotary_emb(inputs_embeds, position_ids);
    positions.position_ids = position_ids;
    positions.rows = given.rows;
    positions.alibi = alibi;
    Tensor hidden_states = run_layers(inputs_embeds, positions, attention_mask);
    hidden_states = language_model_.norm(hidden_states);
    outputs_.reset();
    return hidden_states;
  }

  std::int64_t num_heads_;
  bool use_alibi_, is_eager_;
  mutable Tensor outputs_;
};

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<FalconConfig>();
  ModelTraits t = text_traits(c);
  t.lora_targets = {"query_key_value"};
  t.ia3_targets = {"query_key_value", "dense_4h_to_h"};
  t.ia3_feedforward = {"dense_4h_to_h"};
  t.ln_tuning_targets = {"input_layernorm", "post_attention_layernorm", "ln_f"};
  t.language = "transformer";
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  if (c.alibi)
    t.refuse(Feature::flash_attention_2, "inconsistent", "flash attention takes no ALiBi: expected eager or sdpa");
  t.refuse(Feature::packing, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family falcon = positioned_family<FalconConfig, read, FalconForCausalLM>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
