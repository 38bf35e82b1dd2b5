#include "models/kit/text_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include "config/reader.h"

namespace oometer {

TextConfig read_text_sizes(ConfigReader& reader, const TextConfig& defaults, std::int64_t usual_head_dim) {
  TextConfig c = defaults;
  static_cast<LlamaConfig&>(c) = read_llama_sizes(reader, defaults);
  if (!reader.has("num_key_value_heads") && defaults.num_key_value_heads == 0)
    c.num_key_value_heads = c.num_attention_heads;
  if (!reader.has("attention_dropout")) c.attention_dropout = defaults.attention_dropout;
  if (usual_head_dim != 0 && !reader.has("head_dim") && !reader.is_null("head_dim")) c.head_dim = usual_head_dim;
  if (!reader.has("tie_word_embeddings")) c.tie_word_embeddings = defaults.tie_word_embeddings;
  if (!reader.has("pad_token_id") && !reader.is_null("pad_token_id")) c.has_pad_token = defaults.has_pad_token;
  return c;
}

void read_partial_rotary(ConfigReader& reader, TextConfig& c, double usual) {
  double factor = reader.number("partial_rotary_factor", usual, 0, 1);
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (reader.is_object(key)) factor = reader.object(key).number("partial_rotary_factor", factor, 0, 1);
  c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(c.head_dim) * factor);
  if (c.rotary_dim % 2 != 0 || c.rotary_dim == 0)
    reader.fail("partial_rotary_factor", "inconsistent",
                "of each head " + std::to_string(c.rotary_dim) + " elements are rotated; expected an even number");
}

bool TextConfig::has_both_types() const {
  return std::count(layer_windows.begin(), layer_windows.end(), 0) % num_hidden_layers != 0;
}

void read_mixed_layers(ConfigReader& reader, TextConfig& c, std::int64_t pattern, std::int64_t usual_window) {
  const std::int64_t window = reader.integer("sliding_window", usual_window);
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  c.sliding_window = window;
  c.layer_windows.assign(layers, 0);
  for (std::size_t i = 0; i < layers; ++i) {
    const bool slides = pattern == 0 || (static_cast<std::int64_t>(i) + 1) % pattern != 0;
    const std::string type = i < types.size() ? types[i] : slides ? "sliding_attention" : "full_attention";
    if (type == "sliding_attention")
      c.layer_windows[i] = window;
    else if (type != "full_attention")
      reader.fail("layer_types", "not-modelled",
                  "found \"" + type + "\"; \"full_attention\" and \"sliding_attention\" are what this class knows");
  }
}

void read_mixer_layers(ConfigReader& reader, TextConfig& c, const char* mixer, std::int64_t pattern) {
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  c.mixer.layers.assign(layers, false);
  for (std::size_t i = 0; i < layers; ++i) {
    const bool attends =
        i < types.size() ? types[i] == "full_attention" : (static_cast<std::int64_t>(i) + 1) % pattern == 0;
    c.mixer.layers[i] = !attends;
    if (i < types.size() && !attends && types[i] != mixer)
      reader.fail("layer_types", "not-modelled",
                  "found \"" + types[i] + "\"; \"full_attention\" and \"" + mixer + "\" are what this class knows");
  }
}

void share_hidden_size(ConfigReader& reader, TextConfig& c) {
  c.head_dim = std::max<std::int64_t>(1, c.hidden_size / c.num_attention_heads);
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
}

}  // namespace oometer
