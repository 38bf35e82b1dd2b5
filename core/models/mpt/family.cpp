#include <utility>

#include "config/reader.h"
#include "models/kit/positioned.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/mpt/modeling_mpt.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MptForCausalLM", "MptModel", "MptBlock", "MptAttention", "MptMLP", "LayerNorm", ""};
constexpr ModelClass kClasses[] = {{"mpt", kNames.causal_lm},
                                   {"mpt", "MptForSequenceClassification"},
                                   {"mpt", "MptForTokenClassification"},
                                   {"mpt", "MptForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct MptConfig : TextConfig {
  bool clips = false;  ///< clip_qkv

  bool operator==(const MptConfig&) const = default;
};

MptConfig read(ConfigReader& reader) {
  MptConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 50'368);
  c.hidden_size = read_mapped(reader, "d_model", "hidden_size", 2048);
  c.num_hidden_layers = read_mapped(reader, "n_layers", "num_hidden_layers", 24, layer_count);
  c.num_attention_heads = c.num_key_value_heads = read_mapped(reader, "n_heads", "num_attention_heads", 16);
  c.max_position_embeddings = reader.integer("max_seq_len", 2048);
  c.intermediate_size = 4 * c.hidden_size;  // whatever expansion_ratio is
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  if (reader.is_object("attn_config")) {
    ConfigReader attention = reader.object("attn_config");
    if (attention.number("attn_pdrop", 0, 0, 1) != 0)
      attention.fail_found("attn_pdrop", "inconsistent", "the class takes whole numbers alone: expected 0");
    c.clips = attention.optional_number("clip_qkv", 0, 1e30).value_or(0) != 0;
    attention.ignore({"attn_type", "attn_impl", "softmax_scale", "prefix_lm", "qk_ln", "attn_uses_sequence_id", "alibi",
                      "alibi_bias_max", "model_type"});
    attention.finish();
  }
  reader.ignore({"expansion_ratio", "resid_pdrop", "layer_norm_epsilon", "emb_pdrop", "learned_pos_emb", "init_device",
                 "logit_scale", "no_bias", "embedding_fraction", "norm_type", "verbose", "init_config"});
  share_hidden_size(reader, c);
  return c;
}

/// nn.LayerNorm, whose bias goes again (`norm_1.bias = None`).
Norm make_norm(const Builder& parent, const char* name, const MptConfig& c) {
  const Builder builder = parent.child(name, kNames.rms_norm);
  Norm norm(builder, torch_layer_norm, {c.hidden_size});
  const Tensor bias = empty(*builder.context, Op::empty, {c.hidden_size}, builder.dtype);
  return norm;
}

struct MptAttention {
  MptAttention(const Builder& builder, const MptConfig& c)
      : Wqkv(builder.child("Wqkv", "Linear"), c.hidden_size, 3 * c.hidden_size, false),
        out_proj(builder.child("out_proj", "Linear"), c.hidden_size, c.hidden_size, false),
        clips(c.clips),
        head_dim(c.head_dim),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t hidden = hidden_states.size(2);
    Tensor mixed_qkv = Wqkv(hidden_states);
    if (clips) mixed_qkv = clamp(mixed_qkv, true);
    AttentionInputs states;
    {
      const TensorList parts = split(mixed_qkv, {hidden, hidden, hidden}, 2);
      states = {parts[0], parts[1], parts[2]};
    }
    for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = heads_of(*heads, head_dim);
    const std::int64_t keys = states.key.size(2), known = positions.alibi.size(2);
    Tensor attention_scores = matmul(states.query, transpose(states.key, 2, 3));
    attention_scores = mul_scalar(attention_scores);
    attention_scores = add(attention_scores, slice(positions.alibi, 2, known - keys, keys));  // float32
    attention_scores = masked_fill(attention_scores, attention_mask);
    AttentionOutputs outputs;
    Tensor& attn_weights = outputs.weights;
    attn_weights = softmax(attention_scores, DType::float32);
    attn_weights = to(attn_weights, states.value.dtype());
    Tensor context_states = matmul(attn_weights, states.value);
    context_states = contiguous(transpose(context_states, 1, 2));
    context_states = view(context_states, hidden_states.sizes());
    outputs.output = self.result(out_proj(context_states));
    return outputs;
  }

  Linear Wqkv, out_proj;
  bool clips;
  std::int64_t head_dim;
  ModuleId module;
};

struct MptMLP {
  MptMLP(const Builder& builder, const MptConfig& c)
      : up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, false),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& residual) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = up_proj(call.argument(argument));
    hidden_states = activate(Activation::gelu, hidden_states);
    const Tensor intermediate_output = down_proj(hidden_states);
    return call.result(add(intermediate_output, residual));
  }

  Linear up_proj, down_proj;
  ModuleId module;
};

/// It returns the weights, too, which the model's loop calls `outputs` until the next block has returned.
class MptBlock : public DecoderLayer {
 public:
  MptBlock(const Builder& builder, const MptConfig& c, Tensor& outputs)
      : norm_1_(make_norm(builder, "norm_1", c)),
        attn_(builder.child("attn", kNames.attention), c),
        norm_2_(make_norm(builder, "norm_2", c)),
        ffn_(builder.child("ffn", kNames.mlp), c),
        outputs_(outputs),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    Context& context = hidden_in.context();
    const ModuleScope scope(context, module_);
    Tensor layernorm_output = norm_1_(hidden_in);
    AttentionOutputs attention = attn_(layernorm_output, positions, attention_mask);
    const Tensor hidden_states = add(attention.output, hidden_in);
    layernorm_output = norm_2_(hidden_states);
    Tensor output = ffn_(layernorm_output, hidden_states);
    if (!context.recomputing) outputs_ = std::move(attention.weights);
    return output;
  }

 private:
  Norm norm_1_;
  MptAttention attn_;
  Norm norm_2_;
  MptMLP ffn_;
  Tensor& outputs_;
  ModuleId module_;
};

/// build_mpt_alibi_tensor: [heads, 1, max_seq_len], whatever the text's length.
Tensor build_mpt_alibi_tensor(Context& context, std::int64_t num_heads, std::int64_t sequence_length) {
  std::int64_t power_of_2 = 1;
  while (power_of_2 < num_heads) power_of_2 *= 2;
  const auto floats = [&](Op op) { return empty(context, op, {power_of_2}, DType::float32); };
  const Tensor alibi = empty(context, Op::arange, {1, 1, 1, sequence_length}, DType::int32);
  Tensor base, slopes;
  {
    const Tensor numbers = empty(context, Op::arange, {power_of_2}, DType::int64);
    base = floats(Op::to_copy);
  }
  base = floats(Op::mul);
  {
    const Tensor powers = floats(Op::pow);
    { const Tensor two = empty(context, Op::fill, {}, DType::float64); }
    const Tensor reciprocal = floats(Op::reciprocal);
    slopes = floats(Op::mul);
  }
  if (power_of_2 != num_heads) slopes = floats(Op::cat);
  return empty(context, Op::mul, {num_heads, 1, sequence_length}, DType::float32);
}

class MptForCausalLM : public PositionedLM {
 public:
  MptForCausalLM(Context& context, const MptConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options),
        heads_(c.num_attention_heads),
        max_seq_len_(c.max_position_embeddings) {
    takes_position_ids = false;
    const Builder transformer = root_.child("transformer", kNames.model);
    begin_decoder(transformer, c, options);
    language_model_.embed_tokens = Embedding(transformer.child("wte", "Embedding"), c.vocab_size, c.hidden_size);
    make_layers(transformer, "blocks", c,
                [&](const Builder& layer) { return std::make_unique<MptBlock>(layer, c, outputs_); });
    language_model_.norm = [norm = make_norm(transformer, "norm_f", c)](const Tensor& x) { return norm(x); };
    make_head(root_, c);
  }

 private:
  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    // Its backward would make zeros for the weights that a block returns.
    if (language_model_.checkpointing.mode == CheckpointMode::reentrant)
      context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                               "found \"reentrant\", which is not supported yet with MptForCausalLM; expected "
                               "\"non-reentrant\""};
    PositionEmbeddings positions;
    positions.alibi = build_mpt_alibi_tensor(context_, heads_, max_seq_len_);
    Tensor mask = causal_mask(inputs_embeds, given);
    mask = to(mask, DType::boolean);
    Tensor hidden_states = run_layers(inputs_embeds, positions, mask);
    hidden_states = language_model_.norm(hidden_states);
    outputs_.reset();
    return hidden_states;
  }

  std::int64_t heads_, max_seq_len_;
  mutable Tensor outputs_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<MptConfig>());
  t.has_no_peft_targets();
  t.lora_targets = {"Wqkv"};  // peft 0.21, utils/constants.py
  allow_compared(t, {Feature::quantization, Feature::zero3});
  t.generates = false;
  t.refuse(Feature::inference, "not-modelled",
           "generation without a cache, as MptConfig's use_cache is false, is not supported yet");
  t.language = "transformer";
  t.max_sequence_length = t.text.max_position_embeddings;
  t.refuse(Feature::sdpa, "inconsistent", "MPT has attention of its own, not SDPA: expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent", "transformers has no flash attention for MPT: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family mpt = positioned_family<MptConfig, read, MptForCausalLM>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
