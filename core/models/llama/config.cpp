#include "models/llama/config.h"

#include "config/reader.h"

namespace oometer {

LlamaConfig read_llama_sizes(ConfigReader& reader, const LlamaConfig& defaults) {
  LlamaConfig c = defaults;
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_key_value_heads = reader.is_null("num_key_value_heads")
                              ? c.num_attention_heads
                              : reader.integer("num_key_value_heads", c.num_key_value_heads);
  c.max_position_embeddings = reader.integer("max_position_embeddings", c.max_position_embeddings);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  c.head_dim = reader.optional_integer("head_dim").value_or(c.hidden_size / c.num_attention_heads);
  // nn.Embedding(padding_idx=pad_token_id) refuses an index outside the vocabulary.
  c.has_pad_token = reader.optional_integer("pad_token_id", {-c.vocab_size, c.vocab_size - 1}).has_value();
  return c;
}

void check_llama_heads(ConfigReader& reader, const LlamaConfig& c) {
  // LlamaRotaryEmbedding.compute_default_rope_parameters and rotate_half: two halves.
  if (c.head_dim % 2 != 0 || c.head_dim == 0) {
    reader.fail(reader.has("head_dim") ? "head_dim" : "hidden_size", "inconsistent",
                "the size of a head is " + std::to_string(c.head_dim) + "; rotary embeddings need an even one");
  }
  // repeat_kv gives num_key_value_heads * (num_attention_heads // num_key_value_heads) heads; attention needs all.
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "expected a divisor of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  }
}

LlamaConfig read_llama_config(ConfigReader& reader) {
  LlamaConfig c = read_llama_sizes(reader, {});
  if (!reader.has("num_key_value_heads")) c.num_key_value_heads = c.num_attention_heads;
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  reader.ignore({"pretraining_tp"});  // kept for old checkpoints; the modelling code of 5.x never reads it
  // LlamaConfig.validate_architecture.
  if (c.hidden_size % c.num_attention_heads != 0) {
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  }
  check_llama_heads(reader, c);
  return c;
}

}  // namespace oometer
