#include "models/clip/config.h"

#include "config/reader.h"

namespace oometer {
namespace {

/// validate_architecture of both CLIP configs.
void check_heads(ConfigReader& reader, std::int64_t hidden_size, std::int64_t heads) {
  if (hidden_size % heads != 0) {
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(heads) + ")");
  }
}

/// `*_config_dict` is the complete result where it is given, defaults included: CLIPConfig.__post_init__ lays all of
/// its fields over those of `*_config`.
ConfigReader sub_config(ConfigReader& reader, const char* key, const char* dict_key) {
  reader.ignore({key, dict_key});
  return reader.object(reader.has(dict_key) ? dict_key : key);
}

}  // namespace

ClipVisionConfig read_vision_sizes(ConfigReader& reader, const ClipVisionConfig& defaults) {
  ClipVisionConfig c = defaults;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  // The class takes [height, width] too, the embeddings do not (CLIPVisionEmbeddings: image_size // patch_size).
  c.image_size = reader.integer("image_size", c.image_size, {1, 65'536});
  c.patch_size = reader.integer("patch_size", c.patch_size, {1, 65'536});
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);

  check_heads(reader, c.hidden_size, c.num_attention_heads);
  if (c.patch_size > c.image_size) {
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most image_size (" + std::to_string(c.image_size) + "): no patch fits");
  }
  return c;
}

ClipVisionConfig read_clip_vision_config(ConfigReader& reader) {
  ClipVisionConfig c = read_vision_sizes(reader, {});
  c.projection_dim = reader.integer("projection_dim", c.projection_dim);
  reader.ignore({"vocab_size", "dropout"});  // in published vision configs; no class reads them
  return c;
}

ClipTextConfig read_clip_text_config(ConfigReader& reader) {
  ClipTextConfig c;
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.max_position_embeddings = reader.integer("max_position_embeddings", c.max_position_embeddings);
  c.eos_token_id = reader.optional_integer("eos_token_id", {-1}).value_or(c.eos_token_id);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);
  reader.ignore({"projection_dim", "dropout"});  // CLIPModel projects to its own projection_dim

  check_heads(reader, c.hidden_size, c.num_attention_heads);
  return c;
}

ClipConfig read_clip_config(ConfigReader& reader) {
  ClipConfig c;
  c.projection_dim = reader.integer("projection_dim", c.projection_dim);
  reader.ignore({"logit_scale_init_value"});
  ConfigReader text = sub_config(reader, "text_config", "text_config_dict");
  c.text = read_clip_text_config(text);
  text.finish();
  ConfigReader vision = sub_config(reader, "vision_config", "vision_config_dict");
  c.vision = read_clip_vision_config(vision);
  vision.finish();
  return c;
}

}  // namespace oometer
