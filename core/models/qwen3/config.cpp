#include "models/qwen3/config.h"

#include "config/reader.h"
#include "models/qwen2/config.h"

namespace oometer {

LlamaConfig read_qwen3_config(ConfigReader& reader) {
  LlamaConfig defaults;
  defaults.names = &kQwen3ClassNames;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.max_position_embeddings = 32768;
  LlamaConfig c = read_llama_sizes(reader, defaults);
  c.head_dim = reader.integer("head_dim", 128);  // whatever hidden_size is
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  read_layer_types(reader, c, 28);
  return c;
}

}  // namespace oometer
