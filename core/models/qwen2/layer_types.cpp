#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/qwen2/config.h"

namespace oometer {

void read_layer_types(ConfigReader& reader, LlamaConfig& c, std::int64_t max_window_layers) {
  // __post_init__: the layers from max_window_layers on slide, if any do; layer_types may name them one by one.
  const bool slides = reader.boolean("use_sliding_window", false);
  const bool is_null = reader.is_null("sliding_window");
  const std::int64_t window = reader.optional_integer("sliding_window", non_negative).value_or(is_null ? 0 : 4096);
  const std::int64_t first = reader.integer("max_window_layers", max_window_layers, non_negative);
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  std::vector<std::int64_t> layer_windows(layers);
  bool any = false;
  for (std::size_t i = 0; i < layers; ++i) {
    const bool has_window = types.empty() ? slides && window != 0 && static_cast<std::int64_t>(i) >= first
                                          : i < types.size() && types[i] == "sliding_attention";
    if (has_window) layer_windows[i] = window;
    any |= has_window;
    if (i < types.size() && !has_window && types[i] != "full_attention")
      reader.fail("layer_types", "not-modelled",
                  "found \"" + types[i] + "\"; \"full_attention\" and \"sliding_attention\" are what this class knows");
  }
  if (!any) return;
  if (!slides || window == 0)
    reader.fail_found("layer_types", "inconsistent",
                      "layers that slide need \"use_sliding_window\": true and a sliding_window beside them");
  c.sliding_window = window;
  c.layer_windows = std::move(layer_windows);
}

}  // namespace oometer
