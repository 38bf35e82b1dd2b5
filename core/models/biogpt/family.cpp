#include <utility>

#include "config/reader.h"
#include "models/bert/bert.h"
#include "models/kit/layerdrop.h"
#include "models/kit/positioned.h"
#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"

/// transformers 5.23, models/biogpt/modeling_biogpt.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "BioGptForCausalLM", "BioGptModel", "BioGptDecoderLayer", "BioGptAttention", "", "LayerNorm", ""};
constexpr ModelClass kClasses[] = {{"biogpt", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct BioGptConfig : TextConfig {
  double activation_dropout = 0;
  bool scale_embedding = true;

  bool operator==(const BioGptConfig&) const = default;
};

BioGptConfig read(ConfigReader& reader) {
  BioGptConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 42'384);
  c.hidden_size = reader.integer("hidden_size", 1024);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 24, layer_count);
  c.num_attention_heads = c.num_key_value_heads = reader.integer("num_attention_heads", 16);
  c.intermediate_size = reader.integer("intermediate_size", 4096);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 1024);
  c.hidden_act = reader.activation("hidden_act", Activation::gelu);
  c.layer_dropout = reader.number("hidden_dropout_prob", 0.1, 0, 1);
  c.attention_dropout = reader.number("attention_probs_dropout_prob", 0.1, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  c.scale_embedding = reader.boolean("scale_embedding", true);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  read_layerdrop(reader);
  reader.ignore({"layer_norm_eps", "pad_token_id"});
  share_hidden_size(reader, c);
  return c;
}

struct BioGptAttention {
  BioGptAttention(const Builder& builder, const BioGptConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    for (auto [projection, name] : {std::pair{&k_proj, "k_proj"}, std::pair{&v_proj, "v_proj"},
                                    std::pair{&q_proj, "q_proj"}, std::pair{&out_proj, "out_proj"}})
      *projection = Linear(builder.child(name, "Linear"), c.hidden_size, c.hidden_size, true);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    states.key = k_proj(hidden_states);
    states.value = v_proj(hidden_states);
    for (Tensor* heads : {&states.key, &states.value}) *heads = heads_of(*heads, head_dim);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask, eager_in_own_type);
    attention.output = self.result(out_proj(attention.output));
    return attention;
  }

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

class BioGptDecoderLayer : public DecoderLayer {
 public:
  BioGptDecoderLayer(const Builder& builder, const BioGptConfig& c, const ModelOptions& options)
      : self_attn_(builder.child("self_attn", kNames.attention), c, options),
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

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor residual = hidden_in;
    Tensor hidden_states = self_attn_layer_norm_(hidden_in);
    AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);
    hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
    hidden_states = dropout(hidden_states, dropout_);
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = final_layer_norm_(hidden_states);
    hidden_states = fc1_(hidden_states);
    hidden_states = activate(activation_fn_, hidden_states);
    hidden_states = dropout(hidden_states, activation_dropout_);
    hidden_states = fc2_(hidden_states);
    hidden_states = dropout(hidden_states, dropout_);
    return add(residual, hidden_states);
  }

 private:
  BioGptAttention self_attn_;
  Norm self_attn_layer_norm_, final_layer_norm_;
  Linear fc1_, fc2_;
  double dropout_, activation_dropout_;
  Activation activation_fn_;
  ModuleId module_;
};

class BioGptForCausalLM : public PositionedLM {
 public:
  BioGptForCausalLM(Context& context, const BioGptConfig& c, const DataConfig& data, const ModelOptions& options)
      : PositionedLM(context, c, data, options), dropout_(c.layer_dropout) {
    const Builder biogpt = root_.child("biogpt", kNames.model);
    begin_decoder(biogpt, c, options);
    language_model_.embed_tokens =
        Embedding(biogpt.child("embed_tokens", "BioGptScaledWordEmbedding"), c.vocab_size, c.hidden_size);
    embed_positions_ = Embedding(biogpt.child("embed_positions", "BioGptLearnedPositionalEmbedding"),
                                 c.max_position_embeddings + kOffset, c.hidden_size);
    make_layers(biogpt, "layers", c,
                [&](const Builder& layer) { return std::make_unique<BioGptDecoderLayer>(layer, c, options); });
    language_model_.norm = final_norm(torch_layer_norm, true)(biogpt.child("layer_norm", "LayerNorm"), c.hidden_size);
    lm_head_ = Linear(root_.child("output_projection", "Linear"), c.hidden_size, c.vocab_size, false);
    if (c.tie_word_embeddings) tie(lm_head_, language_model_.embed_tokens);
  }

  /// BioGptScaledWordEmbedding.forward: it multiplies whatever the scale is.
  Tensor embed(const Tensor& input_ids) const override {
    const Embedding& embed_tokens = language_model_.embed_tokens;
    return embed_tokens(input_ids, [&](Tensor& embeddings) {
      embeddings = mul_scalar(embeddings);
      require_input_grad(language_model_.checkpointing, embeddings, embed_tokens.module);
    });
  }

  bool activate_neftune() override { return false; }

 private:
  static constexpr std::int64_t kOffset = 2;  ///< BioGptLearnedPositionalEmbedding.offset

  Tensor decode(const Tensor& inputs_embeds, const MaskArguments& given) const override {
    const ModuleScope scope(context_, language_model_.module);
    const KvCache* const cache = context_.past_key_values;
    const std::int64_t seen = cache ? cache->length() : 0, length = inputs_embeds.size(1);
    MaskArguments attended = given;
    attended.position_ids = {};
    if (!given.attention_mask)
      attended.attention_mask = empty(context_, Op::fill, {inputs_embeds.size(0), seen + length}, DType::float32);
    const Tensor mask = causal_mask(inputs_embeds, attended);
    PositionEmbeddings positions;
    positions.position_ids =
        given.position_ids ? given.position_ids : language_model_.positions(context_, inputs_embeds.size(1));
    positions.rows = given.rows;
    Tensor pos_embeds;
    {
      ModuleCall call(context_, embed_positions_.module);
      const Tensor offset = add_scalar(positions.position_ids);
      pos_embeds = call.result(embedding(embed_positions_.weight, offset));
    }
    Tensor hidden_states = add(inputs_embeds, pos_embeds);
    hidden_states = dropout(hidden_states, dropout_);
    hidden_states = run_layers(std::move(hidden_states), positions, mask);
    return language_model_.norm(hidden_states);
  }

  Embedding embed_positions_;
  double dropout_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  t.language = "biogpt";
  t.max_sequence_length = t.text.max_position_embeddings;
  t.quantization_skips = {"output_projection"};
  return t;
}

}  // namespace

namespace family {
extern const Family biogpt = positioned_family<BioGptConfig, read, BioGptForCausalLM>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
