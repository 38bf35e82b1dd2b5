#include "models/exaone4_5/config.h"

#include <string>

#include "config/reader.h"
#include "models/exaone4/exaone4.h"

namespace oometer {

Exaone45Config read_exaone4_5_config(ConfigReader& reader) {
  Exaone45Config c;
  c.tower.names = &kExaone45ClassNames;
  ConfigReader vision = reader.object("vision_config");
  QwenVisionConfig& v = c.tower.vision;
  v = read_qwen_vision(vision, true);
  v.num_key_value_heads = vision.integer("num_key_value_heads", 8);
  if (v.num_heads % v.num_key_value_heads != 0)
    vision.fail("num_key_value_heads", "inconsistent",
                "found " + std::to_string(v.num_key_value_heads) + "; expected a divisor of num_heads (" +
                    std::to_string(v.num_heads) + ")");
  vision.finish();
  ConfigReader text = reader.object("text_config");
  if (reader.has("text_config") && !text.has("model_type"))  // __post_init__
    text.fail("model_type", "inconsistent", "found none, which the class reads; expected \"exaone4\"");
  if (const std::string kind = text.text("model_type", "exaone4"); kind != "exaone4" && kind != "exaone4_5_text")
    text.fail_found("model_type", "not-modelled", "expected \"exaone4\"");
  c.text = read_exaone4_config(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"});
  if (v.out_hidden_size != c.text.hidden_size)
    vision.fail_found("out_hidden_size", "inconsistent",
                      "expected the language model's hidden size (" + std::to_string(c.text.hidden_size) + ")");
  return c;
}

}  // namespace oometer
