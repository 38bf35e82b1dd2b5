#include "models/glm4v/config.h"

#include <string>

#include "config/reader.h"
#include "models/kit/grids.h"

namespace oometer {

namespace {

Glm4vVisionConfig read_glm4v_vision(ConfigReader& reader, const Glm4vClass& of) {
  constexpr Range kPatchRange{1, 1 << 16};
  Glm4vVisionConfig c;
  c.of = &of;
  if (of.is_ocr()) {
    c.hidden_size = 1024;
    c.num_heads = 16;
    c.out_hidden_size = 1536;
    c.intermediate_size = 4096;
  }
  c.depth = reader.integer("depth", c.depth, layer_count);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_heads = reader.integer("num_heads", c.num_heads);
  c.in_channels = reader.integer("in_channels", c.in_channels, {1, 1024});
  c.image_size = reader.integer("image_size", c.image_size, kPatchRange);
  c.patch_size = reader.integer("patch_size", c.patch_size, kPatchRange);
  c.spatial_merge_size = reader.integer("spatial_merge_size", c.spatial_merge_size, {1, 1024});
  c.temporal_patch_size = reader.integer("temporal_patch_size", c.temporal_patch_size, {1, 1024});
  c.out_hidden_size = reader.integer("out_hidden_size", c.out_hidden_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_bias = reader.boolean("attention_bias", of.is_ocr());
  if (reader.number("attention_dropout", 0, 0, 1) != 0)
    reader.fail_found("attention_dropout", "not-modelled", "dropout in this tower is not supported yet: expected 0");
  reader.ignore({"model_type", "rms_norm_eps", "rope_parameters", "rope_theta", "hidden_dropout_prob"});
  check_axial_heads(reader, c.hidden_size, "num_heads", c.num_heads);
  if (c.side() == 0) reader.fail_found("image_size", "inconsistent", "expected a patch or more");
  return c;
}

}  // namespace

Glm4vConfig read_glm4v_config(ConfigReader& reader, const Glm4vClass& of) {
  Glm4vConfig c;
  c.of = &of;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_glm4v_vision(vision, of);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.text = of.has_experts() ? read_glm4v_moe_text(text) : read_glm4v_text(text, of);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  if (&of != &kGlm46V) c.tie_word_embeddings = c.tie_word_embeddings || c.text.tie_word_embeddings;  // __post_init__
  reader.ignore({"image_token_id", "video_token_id", "image_start_token_id", "image_end_token_id",
                 "video_start_token_id", "video_end_token_id"});
  if (c.vision.out_hidden_size != c.text.hidden_size)
    vision.fail_found("out_hidden_size", "inconsistent",
                      "expected the language model's hidden size (" + std::to_string(c.text.hidden_size) + ")");
  return c;
}

}  // namespace oometer
