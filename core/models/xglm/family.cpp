#include <memory>
#include <utility>

#include "config/reader.h"
#include "models/bart/bart.h"
#include "models/kit/layerdrop.h"
#include "models/kit/positioned.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/xglm/modeling_xglm.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"XGLMForCausalLM", "XGLMModel", "XGLMDecoderLayer", "XGLMAttention", "",
                                 "LayerNorm",       ""};
constexpr ModelClass kClasses[] = {{"xglm", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct XglmConfig : TextConfig {
  double activation_dropout = 0;

  bool operator==(const XglmConfig&) const = default;
};

XglmConfig read(ConfigReader& reader) {
  XglmConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 256'008);
  c.hidden_size = read_mapped(reader, "d_model", "hidden_size", 1024);
  c.num_hidden_layers = read_mapped(reader, "num_layers", "num_hidden_layers", 24, layer_count);
  c.num_attention_heads = c.num_key_value_heads = read_mapped(reader, "attention_heads", "num_attention_heads", 16);
  c.intermediate_size = reader.integer("ffn_dim", 4096);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 2048);
  c.hidden_act = reader.activation("activation_function", Activation::gelu);
  c.layer_dropout = reader.number("dropout", 0.1, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0.1, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  read_layerdrop(reader);
  reader.refuse("add_cross_attention", "attention to an encoder is not supported yet: set it to false");
  reader.ignore({"scale_embedding", "init_std", "decoder_start_token_id", "pad_token_id"});
  share_hidden_size(reader, c);
  if (c.hidden_size % 2 != 0) reader.fail_found("d_model", "not-modelled", "an odd number is not supported yet");
  return c;
}

struct XglmAttention {
  XglmAttention(const Builder& builder, const XglmConfig& c)
      : head_dim(c.head_dim), dropout(c.attention_dropout), module(builder.module) {
    for (auto [projection, name] : {std::pair{&k_proj, "k_proj"}, std::pair{&v_proj, "v_proj"},
                                    std::pair{&q_proj, "q_proj"}, std::pair{&out_proj, "out_proj"}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
  }

  AttentionOutputs operator()(const Tensor& argument, const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall self(context, module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), hidden = hidden_states.size(2),
                       heads = hidden / head_dim;
    AttentionInputs states;
    {
      const Tensor query = q_proj(hidden_states);
      states.query = mul_scalar(query);
    }
    states.key = k_proj(hidden_states);
    states.value = v_proj(hidden_states);
    for (Tensor* x : {&states.key, &states.value, &states.query}) *x = heads_of(*x, head_dim);
    for (Tensor* x : {&states.query, &states.key, &states.value}) *x = reshape(*x, {batch * heads, length, head_dim});
    const Shape folded{batch * heads, length, length}, by_head{batch, heads, length, length};
    Tensor attn_weights;
    {
      const Tensor query = autocast_lower(states.query), key = autocast_lower(states.key);
      attn_weights = bmm(query, transpose(key, 1, 2));
    }
    if (attention_mask) {
      attn_weights = add(view(attn_weights, by_head), attention_mask);
      {
        const Tensor lowest = empty(context, Op::full_like, {}, DType::float32);
        attn_weights = maximum(Op::maximum, attn_weights, lowest);
      }
      attn_weights = view(attn_weights, folded);
    }
    if (attn_weights.dtype() == DType::float16) {
      const Tensor upcast = softmax(attn_weights, DType::float32);
      attn_weights = to(upcast, DType::float16);
    } else {
      attn_weights = softmax(attn_weights, context.autocast.enabled ? DType::float32 : attn_weights.dtype());
    }
    const Tensor attn_weights_reshaped = view(attn_weights, by_head);
    attn_weights = view(attn_weights_reshaped, folded);
    const Tensor attn_probs = oometer::dropout(attn_weights, dropout);
    Tensor attn_output;
    {
      const Tensor probs = autocast_lower(attn_probs), value = autocast_lower(states.value);
      attn_output = bmm(probs, value);
    }
    attn_output = transpose(view(attn_output, {batch, heads, length, head_dim}), 1, 2);
    attn_output = reshape(attn_output, {batch, length, hidden});
    return {self.result(out_proj(attn_output)), attn_weights_reshaped};
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim;
  double dropout;
  ModuleId module;
};

class XglmDecoderLayer : public DecoderLayer {
 public:
  XglmDecoderLayer(const Builder& builder, const XglmConfig& c)
      : self_attn_(builder.child("self_attn", kNames.attention), c),
        dropout_(c.layer_dropout),
        activation_dropout_(c.activation_dropout),
        activation_fn_(c.hidden_act),
        module_(builder.module) {
    const auto norm = [&](const char* name) {
      return Norm(builder.child(name, kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true);
    };
    self_attn_layer_norm_ = norm("self_attn_layer_norm");
    fc1_ = Linear(builder.child("fc1", "Linear"), c.hidden_size, c.intermediate_size, true);
    fc2_ = Linear(builder.child("fc2", "Linear"), c.intermediate_size, c.hidden_size, true);
    final_layer_norm_ = norm("final_layer_norm");
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings&, const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor hidden_states = self_attn_layer_norm_(hidden_in);
    AttentionOutputs attention = self_attn_(hidden_states, attention_mask);  // the weights stay in `_`
    hidden_states = std::move(attention.output);
    hidden_states = dropout(hidden_states, dropout_);
    hidden_states = add(hidden_in, hidden_states);
    const Tensor residual = hidden_states;
    hidden_states = final_layer_norm_(hidden_states);
    {
      const Tensor inner = fc1_(hidden_states);
      hidden_states = activate(activation_fn_, inner);
    }
    hidden_states = dropout(hidden_states, activation_dropout_);
    hidden_states = fc2_(hidden_states);
    hidden_states = dropout(hidden_states, dropout_);
    return add(residual, hidden_states);
  }

 private:
  XglmAttention self_attn_;
  Norm self_attn_layer_norm_, final_layer_norm_;
  Linear fc1_, fc2_;
  double dropout_, activation_dropout_;
  Activation activation_fn_;
  ModuleId module_;
};

class XglmForCausalLM : public PositionedLM {
 public:
  XglmForCausalLM(Context& context, const XglmConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options), dropout_(c.layer_dropout) {
    const Builder model = root_.child("model", kNames.model);
    begin_decoder(model, c, options);
    language_model_.embed_tokens =
        Embedding(model.child("embed_tokens", "XGLMScaledWordEmbedding"), c.vocab_size, c.hidden_size);
    const Builder positions = model.child("embed_positions", "XGLMSinusoidalPositionalEmbedding");
    embed_positions_ = positions.module;
    sines_ = make_sines(positions, c.max_position_embeddings + kOffset, c.hidden_size, options.dtype);
    make_layers(model, "layers", c, [&](const Builder& layer) { return std::make_unique<XglmDecoderLayer>(layer, c); });
    language_model_.norm = final_norm(torch_layer_norm, true)(model.child("layer_norm", "LayerNorm"), c.hidden_size);
    make_head(root_, c, c.tie_word_embeddings);
  }

  /// XGLMScaledWordEmbedding.forward: it multiplies whatever the scale is.
  Tensor embed(const Tensor& input_ids) const override {
    const Embedding& embed_tokens = language_model_.embed_tokens;
    return embed_tokens(input_ids, [&](Tensor& embeddings) {
      embeddings = mul_scalar(embeddings);
      require_input_grad(language_model_.checkpointing, embeddings, embed_tokens.module);
    });
  }

  bool activate_neftune() override { return false; }

 private:
  static constexpr std::int64_t kOffset = 2;  ///< XGLMSinusoidalPositionalEmbedding.offset

  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    MaskArguments attended = given;
    attended.position_ids = {};
    const Tensor attention_mask = causal_mask(inputs_embeds, attended);
    const std::int64_t length = inputs_embeds.size(1);
    Tensor position_ids = given.position_ids;
    if (!position_ids) position_ids = unsqueeze(empty(context_, Op::arange, {length}, DType::int64), 0);
    Tensor hidden_states;
    {
      Tensor embedded;
      {
        ModuleCall call(context_, embed_positions_);
        const NoGrad no_grad(context_);
        const Tensor offset = add_scalar(position_ids);
        const Tensor rows = index_select(sines_, 0, view(offset, {offset.numel()}));
        embedded = call.result(view(rows, {offset.size(0), length, rows.size(1)}));
      }
      hidden_states = add(inputs_embeds, embedded);
    }
    hidden_states = dropout(hidden_states, dropout_);
    hidden_states = run_layers(std::move(hidden_states), {}, attention_mask);
    return language_model_.norm(hidden_states);
  }

  Tensor sines_;
  ModuleId embed_positions_ = 0;
  double dropout_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  t.max_sequence_length = t.text.max_position_embeddings;
  for (const Feature feature : {Feature::inference, Feature::packing})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "XGLM has attention of its own alone: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family xglm = positioned_family<XglmConfig, read, XglmForCausalLM>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
