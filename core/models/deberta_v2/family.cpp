#include "models/family.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/deberta_v2/deberta_v2.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"deberta-v2", "DebertaV2ForMaskedLM"},
                                   {"deberta-v2", "DebertaV2Model"},
                                   {"deberta-v2", "DebertaV2ForSequenceClassification"},
                                   {"deberta-v2", "DebertaV2ForTokenClassification"},
                                   {"deberta-v2", "DebertaV2ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {"DebertaV2Layer"};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// A text of names with bars between them, or a list of them.
std::string read_names(ConfigReader& reader, const char* key) {
  if (reader.is_null(key) || !reader.has(key)) return "";
  if (const nlohmann::json* value = reader.find(key); value && !value->is_array()) return lower(reader.text(key, ""));
  std::string all;
  for (const std::string& one : reader.texts(key)) all += one + "|";
  return all;
}

constexpr DebertaClasses kVersion2{
    "DebertaV2Model",
    "DebertaV2Embeddings",
    "DebertaV2Encoder",
    "DebertaV2Layer",
    "DebertaV2Attention",
    "DebertaV2SelfOutput",
    "DebertaV2Intermediate",
    "DebertaV2Output",
    "LegacyDebertaV2OnlyMLMHead",
    "LegacyDebertaV2LMPredictionHead",
    "LegacyDebertaV2PredictionHeadTransform",
    [](const Builder& builder, const DebertaV2Config& c) -> DebertaClasses::SelfAttention {
      return DisentangledSelfAttention(builder, c);
    },
    [](const Builder& builder, std::int64_t in_features, const DebertaV2Config& c) -> DebertaClasses::Output {
      return PostNormOutput(builder, in_features, c.hidden_size, c.hidden_dropout_prob);
    },
    [](const Builder& builder, std::int64_t hidden_size) -> std::function<Tensor(const Tensor&)> {
      return LayerNorm(builder, hidden_size);
    }};

}  // namespace

void read_deberta_config(ConfigReader& reader, const ModelClass& of, DebertaV2Config& c) {
  read_encoder(reader, of, c);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.pooler_hidden_act = reader.activation("pooler_hidden_act", c.pooler_hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", c.hidden_dropout_prob, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 0, 1);
  c.pooler_dropout = reader.number("pooler_dropout", c.pooler_dropout, 0, 1);
  c.cls_dropout = reader.optional_number("cls_dropout", 0, 1).value_or(c.hidden_dropout_prob);
  c.type_vocab_size = reader.integer("type_vocab_size", 0, non_negative);
  c.relative_attention = reader.boolean("relative_attention", false);
  c.position_biased_input = reader.boolean("position_biased_input", true);
  c.share_att_key = reader.boolean("share_att_key", false);
  const std::string types = read_names(reader, "pos_att_type");
  c.c2p = types.find("c2p") != std::string::npos;
  c.p2c = types.find("p2c") != std::string::npos;
  c.normalises_positions = read_names(reader, "norm_rel_ebd").find("layer_norm") != std::string::npos;
  constexpr Range any{-1, 1 << 20};
  c.position_buckets = std::max<std::int64_t>(0, reader.integer("position_buckets", -1, any));
  c.max_relative_positions = reader.integer("max_relative_positions", -1, any);
  if (c.max_relative_positions < 1) c.max_relative_positions = c.max_position_embeddings;
  c.names_problem = reader.has("problem_type");
  check_encoder_heads(reader, c);
  if (reader.optional_integer("conv_kernel_size", non_negative).value_or(0) != 0)
    reader.fail_found("conv_kernel_size", "not-modelled", "the convolution of the largest v2 is not supported yet");
  if (!reader.boolean("legacy", true))
    reader.fail_found("legacy", "not-modelled", "the other head of masked tokens is not supported yet: expected true");
  for (const char* key : {"pooler_hidden_size", "embedding_size", "attention_head_size"}) {
    const std::int64_t usual = key[0] == 'a' ? c.head_dim() : c.hidden_size;
    if (reader.optional_integer(key).value_or(usual) != usual)
      reader.fail_found(key, "not-modelled",
                        "a width of its own is not supported yet: expected " + std::to_string(usual));
  }
  reader.ignore({"conv_act", "conv_groups", "position_embedding_type", "pooling", "summary_type"});
}

namespace {

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DebertaV2Config c;
  c.classes = &kVersion2;
  c.vocab_size = 128'100;
  c.hidden_size = 1536;
  c.num_hidden_layers = c.num_attention_heads = 24;
  c.intermediate_size = 6144;
  read_deberta_config(reader, of, c);
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<DebertaV2Config>();
  ModelTraits t = encoder_traits(c, "deberta");
  // peft 0.21, utils/constants.py
  t.lora_targets = {"query_proj", "value_proj"};
  t.ia3_targets = {"key_proj", "value_proj", "output.dense"};
  t.ia3_feedforward = {"output.dense"};
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "the class has attention of its own: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family deberta_v2{
    .classes = kClasses,
    .blocks = kBlocks,
    .read = read,
    .build =
        [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
          return build_deberta_v2(context, config.as<DebertaV2Config>(), data, options);
        },
    .traits = traits,
    .largest_tensor =
        [](const FamilyConfig& config, const DataConfig& data) {
          return largest_tensor_of_encoder(config.as<DebertaV2Config>(), data);
        }};
}  // namespace family

}  // namespace oometer
