#pragma once

#include <cstdint>

#include "config/activation.h"

/// transformers 5.23, models/bert/configuration_bert.py: the fields that decide memory.
namespace oometer {

class ConfigReader;

/// What the classes of a family that copies BERT's are called, and what it does otherwise.
struct BertClassNames {
  const char* base;  ///< the attribute that holds the model: "bert"
  const char *model, *embeddings, *encoder, *layer, *attention, *self_attention, *self_output, *intermediate, *output,
      *pooler;
  const char *masked_lm, *sequence_classification, *token_classification;
  /// RoBERTa: positions are counted from the tokens that are not padding, and the heads are its own.
  bool is_roberta = false;
  const char *lm_head = "BertOnlyMLMHead", *classification_head = "";  ///< the second of RoBERTa alone
  bool head_first = false;                                             ///< ForMaskedLM makes its head before the model
  std::int64_t vocab_size = 30522, pad_token_id = 0;                   ///< the class's defaults
};

/// What stands on top of the encoder.
enum class EncoderHead : std::uint8_t { none, masked_lm, sequence_classification, token_classification };

/// class BertConfig; those of its copies have the same fields.
struct BertConfig {
  const BertClassNames* names = nullptr;
  EncoderHead head = EncoderHead::none;
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  Activation hidden_act = Activation::gelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double classifier_dropout = 0.1;  ///< hidden_dropout_prob unless the config says another
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  std::int64_t num_labels = 2;
  std::int64_t pad_token_id = 0;
  bool has_pad_token = true;
  bool tie_word_embeddings = true;

  const char* class_name() const;
  /// Tokens that it takes: RoBERTa's positions begin behind the padding's.
  std::int64_t longest() const;

  bool operator==(const BertConfig&) const = default;
};

/// `class_name`: of ModelClass, one of those in `names`.
BertConfig read_bert_config(ConfigReader& reader, const BertClassNames& names, const char* class_name);

/// num_labels, or as many as id2label names (PreTrainedConfig).
std::int64_t read_num_labels(ConfigReader& reader);

}  // namespace oometer
