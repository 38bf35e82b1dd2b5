#pragma once

#include <cstdint>
#include <utility>

#include "config/activation.h"

namespace oometer {

class ConfigReader;

/// transformers 5.23, models/pixtral/configuration_pixtral.py, class PixtralVisionConfig: the fields that decide
/// memory.
struct PixtralVisionConfig {
  std::int64_t hidden_size = 1024;
  std::int64_t intermediate_size = 4096;
  std::int64_t num_hidden_layers = 24;
  std::int64_t num_attention_heads = 16;
  std::int64_t num_channels = 3;
  std::int64_t image_size = 1024;  ///< pixels; the processor's longest_edge, as published models have it
  std::int64_t patch_size = 16;
  Activation hidden_act = Activation::gelu;
  double attention_dropout = 0;

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }

  bool operator==(const PixtralVisionConfig&) const = default;
};

PixtralVisionConfig read_pixtral_vision_config(ConfigReader& reader);

/// Rows and columns of so many pixels each that PixtralImageProcessor makes of an image
/// (models/pixtral/image_processing_pixtral.py, get_resize_output_image_size).
std::pair<std::int64_t, std::int64_t> pixtral_cells(std::int64_t height, std::int64_t width, std::int64_t longest_edge,
                                                    std::int64_t cell);

}  // namespace oometer
