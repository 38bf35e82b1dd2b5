#include "models/siglip/config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reader.h"

namespace oometer {

ClipVisionConfig read_siglip_vision_config(ConfigReader& reader) {
  ClipVisionConfig defaults;
  defaults.family = &kSiglipVision;
  defaults.patch_size = 16;
  defaults.hidden_act = Activation::gelu_tanh;
  ClipVisionConfig c = read_vision_sizes(reader, defaults);
  c.has_head = reader.boolean("vision_use_head", true);
  reader.ignore({"projection_dim", "vocab_size", "num_image_tokens"});  // in published configs; the class reads none
  return c;
}

ClipVisionConfig read_siglip2_vision_config(ConfigReader& reader, std::int64_t& num_positions) {
  ClipVisionConfig defaults;
  defaults.family = &kSiglip2Vision;
  defaults.patch_size = 16;
  defaults.image_size = 65'536;  // the class has none
  defaults.hidden_act = Activation::gelu_tanh;
  ClipVisionConfig c = read_vision_sizes(reader, defaults);
  num_positions = reader.integer("num_patches", 256);
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(num_positions)));
  if (side * side != num_positions)
    reader.fail_found("num_patches", "inconsistent", "expected the patches of a square");
  c.has_head = reader.boolean("vision_use_head", true);
  reader.ignore({"model_type", "layer_norm_eps", "image_size"});
  return c;
}

// get_image_size_for_max_num_patches (models/siglip2/image_processing_siglip2.py), with Python's arithmetic
std::pair<std::int64_t, std::int64_t> SiglipConfig::cut(std::int64_t height, std::int64_t width) const {
  constexpr double kEps = 1e-5;
  const double patch = static_cast<double>(vision.patch_size);
  const auto cells = [&](double scale, std::int64_t size) {
    return std::max(1.0, std::ceil(static_cast<double>(size) * scale / patch));
  };
  double least = kEps / 10, most = 100.0;
  while (most - least >= kEps) {
    const double scale = (least + most) / 2;
    (cells(scale, height) * cells(scale, width) <= static_cast<double>(num_patches) ? least : most) = scale;
  }
  return {static_cast<std::int64_t>(cells(least, height)), static_cast<std::int64_t>(cells(least, width))};
}

namespace {

ClipTextConfig read_siglip_text(ConfigReader& reader, std::int64_t& projection_size) {
  ClipTextConfig c;
  c.vocab_size = reader.integer("vocab_size", 32000);
  c.hidden_size = reader.integer("hidden_size", 768);
  c.intermediate_size = reader.integer("intermediate_size", 3072);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 12, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 12);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 64);
  c.hidden_act = reader.activation("hidden_act", Activation::gelu_tanh);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);
  projection_size = reader.optional_integer("projection_size").value_or(c.hidden_size);
  reader.ignore({"model_type", "layer_norm_eps", "projection_dim"});
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  return c;
}

}  // namespace

SiglipConfig read_siglip_config(ConfigReader& reader, bool has_text, bool is_naflex) {
  SiglipConfig c;
  c.has_text = has_text;
  ConfigReader vision = reader.object("vision_config");
  c.vision = is_naflex ? read_siglip2_vision_config(vision, c.num_patches) : read_siglip_vision_config(vision);
  vision.finish();
  if (!has_text) {
    reader.ignore({"text_config", "initializer_factor"});
    return c;
  }
  ConfigReader text = reader.object("text_config");
  c.text = read_siglip_text(text, c.projection_size);
  text.finish();
  reader.ignore({"initializer_factor"});
  if (!c.vision.has_head)
    vision.fail_found("vision_use_head", "inconsistent", "expected true: the loss compares what the head gives");
  if (c.projection_size != c.vision.hidden_size)
    text.fail_found("projection_size", "inconsistent",
                    "expected the tower's hidden size (" + std::to_string(c.vision.hidden_size) + ")");
  return c;
}

}  // namespace oometer
