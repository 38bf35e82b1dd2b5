#include "models/bert/config.h"

#include "config/reader.h"

namespace oometer {

std::int64_t BertConfig::longest() const {
  return names->is_roberta ? max_position_embeddings - pad_token_id - 1 : max_position_embeddings;
}

BertConfig read_bert_config(ConfigReader& reader, const BertClassNames& names, const ModelClass& of) {
  BertConfig c;
  c.names = &names;
  c.vocab_size = names.vocab_size;
  c.max_position_embeddings = names.max_position_embeddings;
  c.hidden_size = names.hidden_size;
  c.num_hidden_layers = names.num_hidden_layers;
  c.num_attention_heads = names.num_attention_heads;
  c.intermediate_size = names.intermediate_size;
  c.hidden_act = names.hidden_act;
  c.hidden_dropout_prob = names.dropout;
  c.attention_probs_dropout_prob = names.attention_dropout;
  c.type_vocab_size = names.type_vocab_size;
  read_encoder(reader, of, c);
  if (names.is_electra) {
    c.embedding_size = reader.integer("embedding_size", 128);
    reader.ignore({"summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"});
  }
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", c.hidden_dropout_prob, 0, 1);
  c.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 0, 1);
  c.classifier_dropout = reader.optional_number("classifier_dropout", 0, 1).value_or(c.hidden_dropout_prob);
  c.type_vocab_size = reader.integer("type_vocab_size", c.type_vocab_size);
  c.pad_token_id = c.has_pad_token ? reader.integer("pad_token_id", names.pad_token_id, {0, c.vocab_size - 1}) : 0;
  reader.ignore({"position_embedding_type", "gradient_checkpointing", "model_max_length"});
  if (names.is_roberta && !c.has_pad_token)
    reader.fail_found("pad_token_id", "inconsistent", "positions are counted from it: expected a number");
  check_encoder_heads(reader, c);
  if (reader.boolean("is_decoder", false) || reader.boolean("add_cross_attention", false))
    reader.fail_found("is_decoder", "not-modelled", "decoders of this kind are not supported yet: expected false");
  if (reader.optional_integer("chunk_size_feed_forward", non_negative).value_or(0) != 0)
    reader.fail_found("chunk_size_feed_forward", "not-modelled", "this is not supported yet: expected 0");
  return c;
}

}  // namespace oometer
