#pragma once

#include <cstdint>

#include "models/kit/text_config.h"

namespace oometer {

/// transformers 5.23, models/gemma4/configuration_gemma4.py, class Gemma4TextConfig. What TextConfig has of heads is
/// that of layers that slide.
struct Gemma4TextConfig : TextConfig {
  std::int64_t global_head_dim = 512;           ///< of layers that see all
  std::int64_t num_global_key_value_heads = 4;  ///< of these; null in a config: num_key_value_heads
  bool attention_k_eq_v = false;                ///< in these, keys are projected and taken for values too
  std::int64_t num_kv_shared_layers = 0;        ///< the last ones take the keys and values of others
  bool use_double_wide_mlp = false;             ///< in those
  bool projects_before_norms = false;  ///< its norms are made behind its projections, values projected behind keys
  std::int64_t hidden_size_per_layer_input = 256;  ///< 0: layers have no embeddings of their own
  std::int64_t vocab_size_per_layer_input = 262'144;

  bool slides(std::size_t layer) const { return window_of(layer) != 0; }
  std::int64_t head_dim_of(std::size_t layer) const { return slides(layer) ? head_dim : global_head_dim; }
  std::int64_t key_value_heads_of(std::size_t layer) const {
    return slides(layer) ? num_key_value_heads : num_global_key_value_heads;
  }
  /// Layers [this, num_hidden_layers) have no keys and values of their own.
  std::size_t first_shared_layer() const { return static_cast<std::size_t>(num_hidden_layers - num_kv_shared_layers); }
  /// kv_sharing_modes: "store", the last layer of its type that has its own.
  bool stores(std::size_t layer) const;
  /// No later layer is of its type.
  bool is_last_of_its_type(std::size_t layer) const;

  bool operator==(const Gemma4TextConfig&) const = default;
};

Gemma4TextConfig read_gemma4_text_config(ConfigReader& reader);
/// class Gemma4UnifiedTextConfig of models/gemma4_unified.
Gemma4TextConfig read_gemma4_unified_text_config(ConfigReader& reader);

}  // namespace oometer
