#include "models/bert/config.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "config/reader.h"

namespace oometer {

namespace {

EncoderHead head_of(const BertClassNames& names, std::string_view class_name) {
  if (class_name == names.masked_lm) return EncoderHead::masked_lm;
  if (class_name == names.sequence_classification) return EncoderHead::sequence_classification;
  if (class_name == names.token_classification) return EncoderHead::token_classification;
  return EncoderHead::none;
}

}  // namespace

const char* BertConfig::class_name() const {
  switch (head) {
    case EncoderHead::masked_lm:
      return names->masked_lm;
    case EncoderHead::sequence_classification:
      return names->sequence_classification;
    case EncoderHead::token_classification:
      return names->token_classification;
    case EncoderHead::none:
      break;
  }
  return names->model;
}

std::int64_t BertConfig::longest() const {
  return names->is_roberta ? max_position_embeddings - pad_token_id - 1 : max_position_embeddings;
}

std::int64_t read_num_labels(ConfigReader& reader) {
  const nlohmann::json* labels = reader.find("id2label");
  const std::int64_t named = labels && labels->is_object() ? static_cast<std::int64_t>(labels->size()) : 2;
  return reader.integer("num_labels", named);
}

BertConfig read_bert_config(ConfigReader& reader, const BertClassNames& names, const char* class_name) {
  BertConfig c;
  c.names = &names;
  c.head = head_of(names, class_name);
  c.vocab_size = reader.integer("vocab_size", names.vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", c.hidden_dropout_prob, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 0, 1);
  c.classifier_dropout = reader.optional_number("classifier_dropout", 0, 1).value_or(c.hidden_dropout_prob);
  c.max_position_embeddings = reader.integer("max_position_embeddings", c.max_position_embeddings);
  c.type_vocab_size = reader.integer("type_vocab_size", c.type_vocab_size);
  c.num_labels = read_num_labels(reader);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  c.pad_token_id = c.has_pad_token ? reader.integer("pad_token_id", names.pad_token_id, {0, c.vocab_size - 1}) : 0;
  reader.ignore({"position_embedding_type", "gradient_checkpointing", "model_max_length"});
  if (names.is_roberta && !c.has_pad_token)
    reader.fail_found("pad_token_id", "inconsistent", "positions are counted from it: expected a number");
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (reader.boolean("is_decoder", false) || reader.boolean("add_cross_attention", false))
    reader.fail_found("is_decoder", "not-modelled", "decoders of this kind are not supported yet: expected false");
  if (reader.optional_integer("chunk_size_feed_forward", non_negative).value_or(0) != 0)
    reader.fail_found("chunk_size_feed_forward", "not-modelled", "this is not supported yet: expected 0");
  if (c.head == EncoderHead::sequence_classification) {
    const std::string problem = reader.text("problem_type", "");
    if ((problem.empty() && c.num_labels == 1) || (!problem.empty() && problem != "single_label_classification"))
      reader.fail(problem.empty() ? "num_labels" : "problem_type", "not-modelled",
                  "regression and several labels at once have losses that are not supported yet; expected "
                  "single_label_classification with two labels or more");
  }
  return c;
}

}  // namespace oometer
