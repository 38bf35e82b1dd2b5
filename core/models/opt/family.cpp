#include "config/reader.h"
#include "models/kit/layerdrop.h"
#include "models/opt/opt.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "OPTForCausalLM", "OPTDecoder", "OPTDecoderLayer", "OPTAttention", "", "LayerNorm", ""};
constexpr ModelClass kClasses[] = {
    {"opt", kNames.causal_lm}, {"opt", "OPTForSequenceClassification"}, {"opt", "OPTForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

class OPTForCausalLM : public OptLanguageModel {
 public:
  OPTForCausalLM(Context& context, const OptConfig& c, const DataConfig& data, const ModelOptions& options)
      : OptLanguageModel(context, c, data, options) {
    make_causal_lm(root_, c, options);
  }
};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<OptConfig>());
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.ia3_targets = {"q_proj", "k_proj", "fc2"};
  t.ia3_feedforward = {"fc2"};
  t.ln_tuning_targets = {};
  t.language = "model.decoder";
  t.max_sequence_length = t.text.max_position_embeddings;
  return t;
}

}  // namespace

OptConfig read_opt_config(ConfigReader& reader) {
  OptConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 50272);
  c.hidden_size = reader.integer("hidden_size", 768);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 12, layer_count);
  c.num_attention_heads = c.num_key_value_heads = reader.integer("num_attention_heads", 12);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 2048);
  c.intermediate_size = reader.integer("ffn_dim", 3072);
  c.hidden_act = reader.activation("activation_function", Activation::relu);
  c.layer_dropout = reader.number("dropout", 0.1, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.word_embed_proj_dim = reader.optional_integer("word_embed_proj_dim").value_or(c.hidden_size);
  c.do_layer_norm_before = reader.boolean("do_layer_norm_before", true);
  c.has_final_layer_norm = c.do_layer_norm_before && !reader.boolean("_remove_final_layer_norm", false);
  c.enable_bias = reader.boolean("enable_bias", true);
  if (!reader.boolean("layer_norm_elementwise_affine", true))
    reader.fail_found("layer_norm_elementwise_affine", "not-modelled", "norms without weights are not supported yet");
  read_layerdrop(reader);
  c.has_pad_token = reader.is_null("pad_token_id") ? false : true;
  reader.ignore({"pad_token_id", "init_std"});
  share_hidden_size(reader, c);
  return c;
}

namespace family {
extern const Family opt = positioned_family<OptConfig, read_opt_config, OPTForCausalLM>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
