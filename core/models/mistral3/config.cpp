#include "models/mistral3/config.h"

#include <string>

#include "config/reader.h"
#include "models/ministral3/ministral3.h"
#include "models/registry.h"

namespace oometer {

Mistral3Config read_mistral3_config(ConfigReader& reader) {
  Mistral3Config c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_pixtral_vision_config(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.is_ministral3 = text.has("model_type") && text.text("model_type", "") == "ministral3";
  if (c.is_ministral3)
    c.text = read_ministral3_config(text);
  else
    static_cast<LlamaConfig&>(c.text) = read_language_config(text);
  text.finish();
  c.spatial_merge_size = reader.integer("spatial_merge_size", 2, {1, 1024});
  c.projector_bias = reader.boolean("multimodal_projector_bias", false);
  c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  if (reader.is_list("vision_feature_layer"))
    reader.fail_found("vision_feature_layer", "not-modelled", "several layers are not supported yet: expected -1");
  else if (reader.integer("vision_feature_layer", -1, {-layer_count.max, layer_count.max}) != -1)
    reader.fail_found("vision_feature_layer", "not-modelled", "another layer is not supported yet: expected -1");
  reader.ignore({"image_token_index", "image_token_id"});
  return c;
}

}  // namespace oometer
