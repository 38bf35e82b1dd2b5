#include "models/siglip/config.h"

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

}  // namespace oometer
