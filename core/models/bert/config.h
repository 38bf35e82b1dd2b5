#pragma once

#include <cstdint>

#include "models/kit/encoder.h"

/// transformers 5.23, models/bert/configuration_bert.py: the fields that decide memory.
namespace oometer {

/// What the classes of a family that copies BERT's are called, and what it does otherwise.
struct BertClassNames {
  const char* base;  ///< the attribute that holds the model: "bert"
  const char *model, *embeddings, *encoder, *layer, *attention, *self_attention, *self_output, *intermediate, *output,
      *pooler;
  const char *masked_lm, *sequence_classification, *token_classification;
  bool is_roberta = false;         ///< positions are counted from the tokens that are not padding
  bool has_roberta_heads = false;  ///< heads are RobertaLMHead and RobertaClassificationHead
  bool is_electra = false;         ///< embeddings of a width of their own, no pooler, heads of its own
  const char *lm_head = "BertOnlyMLMHead", *classification_head = "";  ///< the second of RoBERTa alone
  bool lm_head_bias = true;       ///< RobertaLMHead has one, which its decoder takes
  bool head_first = false;  ///< classes make their head before the model
  bool model_pools = true;        ///< the class without a head has a pooler
  /// The class's defaults.
  std::int64_t vocab_size = 30522, pad_token_id = 0, max_position_embeddings = 512, type_vocab_size = 2;
  std::int64_t hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072;
  Activation hidden_act = Activation::gelu;
  double dropout = 0.1, attention_dropout = dropout;
};

/// class BertConfig; those of its copies have the same fields.
struct BertConfig : EncoderConfig {
  const BertClassNames* names = nullptr;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double classifier_dropout = 0.1;  ///< hidden_dropout_prob unless the config says another
  std::int64_t type_vocab_size = 2;
  std::int64_t embedding_size = 0;  ///< 0: hidden_size
  std::int64_t pad_token_id = 0;
  std::int64_t task_type_vocab_size = 0;  ///< 0: embeddings are of no task (ErnieEmbeddings)

  std::int64_t width_of_embeddings() const { return embedding_size == 0 ? hidden_size : embedding_size; }
  /// Tokens that it takes: RoBERTa's positions begin behind the padding's.
  std::int64_t longest() const;

  bool operator==(const BertConfig&) const = default;
};

BertConfig read_bert_config(ConfigReader& reader, const BertClassNames& names, const ModelClass& of);

}  // namespace oometer
