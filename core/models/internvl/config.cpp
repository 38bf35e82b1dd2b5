#include "models/internvl/config.h"

#include <string>

#include "config/reader.h"
#include "models/kit/image_text.h"
#include "models/registry.h"

namespace oometer {

std::int64_t InternVLConfig::tiles(std::int64_t height, std::int64_t width) const {
  const std::int64_t best = nearest_tiles(height, width, vision.image_size, 12);
  return best == 1 ? 1 : best + 1;
}

namespace {

/// A number, or the same one twice: [height, width].
std::int64_t read_side(ConfigReader& reader, const char* key, std::int64_t fallback) {
  constexpr Range kPixels{1, 65'536};
  if (!reader.is_list(key)) return reader.integer(key, fallback, kPixels);
  const std::vector<std::int64_t> sides = reader.integers(key, kPixels);
  if (sides.size() == 2 && sides[0] == sides[1]) return sides[0];
  reader.fail_found(key, "not-modelled", "expected a square, as all published models have");
  return fallback;
}

InternVisionConfig read_vision(ConfigReader& reader, const InternVLFamily& family) {
  InternVisionConfig c;
  c.family = &family;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  c.image_size = read_side(reader, "image_size", c.image_size);
  c.patch_size = read_side(reader, "patch_size", c.patch_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_bias = reader.boolean("attention_bias", family.is_qianfan);
  c.use_qk_norm = reader.boolean("use_qk_norm", false);
  c.rms_norm = reader.choice("norm_type", false, {{"layer_norm", false}, {"rms_norm", true}});
  c.use_mask_token = reader.boolean("use_mask_token", false);
  c.has_positions = reader.boolean("use_absolute_position_embeddings", true);
  c.use_mean_pooling = reader.boolean("use_mean_pooling", true);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", 0.0, 0.0, 1.0);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);
  c.projection_dropout = reader.number("projection_dropout", 0.0, 0.0, 1.0);
  if (family.is_qianfan) c.drop_path_rate = reader.number("drop_path_rate", 0.1, 0.0, 1.0);
  reader.ignore({"model_type", "layer_scale_init_value"});
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.patch_size > c.image_size)
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most image_size (" + std::to_string(c.image_size) + "): no patch fits");
  return c;
}

}  // namespace

InternVLConfig read_internvl_config(ConfigReader& reader, const InternVLFamily& family) {
  InternVLConfig c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision(vision, family);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.text = read_language_config(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", !family.is_qianfan);
  c.shuffle = static_cast<std::int64_t>(1.0 / reader.number("downsample_ratio", 0.5, 0.01, 1.0));
  c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
  c.vision_feature_layer = reader.integer("vision_feature_layer", -1, {-layer_count.max, -1});
  c.drops_class_token = reader.choice("vision_feature_select_strategy", true, {{"default", true}, {"full", false}});
  reader.ignore({"image_token_id", "image_seq_length"});
  if (c.vision_feature_layer < -c.vision.num_hidden_layers - 1)
    reader.fail_found("vision_feature_layer", "inconsistent",
                      "expected one of the tower's " + std::to_string(c.vision.num_hidden_layers) + " layers");
  if (!c.drops_class_token)
    reader.fail_found("vision_feature_select_strategy", "inconsistent",
                      "with the class token features are no square: expected default");
  if (c.vision.patches_per_side() % c.shuffle != 0)
    reader.fail_found("downsample_ratio", "inconsistent",
                      "expected one that divides the " + std::to_string(c.vision.patches_per_side()) +
                          " patches along a tile's side");
  return c;
}

}  // namespace oometer
