#include <algorithm>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/gptj/gptj.h"
#include "models/llama/llama.h"
#include "ops/experts.h"
#include "ops/ops.h"

/// transformers 5.23, models/gptj/modeling_gptj.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GPTJForCausalLM", "GPTJModel", "GPTJBlock", "GPTJAttention",
                                 "GPTJMLP",         "LayerNorm", ""};
constexpr ModelClass kClasses[] = {
    {"gptj", kNames.causal_lm}, {"gptj", "GPTJForSequenceClassification"}, {"gptj", "GPTJForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

}  // namespace

TextConfig read_gptj_config(ConfigReader& reader, const LlamaClassNames& names, std::int64_t parts) {
  TextConfig c;
  c.names = &names;
  c.vocab_size = reader.integer("vocab_size", 50400);
  c.hidden_size = read_mapped(reader, "n_embd", "hidden_size", 4096);
  c.num_hidden_layers = read_mapped(reader, "n_layer", "num_hidden_layers", 28, layer_count);
  c.num_attention_heads = c.num_key_value_heads = read_mapped(reader, "n_head", "num_attention_heads", 16);
  c.max_position_embeddings = read_mapped(reader, "n_positions", "max_position_embeddings", 2048);
  c.intermediate_size = reader.optional_integer("n_inner").value_or(4 * c.hidden_size);
  c.rotary_dim = reader.integer("rotary_dim", 64);
  c.hidden_act = reader.activation("activation_function", Activation::gelu_new);
  c.residual_dropout = reader.number("resid_pdrop", 0, 0, 1);
  c.embedding_dropout = reader.number("embd_pdrop", 0, 0, 1);
  c.attention_dropout = reader.number("attn_pdrop", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  reader.ignore({"layer_norm_epsilon", "rotary", "scale_attn_weights", "summary_type", "summary_use_proj",
                 "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "n_ctx"});
  c.head_dim = std::max<std::int64_t>(1, c.hidden_size / c.num_attention_heads);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found(reader.has("hidden_size") ? "hidden_size" : "n_embd", "inconsistent",
                      "expected a multiple of the number of heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.num_attention_heads % parts != 0)
    reader.fail_found(reader.has("num_attention_heads") ? "num_attention_heads" : "n_head", "inconsistent",
                      "expected a multiple of " + std::to_string(parts));
  if (c.rotary_dim % 2 != 0 || c.rotary_dim > c.head_dim)
    reader.fail_found("rotary_dim", "inconsistent",
                      "expected an even number, up to a head's " + std::to_string(c.head_dim) + " elements");
  return c;
}

Tensor sinusoidal_positions(const Builder& builder, std::int64_t count, std::int64_t dim) {
  Context& context = *builder.context;
  const Shape sizes{count, dim / 2};
  Tensor inv_freq;
  {
    const auto floats = [&](Op op) { return empty(context, op, {dim / 2}, builder.dtype); };
    Tensor exponents;
    {
      const Tensor range = empty(context, Op::arange, {dim / 2}, DType::int64);
      exponents = floats(Op::div);
    }
    const Tensor powers = floats(Op::pow);
    { const Tensor base = empty(context, Op::fill, {}, DType::int64); }
    exponents.reset();
    const Tensor reciprocal = floats(Op::reciprocal);
    inv_freq = floats(Op::mul);  // 1.0 * it
  }
  Tensor sinusoid_inp = empty(context, Op::arange, {count}, DType::int64);
  sinusoid_inp = to(sinusoid_inp, DType::float32);
  sinusoid_inp = empty(context, Op::mul, sizes, DType::float32);
  const Tensor sin = pointwise(Op::sin, {&sinusoid_inp}, DType::float32);
  const Tensor cos = pointwise(Op::cos, {&sinusoid_inp}, DType::float32);
  return builder.buffer({count, dim}, DType::float32);
}

Tensor apply_rotary_pos_emb(const Tensor& tensor, const SinCos& tables) {
  const auto spread = [](const Tensor& table) {
    return empty(table.context(), Op::clone, {table.size(0), table.size(1), 1, 2 * table.size(2)}, table.dtype());
  };
  const Tensor sin = spread(tables.sin), cos = spread(tables.cos);
  return rotate(tensor, cos, sin);
}

namespace {

struct GPTJAttention {
  GPTJAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        rotary_dim(c.rotary_dim),
        resid_dropout(c.residual_dropout),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    for (auto [projection, name] : {std::pair{&k_proj, "k_proj"}, std::pair{&v_proj, "v_proj"},
                                    std::pair{&q_proj, "q_proj"}, std::pair{&out_proj, "out_proj"}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, false);
    embed_positions = sinusoidal_positions(builder, c.max_position_embeddings, rotary_dim);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    Context& context = hidden_states.context();
    ModuleCall self(context, module);
    AttentionInputs states{q_proj(hidden_states), k_proj(hidden_states), v_proj(hidden_states)};
    for (Tensor* heads : {&states.query, &states.key, &states.value})
      *heads = view(*heads, {heads->size(0), heads->size(1), heads->size(2) / head_dim, head_dim});
    states.value = transpose(states.value, 1, 2);
    const Tensor& ids = positions.position_ids;
    const Tensor repeated =
        empty(context, Op::repeat, {ids.size(0), embed_positions.size(0), rotary_dim}, DType::float32);
    const Tensor repeated_position_ids =
        empty(context, Op::repeat, {ids.size(0), ids.size(1), rotary_dim}, DType::int64);
    Tensor sincos = gather(repeated, repeated_position_ids);
    sincos = to(sincos, states.key.dtype());
    const SinCos tables{slice(sincos, -1, 0, rotary_dim / 2), slice(sincos, -1, rotary_dim / 2, rotary_dim / 2)};
    const auto rot = [&](const Tensor& x) { return slice(x, -1, 0, rotary_dim); };
    const auto pass = [&](const Tensor& x) { return slice(x, -1, rotary_dim, head_dim - rotary_dim); };
    Tensor k_rot = rot(states.key);
    const Tensor k_pass = pass(states.key);
    Tensor q_rot = rot(states.query);
    const Tensor q_pass = pass(states.query);
    k_rot = apply_rotary_pos_emb(k_rot, tables);
    q_rot = apply_rotary_pos_emb(q_rot, tables);
    states.key = cat({k_rot, k_pass}, -1);
    states.query = cat({q_rot, q_pass}, -1);
    states.key = transpose(states.key, 1, 2);
    states.query = transpose(states.query, 1, 2);
    PositionEmbeddings rows;  // GPTJFlashAttention2 says nothing of positions
    rows.rows = positions.rows;
    AttentionOutputs attention = attend(call, layer_idx, states, rows, attention_mask, attn);
    if (is_flash_attention(call.kind)) attention.weights = attention.output;  // which it returns as the weights
    attention.output = out_proj(attention.output);
    attention.output = self.result(dropout(attention.output, resid_dropout));
    return attention;
  }

  /// _attn: the weights are computed in float32.
  static AttentionOutputs attn(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask) {
    const Context& context = states.query.context();
    AttentionOutputs outputs;
    {
      const Tensor query = to(states.query, DType::float32), key = to(states.key, DType::float32);
      Tensor& weights = outputs.weights;
      weights = matmul(query, transpose(key, 2, 3));
      weights = div_scalar(weights);
      if (mask) weights = add(weights, mask);
      weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
      weights = to(weights, states.value.dtype());
      weights = dropout(weights, call.dropout);
      outputs.output = matmul(weights, states.value);
    }
    outputs.output = contiguous(transpose(outputs.output, 1, 2));
    return outputs;
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  Tensor embed_positions;
  std::int64_t head_dim, rotary_dim;
  double resid_dropout;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// GPTJBlock. It returns the weights, too, which the model's loop calls `outputs` until the next block has returned.
class GPTJBlock : public DecoderLayer {
 public:
  GPTJBlock(const Builder& builder, const TextConfig& c, const ModelOptions& options, MakeGptjAttention make_attention,
            Tensor& outputs)
      : ln_1_(builder.child("ln_1", c.names->rms_norm), torch_layer_norm, {c.hidden_size}, true),
        attn_(make_attention(builder.child("attn", c.names->attention), c, options)),
        mlp_(builder.child("mlp", c.names->mlp), c, "fc_in", "fc_out", true),
        outputs_(outputs),
        module_(builder.module) {}

  Tensor operator()(const Tensor& residual, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    Context& context = residual.context();
    const ModuleScope scope(context, module_);
    const Tensor hidden_states = ln_1_(residual);
    AttentionOutputs attention = attn_(hidden_states, positions, attention_mask);
    const Tensor feed_forward_hidden_states = mlp_(hidden_states);
    Tensor sum = add(attention.output, feed_forward_hidden_states);
    sum = add(sum, residual);
    if (!context.recomputing) outputs_ = std::move(attention.weights);
    return sum;
  }

 private:
  Norm ln_1_;
  GptjAttention attn_;
  PlainMLP mlp_;
  Tensor& outputs_;
  ModuleId module_;
};

class GPTJForCausalLM : public PositionedLM {
 public:
  GPTJForCausalLM(Context& context, const TextConfig& c, const DataConfig& data, const ModelOptions& options,
                  MakeGptjAttention make_attention)
      : PositionedLM(context, c, data, options), drop_(c.embedding_dropout) {
    const Builder transformer = root_.child("transformer", c.names->model);
    begin_decoder(transformer, c, options);
    language_model_.parts.head_bias = true;
    language_model_.embed_tokens = Embedding(transformer.child("wte", "Embedding"), c.vocab_size, c.hidden_size);
    make_layers(transformer, "h", c, [&](const Builder& layer) {
      return std::make_unique<GPTJBlock>(layer, c, options, make_attention, outputs_);
    });
    language_model_.norm = final_norm(torch_layer_norm, true)(transformer.child("ln_f", "LayerNorm"), c.hidden_size);
    make_head(root_, c);
  }

 private:
  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    // Its backward would make zeros for the weights that a block returns.
    if (language_model_.checkpointing.mode == CheckpointMode::reentrant)
      context_.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                               "found \"reentrant\", which is not supported yet with blocks that return their weights; "
                               "expected \"non-reentrant\""};
    MaskArguments with_positions = given;
    if (!given.position_ids) with_positions.position_ids = language_model_.positions(context_, inputs_embeds.size(1));
    const Tensor mask = causal_mask(inputs_embeds, with_positions);
    Tensor hidden_states = dropout(inputs_embeds, drop_);
    PositionEmbeddings positions;
    positions.position_ids = with_positions.position_ids;
    positions.rows = given.rows;
    hidden_states = run_layers(std::move(hidden_states), positions, mask);
    hidden_states = language_model_.norm(hidden_states);
    outputs_.reset();
    return hidden_states;
  }

  double drop_;
  mutable Tensor outputs_;
};

GptjAttention make_attention(const Builder& builder, const TextConfig& c, const ModelOptions& options) {
  return GPTJAttention(builder, c, options);
}

}  // namespace

std::unique_ptr<Model> build_gptj(Context& context, const TextConfig& config, const DataConfig& data,
                                  const ModelOptions& options, MakeGptjAttention make_its_attention) {
  return std::make_unique<GPTJForCausalLM>(context, config, data, options, make_its_attention);
}

ModelTraits gptj_traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  allow_compared(t, {Feature::zero3, Feature::quantization});
  t.language = "transformer";
  t.max_sequence_length = t.text.max_position_embeddings;
  t.refuse(Feature::sdpa, "inconsistent", "the class has attention of its own, not SDPA: expected eager");
  return t;
}

namespace {

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = gptj_traits(config);
  allow_compared(t, {Feature::fsdp});
  t.ia3_targets = {"q_proj", "v_proj", "fc_out"};
  t.ia3_feedforward = {"fc_out"};
  t.ln_tuning_targets = {"ln_1", "ln_f"};
  return t;
}

}  // namespace

namespace family {
extern const Family gptj = gptj_family<kNames, make_attention>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
