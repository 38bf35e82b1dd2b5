#include "models/family.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "config/reader.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_family.h"
#include "models/modernbert/modernbert.h"
#include "ops/ops.h"

/// transformers 5.23, models/modernbert_decoder/modeling_modernbert_decoder.py: ModernBERT's classes, of which each
/// token sees those before it.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"ModernBertDecoderForCausalLM",    "ModernBertDecoderModel", "ModernBertDecoderLayer",
                                 "ModernBertDecoderAttention",      "ModernBertDecoderMLP",   "LayerNorm",
                                 "ModernBertDecoderRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"modernbert-decoder", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct DecoderConfig : TextConfig {
  bool norm_bias = false, decoder_bias = true, classifier_bias = false;
  double mlp_dropout = 0;
  Activation classifier_activation = Activation::gelu;

  bool operator==(const DecoderConfig&) const = default;
};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 50'368;
  d.hidden_size = 768;
  d.intermediate_size = 1152;
  d.num_hidden_layers = 22;
  d.num_attention_heads = 12;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 8192;
  d.hidden_act = Activation::gelu;
  d.tie_word_embeddings = d.has_pad_token = true;
  DecoderConfig c{read_text_sizes(reader, d)};
  c.hidden_act = reader.activation("hidden_activation", d.hidden_act);
  c.classifier_activation = reader.activation("classifier_activation", c.classifier_activation);
  share_hidden_size(reader, c);
  check_llama_heads(reader, c);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  c.norm_bias = reader.boolean("norm_bias", false);
  c.decoder_bias = reader.boolean("decoder_bias", true);
  c.classifier_bias = reader.boolean("classifier_bias", false);
  c.residual_dropout = c.attention_dropout;
  c.embedding_dropout = reader.number("embedding_dropout", 0, 0, 1);
  c.mlp_dropout = reader.number("mlp_dropout", 0, 0, 1);
  c.sliding_window = reader.integer("local_attention", 128) / 2;
  for (const bool slides : read_modernbert_slides(reader, c.num_hidden_layers))
    c.layer_windows.push_back(slides ? c.sliding_window : 0);
  reader.ignore({"norm_eps", "initializer_cutoff_factor", "global_rope_theta", "local_rope_theta", "classifier_dropout",
                 "deterministic_flash_attn", "cls_token_id", "sep_token_id", "position_embedding_type",
                 "gradient_checkpointing", "layer_norm_eps", "classifier_pooling", "sparse_prediction",
                 "sparse_pred_ignore_index", "reference_compile", "repad_logits_with_grad"});
  return c;
}

Norm layer_norm_of(const Builder& builder, const DecoderConfig& c) {
  return {builder, torch_layer_norm, {c.hidden_size}, c.norm_bias};
}

class ModernBertDecoderLayer : public DecoderLayer {
 public:
  ModernBertDecoderLayer(const Builder& builder, const DecoderConfig& c, const ModelOptions& options, std::size_t index)
      : module_(builder.module) {
    if (index != 0) attn_norm_ = layer_norm_of(builder.child("attn_norm", "LayerNorm"), c);
    AttentionParts its;
    its.rotate = rotate_as_modernbert;
    its.o_proj = "Wo";
    attn_.emplace(builder.child("attn", kNames.attention), c, options, its);
    mlp_norm_ = layer_norm_of(builder.child("mlp_norm", "LayerNorm"), c);
    mlp_.emplace(builder.child("mlp", kNames.mlp), c.hidden_size, c.intermediate_size, c.mlp_bias);
    mlp_->dropout = c.mlp_dropout;
    mlp_->act = c.hidden_act;
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions, const Tensor& mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor hidden_states = attn_norm_ ? attn_norm_(hidden_in) : hidden_in;
    const AttentionOutputs attn_outputs = (*attn_)(hidden_states, positions, mask);
    hidden_states = attn_outputs.output;
    hidden_states = add(hidden_in, hidden_states);
    const Tensor residual = hidden_states;
    hidden_states = mlp_norm_(hidden_states);
    const Tensor mlp_output = (*mlp_)(hidden_states);
    return add(residual, mlp_output);
  }

 private:
  Norm attn_norm_, mlp_norm_;  ///< the first layer has but the second
  std::optional<TextAttention> attn_;
  std::optional<ModernBertMLP> mlp_;
  ModuleId module_;
};

class ModernBertDecoderForCausalLM : public LanguageModel {
 public:
  ModernBertDecoderForCausalLM(Context& context, const DecoderConfig& c, const DataConfig& data,
                               const ModelOptions& options)
      : LanguageModel(context, kNames.causal_lm, Modality::language, data, options) {
    const Builder model = root_.child("model", kNames.model);
    const auto norm = std::make_shared<Norm>();  // of the embeddings, made behind them
    DecoderParts parts;
    parts.embed_tokens = "embeddings.tok_embeddings";
    parts.last_norm = "final_norm";
    parts.layer = [c, options, model, norm](const Builder& layer, std::size_t index) {
      if (index == 0) *norm = layer_norm_of(model.child("embeddings.norm", "LayerNorm"), c);
      return std::make_unique<ModernBertDecoderLayer>(layer, c, options, index);
    };
    parts.scale = [norm, p = c.embedding_dropout](const Tensor& embeddings) { return dropout((*norm)(embeddings), p); };
    parts.norm = final_norm(torch_layer_norm, c.norm_bias);
    parts.kind = [c](std::size_t i) { return i == 0 ? 2 : int{c.window_of(i) != 0}; };
    parts.positions_by_sample = true;
    parts.rotary_by_type = c.has_both_types();
    make_decoder(model, c, options, std::move(parts));
    lm_head_norm_ = ModernBertPredictionHead(root_.child("lm_head", "ModernBertDecoderPredictionHead"), c.hidden_size,
                                             c.classifier_bias, c.norm_bias, c.classifier_activation);
    lm_head_ =
        Linear(root_.child("decoder", "Linear", Modality::language), c.hidden_size, c.vocab_size, c.decoder_bias);
    if (c.tie_word_embeddings) {
      tie(lm_head_, language_model_.embed_tokens);
      if (lm_head_.bias) {  // PreTrainedModel._adjust_bias: padded by nothing, it is a copy
        const Tensor padded = empty(context, Op::clone, lm_head_.bias.sizes(), lm_head_.bias.dtype(), Role::parameter);
        oometer::set_data(lm_head_.bias, padded);
      }
    }
    is_causal_lm = true;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor hidden_states = run_text_model(inputs);
    const std::int64_t length = hidden_states.size(1), kept = inputs.logits_to_keep;
    if (kept != 0 && kept < length) hidden_states = slice(hidden_states, 1, length - kept, kept);
    Tensor logits;
    {
      const Tensor headed = lm_head_norm_(hidden_states);
      logits = lm_head_(headed);
    }
    ModelOutputs outputs;
    if (inputs.labels) outputs.loss = (*loss_function)(logits, inputs.labels);
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }

 private:
  ModernBertPredictionHead lm_head_norm_;
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<DecoderConfig>());
  t.has_no_peft_targets();
  refuse_generate_options(t);
  t.allow({Feature::zero3, Feature::fsdp});
  for (const Feature feature : {Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family modernbert_decoder{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = read,
    .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                const ModelOptions& options) -> std::unique_ptr<Model> {
      return std::make_unique<ModernBertDecoderForCausalLM>(context, config.as<DecoderConfig>(), data, options);
    },
    .traits = traits,
    .largest_tensor = [](const FamilyConfig& config,
                         const DataConfig& data) { return largest_tensor_of_text(config.as<DecoderConfig>(), data); }};
}  // namespace family

}  // namespace oometer
