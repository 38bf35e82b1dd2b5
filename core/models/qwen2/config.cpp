#include "models/qwen2/config.h"

#include <algorithm>

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
  const LlamaConfig c = read_llama_sizes(reader, defaults);
  check_llama_heads(reader, c);
  check_full_attention(reader, c, 28);
  return c;
}

void check_full_attention(ConfigReader& reader, const LlamaConfig& c, std::int64_t max_window_layers) {
  // __post_init__: the layers from max_window_layers on slide, if any do; layer_types may name them one by one.
  const bool slides = reader.boolean("use_sliding_window", false);
  const bool has_window = reader.optional_integer("sliding_window", non_negative) || !reader.is_null("sliding_window");
  const std::int64_t first = reader.integer("max_window_layers", max_window_layers, non_negative);
  const std::vector<std::string> types = reader.texts("layer_types");
  const bool named = std::find(types.begin(), types.end(), "sliding_attention") != types.end();
  if (named || (types.empty() && slides && has_window && first < c.num_hidden_layers))
    reader.fail_found(named ? "layer_types" : "use_sliding_window", "not-modelled",
                      "sliding-window attention is not modelled: full attention in every layer belongs here");
}

}  // namespace oometer
