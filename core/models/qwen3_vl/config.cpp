#include "models/qwen3_vl/config.h"

#include <string>

#include "config/reader.h"
#include "models/kit/grids.h"

namespace oometer {

Qwen3VisionConfig read_qwen3_vision(ConfigReader& reader, bool has_deepstack) {
  constexpr Range kPatchRange{1, 1 << 16};
  Qwen3VisionConfig c;
  c.depth = reader.integer("depth", c.depth, layer_count);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_heads = reader.integer("num_heads", c.num_heads);
  c.in_channels = reader.integer("in_channels", c.in_channels, {1, 1024});
  c.patch_size = reader.integer("patch_size", c.patch_size, kPatchRange);
  c.spatial_merge_size = reader.integer("spatial_merge_size", c.spatial_merge_size, {1, 1024});
  c.temporal_patch_size = reader.integer("temporal_patch_size", c.temporal_patch_size, {1, 1024});
  c.out_hidden_size = reader.integer("out_hidden_size", c.out_hidden_size);
  c.num_position_embeddings = reader.integer("num_position_embeddings", c.num_position_embeddings);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  if (!has_deepstack)
    c.deepstack_visual_indexes.clear();
  else if (reader.has("deepstack_visual_indexes"))
    c.deepstack_visual_indexes = reader.integers("deepstack_visual_indexes", {0, layer_count.max});
  reader.ignore({"model_type", "deepstack_visual_indexes"});
  check_axial_heads(reader, c.hidden_size, "num_heads", c.num_heads);
  for (std::size_t i = 0; i < c.deepstack_visual_indexes.size(); ++i)
    if (c.deepstack_visual_indexes[i] >= c.depth ||
        (i > 0 && c.deepstack_visual_indexes[i] <= c.deepstack_visual_indexes[i - 1]))
      reader.fail_found("deepstack_visual_indexes", "inconsistent",
                        "expected growing numbers of blocks below depth (" + std::to_string(c.depth) + ")");
  return c;
}

Qwen3VLConfig read_qwen3_vl_config(ConfigReader& reader, const Qwen3VLClass& of) {
  Qwen3VLConfig c;
  c.of = &of;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_qwen3_vision(vision, of.has_deepstack);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.text = of.read_text(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"});
  if (c.vision.out_hidden_size != c.text.hidden_size)
    vision.fail_found("out_hidden_size", "inconsistent",
                      "expected the language model's hidden size (" + std::to_string(c.text.hidden_size) + ")");
  return c;
}

}  // namespace oometer
