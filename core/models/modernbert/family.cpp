#include "models/family.h"

#include <string>
#include <vector>

#include "config/reader.h"
#include "models/modernbert/modernbert.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"modernbert", "ModernBertForMaskedLM"},
                                   {"modernbert", "ModernBertModel"},
                                   {"modernbert", "ModernBertForSequenceClassification"},
                                   {"modernbert", "ModernBertForTokenClassification"},
                                   {"modernbert", "ModernBertForQuestionAnswering"}};
constexpr const char* kBlocks[] = {"ModernBertEncoderLayer", "ModernBertEmbeddings"};

}  // namespace

std::vector<bool> read_modernbert_slides(ConfigReader& reader, std::int64_t layers) {
  const std::int64_t every = reader.integer("global_attn_every_n_layers", 3);
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", layers);
  std::vector<bool> slides;
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    slides.push_back(at < types.size() ? types[at] == "sliding_attention" : i % every != 0);
    if (at < types.size() && !slides.back() && types[at] != "full_attention")
      reader.fail("layer_types", "unknown-value",
                  "found \"" + types[at] + "\"; expected \"full_attention\" or \"sliding_attention\"");
  }
  return slides;
}

namespace {

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  ModernBertConfig c;
  c.vocab_size = 50368;
  c.num_hidden_layers = 22;
  c.intermediate_size = 1152;
  c.max_position_embeddings = 8192;
  read_encoder(reader, of, c);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.hidden_act = reader.activation("hidden_activation", c.hidden_act);
  c.classifier_activation = reader.activation("classifier_activation", c.classifier_activation);
  c.sliding_window = reader.integer("local_attention", 128) / 2;
  struct Flag {
    const char* key;
    bool& value;
  };
  for (const Flag& flag :
       {Flag{"norm_bias", c.norm_bias}, Flag{"attention_bias", c.attention_bias}, Flag{"mlp_bias", c.mlp_bias},
        Flag{"decoder_bias", c.decoder_bias}, Flag{"classifier_bias", c.classifier_bias}})
    flag.value = reader.boolean(flag.key, flag.value);
  struct Rate {
    const char* key;
    double& value;
  };
  for (const Rate& rate :
       {Rate{"attention_dropout", c.attention_dropout}, Rate{"embedding_dropout", c.embedding_dropout},
        Rate{"mlp_dropout", c.mlp_dropout}, Rate{"classifier_dropout", c.classifier_dropout}})
    rate.value = reader.number(rate.key, 0, 0, 1);
  const std::string pooling = reader.text("classifier_pooling", "cls");
  c.pools_mean = pooling == "mean";
  if (!c.pools_mean && pooling != "cls")
    reader.fail_found("classifier_pooling", "unknown-value", "expected \"cls\" or \"mean\"");
  if (reader.boolean("sparse_prediction", false))
    reader.fail_found("sparse_prediction", "not-modelled",
                      "a head that sees the masked tokens alone is not supported yet: expected false");
  check_encoder_heads(reader, c);
  if (c.head_dim() % 2 != 0)
    reader.fail_found("hidden_size", "inconsistent", "rotary embeddings need an even size of heads");
  c.slides = read_modernbert_slides(reader, c.num_hidden_layers);
  reader.ignore({"norm_eps", "initializer_cutoff_factor", "global_rope_theta", "local_rope_theta",
                 "deterministic_flash_attn", "sparse_pred_ignore_index", "reference_compile", "repad_logits_with_grad",
                 "position_embedding_type", "gradient_checkpointing", "cls_token_id", "sep_token_id",
                 "layer_norm_eps"});
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = encoder_traits(config.as<ModernBertConfig>(), "model");
  t.allow({Feature::zero3});
  if (config.as<ModernBertConfig>().head == EncoderHead::masked_lm) t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family modernbert{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = read,
    .build =
        [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
          return build_modernbert(context, config.as<ModernBertConfig>(), data, options);
        },
    .traits = traits,
    .largest_tensor =
        [](const FamilyConfig& config, const DataConfig& data) {
          return largest_tensor_of_encoder(config.as<ModernBertConfig>(), data);
        }};
}  // namespace family

}  // namespace oometer
