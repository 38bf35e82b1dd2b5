#include "models/lfm3_vl/config.h"

#include <string>

#include "config/reader.h"
#include "models/kit/grids.h"

namespace oometer {

namespace {

Lfm3VlVisionConfig read_vision(ConfigReader& reader) {
  constexpr Range kPatchRange{1, 1 << 16};
  Lfm3VlVisionConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.in_channels = reader.integer("in_channels", c.in_channels, {1, 1024});
  c.patch_size = reader.integer("patch_size", c.patch_size, kPatchRange);
  c.spatial_merge_size = reader.integer("spatial_merge_size", c.spatial_merge_size, {1, 1024});
  c.temporal_patch_size = reader.integer("temporal_patch_size", c.temporal_patch_size, {1, 1024});
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_key_value_heads = reader.integer("num_key_value_heads", c.num_key_value_heads);
  c.conv_kernel_size = reader.integer("conv_kernel_size", c.conv_kernel_size, {1, 1024});
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.num_hidden_layers); ++i) {
    const bool convolves = i < types.size() ? types[i] == "conv" : i < 2 || i % 2 == 1;
    c.attends.push_back(!convolves);
    if (i < types.size() && !convolves && types[i] != "full_attention")
      reader.fail("layer_types", "unknown-value",
                  "found \"" + types[i] + "\"; expected \"full_attention\" or \"conv\"");
  }
  reader.ignore({"model_type", "norm_eps", "rope_parameters", "rope_theta"});
  check_axial_heads(reader, c.hidden_size, "num_attention_heads", c.num_attention_heads);
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    reader.fail("num_key_value_heads", "inconsistent",
                "found " + std::to_string(c.num_key_value_heads) + "; expected a divisor of num_attention_heads (" +
                    std::to_string(c.num_attention_heads) + ")");
  if (c.conv_kernel_size % 2 == 0)
    reader.fail_found("conv_kernel_size", "inconsistent", "expected an odd number, which keeps the grid's size");
  return c;
}

}  // namespace

Lfm3VlConfig read_lfm3_vl_config(ConfigReader& reader) {
  Lfm3VlConfig c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  text.choice<int>("model_type", 0, {{"lfm3", 0}});
  c.text = read_lfm3_config(text);
  text.finish();
  c.projector_hidden_size = reader.integer("projector_hidden_size", c.projector_hidden_size);
  c.projector_hidden_act = reader.activation("projector_hidden_act", c.projector_hidden_act);
  c.projector_bias = reader.boolean("projector_bias", true);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"});
  return c;
}

}  // namespace oometer
