#include "models/qwen2/config.h"

#include "config/reader.h"

namespace oometer {

LlamaConfig read_qwen2_config(ConfigReader& reader) {
  LlamaConfig defaults;
  defaults.names = &kQwen2ClassNames;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 4096;
  defaults.intermediate_size = 22016;
  defaults.num_hidden_layers = 32;
  defaults.num_attention_heads = defaults.num_key_value_heads = 32;
  defaults.max_position_embeddings = 32768;
  defaults.qkv_bias = true;
  LlamaConfig c = read_llama_sizes(reader, defaults);
  check_llama_heads(reader, c);
  read_layer_types(reader, c, 28);
  return c;
}

}  // namespace oometer
