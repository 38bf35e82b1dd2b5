#pragma once

#include <cstdint>

#include "models/kit/text_config.h"
#include "models/pixtral/config.h"

namespace oometer {

/// transformers 5.23, models/mistral3/configuration_mistral3.py, class Mistral3Config: Pixtral's tower, and Mistral's
/// or Ministral 3's text.
struct Mistral3Config {
  PixtralVisionConfig vision;
  TextConfig text;
  bool is_ministral3 = false;
  std::int64_t spatial_merge_size = 2;
  bool projector_bias = false;
  Activation projector_hidden_act = Activation::gelu;
  bool tie_word_embeddings = true;

  /// Pixels along a side of what becomes one token of the language model.
  std::int64_t cell() const { return vision.patch_size * spatial_merge_size; }

  bool operator==(const Mistral3Config&) const = default;
};

Mistral3Config read_mistral3_config(ConfigReader& reader);

}  // namespace oometer
