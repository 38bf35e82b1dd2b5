#include "models/olmo2/config.h"

#include "config/reader.h"

namespace oometer {

LlamaConfig read_olmo2_config(ConfigReader& reader) {
  LlamaConfig defaults;
  defaults.names = &kOlmo2ClassNames;
  defaults.vocab_size = 50304;
  LlamaConfig c = read_llama_sizes(reader, defaults);
  if (!reader.has("num_key_value_heads")) c.num_key_value_heads = c.num_attention_heads;
  if (reader.has("head_dim")) c.head_dim = reader.integer("head_dim", c.head_dim);  // null: Olmo2Attention fails
  c.has_pad_token = !reader.is_null("pad_token_id");                                // 1 where the config says nothing
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  return c;
}

}  // namespace oometer
