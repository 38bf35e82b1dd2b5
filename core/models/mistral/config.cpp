#include "models/mistral/config.h"

#include "config/reader.h"

namespace oometer {

LlamaConfig read_mistral_config(ConfigReader& reader) {
  LlamaConfig defaults;
  defaults.names = &kMistralClassNames;
  defaults.intermediate_size = 14336;
  defaults.num_key_value_heads = 8;
  defaults.max_position_embeddings = 131'072;
  LlamaConfig c = read_llama_sizes(reader, defaults);
  check_llama_heads(reader, c);
  if (!reader.is_null("sliding_window")) c.sliding_window = reader.integer("sliding_window", 4096);
  return c;
}

}  // namespace oometer
