#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/positioned.h"
#include "models/kit/recurrent.h"
#include "ops/masks.h"
#include "ops/ops.h"

/// transformers 5.23, models/gpt_neo/modeling_gpt_neo.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "GPTNeoForCausalLM", "GPTNeoModel", "GPTNeoBlock", "GPTNeoAttention", "GPTNeoMLP", "LayerNorm", ""};
constexpr ModelClass kClasses[] = {{"gpt_neo", kNames.causal_lm},
                                   {"gpt_neo", "GPTNeoForSequenceClassification"},
                                   {"gpt_neo", "GPTNeoForTokenClassification"},
                                   {"gpt_neo", "GPTNeoForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct GPTNeoConfig : TextConfig {
  std::vector<bool> is_local{};  ///< which layers see a window of tokens alone

  bool operator==(const GPTNeoConfig&) const = default;
};

/// GPTNeoConfig.expand_attention_types_params: [[["global", "local"], 12]].
std::vector<bool> read_attention_types(ConfigReader& reader, std::int64_t layers) {
  std::vector<bool> is_local;
  const nlohmann::json usual = nlohmann::json::parse(R"([[["global", "local"], 12]])");
  const nlohmann::json* const given = reader.find("attention_types");
  bool is_known = true;
  for (const nlohmann::json& item : given && given->is_array() ? *given : usual) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_array() || !item[1].is_number_integer()) {
      is_known = false;
      continue;
    }
    for (std::int64_t i = 0; i < std::min<std::int64_t>(item[1].get<std::int64_t>(), layers); ++i)
      for (const nlohmann::json& type : item[0]) {
        is_known = is_known && (type == "global" || type == "local");
        is_local.push_back(type == "local");
      }
  }
  if (!is_known || static_cast<std::int64_t>(is_local.size()) != layers)
    reader.fail("attention_types", "inconsistent",
                "found types of " + std::to_string(is_local.size()) + " layers; expected \"global\" or \"local\" for " +
                    std::to_string(layers) + ", as [[[\"global\", \"local\"], " + std::to_string(layers / 2) + "]]");
  is_local.resize(static_cast<std::size_t>(layers));
  return is_local;
}

GPTNeoConfig read(ConfigReader& reader) {
  GPTNeoConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 50257);
  c.hidden_size = reader.integer("hidden_size", 2048);
  c.num_hidden_layers = read_mapped(reader, "num_layers", "num_hidden_layers", 24, layer_count);
  c.num_attention_heads = c.num_key_value_heads = read_mapped(reader, "num_heads", "num_attention_heads", 16);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 2048);
  c.intermediate_size = reader.optional_integer("intermediate_size").value_or(4 * c.hidden_size);
  c.hidden_act = reader.activation("activation_function", Activation::gelu_new);
  c.residual_dropout = reader.number("resid_dropout", 0, 0, 1);
  c.embedding_dropout = reader.number("embed_dropout", 0, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  c.is_local = read_attention_types(reader, c.num_hidden_layers);
  reader.ignore({"attention_layers", "window_size", "layer_norm_epsilon", "classifier_dropout", "summary_type",
                 "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
  share_hidden_size(reader, c);
  return c;
}

/// GPTNeoSelfAttention: what may be seen is a table of each pair of positions.
struct GPTNeoSelfAttention {
  GPTNeoSelfAttention(const Builder& attn, const GPTNeoConfig& c, const ModelOptions& options, bool is_local)
      : head_dim(c.head_dim),
        resid_dropout(c.residual_dropout),
        call(attention_call(c, options)),
        layer_idx(layer_index(attn)),
        attn_module(attn.module) {
    const Builder builder = attn.child("attention", "GPTNeoSelfAttention");
    module = builder.module;
    const Shape pairs{1, 1, c.max_position_embeddings, c.max_position_embeddings};
    const auto table = [&](Op op) { return empty(*builder.context, op, pairs, DType::boolean); };
    if (is_local) {
      Tensor all;
      {
        const Tensor ones = table(Op::ones_like);
        all = table(Op::triu);
      }
      const Tensor before = table(Op::triu);
      bias = builder.buffer(pairs, DType::boolean);
    } else {
      const Tensor ones = table(Op::ones_like);
      bias = builder.buffer(pairs, DType::boolean);
    }
    for (auto [projection, name] :
         {std::pair{&k_proj, "k_proj"}, std::pair{&v_proj, "v_proj"}, std::pair{&q_proj, "q_proj"}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, false);
    out_proj = Linear(builder.child("out_proj", "Linear"), c.hidden_size, c.hidden_size, true);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall outer(context, attn_module);
    const Tensor passed = outer.argument(argument);
    ModuleCall self(context, module);
    const Tensor hidden_states = self.argument(passed);
    AttentionInputs states{q_proj(hidden_states), k_proj(hidden_states), v_proj(hidden_states)};
    for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = heads_of(*heads, head_dim);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask,
                                        [this](const AttentionCall& its, const AttentionInputs& inputs,
                                               const Tensor& mask) { return attn(its, inputs, mask); });
    if (is_flash_attention(call.kind)) attention.weights = attention.output;  // attn_weights_reshaped
    attention.output = out_proj(attention.output);
    attention.output = outer.result(self.result(dropout(attention.output, resid_dropout)));
    return attention;
  }

  /// _attn: the weights are computed in float32.
  AttentionOutputs attn(const AttentionCall& its, const AttentionInputs& states, const Tensor& mask) const {
    Context& context = states.query.context();
    AttentionOutputs outputs;
    {
      const Tensor query = to(states.query, DType::float32), key = to(states.key, DType::float32);
      Tensor& weights = outputs.weights;
      weights = matmul(query, transpose(key, 2, 3));
      const std::int64_t queries = query.size(2), keys = key.size(2);
      const Tensor causal_mask = slice(slice(bias, 2, keys - queries, queries), 3, 0, keys);
      const Tensor mask_value = empty(context, Op::to_copy, {}, weights.dtype());
      weights = where(causal_mask, weights, mask_value);
      if (mask) weights = add(weights, mask);
      weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
      weights = to(weights, states.value.dtype());
      weights = dropout(weights, its.dropout);
      outputs.output = matmul(weights, states.value);
    }
    outputs.output = contiguous(transpose(outputs.output, 1, 2));
    return outputs;
  }

  Tensor bias;
  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim;
  double resid_dropout;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId attn_module, module = 0;
};

/// GPTNeoBlock. It returns the weights, too, which the model's loop calls `outputs` until the next block has returned.
class GPTNeoBlock : public DecoderLayer {
 public:
  GPTNeoBlock(const Builder& builder, const GPTNeoConfig& c, const ModelOptions& options, bool is_local,
              Tensor& outputs)
      : ln_1_(builder.child("ln_1", kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true),
        attn_(builder.child("attn", kNames.attention), c, options, is_local),
        ln_2_(builder.child("ln_2", kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true),
        mlp_(builder.child("mlp", kNames.mlp), c, "c_fc", "c_proj", true),
        outputs_(outputs),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    Context& context = hidden_in.context();
    const ModuleScope scope(context, module_);
    Tensor hidden_states = ln_1_(hidden_in);
    AttentionOutputs attention = attn_(hidden_states, positions, attention_mask);
    hidden_states = add(attention.output, hidden_in);
    const Tensor residual = hidden_states;
    hidden_states = ln_2_(hidden_states);
    const Tensor feed_forward_hidden_states = mlp_(hidden_states);
    hidden_states = add(residual, feed_forward_hidden_states);
    if (!context.recomputing) outputs_ = std::move(attention.weights);
    return hidden_states;
  }

 private:
  Norm ln_1_;
  GPTNeoSelfAttention attn_;
  Norm ln_2_;
  PlainMLP mlp_;
  Tensor& outputs_;
  ModuleId module_;
};

class GPTNeoForCausalLM : public PositionedLM {
 public:
  GPTNeoForCausalLM(Context& context, const GPTNeoConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options), drop_(c.embedding_dropout) {
    const Builder transformer = root_.child("transformer", kNames.model);
    begin_decoder(transformer, c, options);
    language_model_.embed_tokens = Embedding(transformer.child("wte", "Embedding"), c.vocab_size, c.hidden_size);
    wpe_ = Embedding(transformer.child("wpe", "Embedding"), c.max_position_embeddings, c.hidden_size);
    std::size_t index = 0;
    make_layers(transformer, "h", c, [&](const Builder& layer) {
      return std::make_unique<GPTNeoBlock>(layer, c, options, c.is_local[index++], outputs_);
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
    const Tensor position_embeds = wpe_(with_positions.position_ids);
    Tensor hidden_states = add(inputs_embeds, position_embeds);
    hidden_states = dropout(hidden_states, drop_);
    PositionEmbeddings positions;
    positions.rows = given.rows;
    hidden_states = run_layers(std::move(hidden_states), positions, mask);
    hidden_states = language_model_.norm(hidden_states);
    outputs_.reset();
    return hidden_states;
  }

  Embedding wpe_;
  double drop_;
  mutable Tensor outputs_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<GPTNeoConfig>());
  t.language = "transformer";
  t.max_sequence_length = t.text.max_position_embeddings;
  t.has_no_peft_targets();
  t.lora_targets = {"q_proj", "v_proj"};
  refuse_generate_options(t);
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.refuse(Feature::sdpa, "inconsistent", "the class has attention of its own, not SDPA: expected eager");
  t.refuse(Feature::packing, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family gpt_neo = positioned_family<GPTNeoConfig, read, GPTNeoForCausalLM>(
    kClasses, kBlocks, traits,
    without_dropout<GPTNeoConfig, &TextConfig::residual_dropout, &TextConfig::embedding_dropout,
                    &TextConfig::attention_dropout>);
}  // namespace family

}  // namespace oometer
