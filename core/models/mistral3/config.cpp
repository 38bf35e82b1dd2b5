#include "models/mistral3/config.h"

#include <string>

#include "config/reader.h"
#include "models/ministral3/ministral3.h"
#include "models/registry.h"

namespace oometer {

namespace {

/// LightOnOcrConfig.sub_configs_defaults are used as they are where the config has no such part; where it has one, the
/// fields that it lacks are Pixtral's and Qwen3's own.
void need_part(ConfigReader& reader, const char* key) {
  if (!reader.has(key)) reader.fail(key, "missing", "found none; expected one, as the published model has");
}

}  // namespace

Mistral3Config read_mistral3_config(ConfigReader& reader, const Mistral3Class& of) {
  Mistral3Config c;
  c.of = &of;
  const bool is_ocr = &of == &kLightOnOcr;
  if (is_ocr) {
    need_part(reader, "vision_config");
    need_part(reader, "text_config");
  }
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_pixtral_vision_config(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  if (is_ocr && !text.has("model_type"))
    text.fail("model_type", "missing", "found none; expected \"qwen3\", as the published model has");
  c.is_ministral3 = !is_ocr && text.has("model_type") && text.text("model_type", "") == "ministral3";
  if (&of == &kMistralLarge4)
    text.ignore({"model_type"});  // its family reads it
  else if (c.is_ministral3)
    c.text = read_ministral3_config(text);
  else
    static_cast<LlamaConfig&>(c.text) = read_language_config(text);
  if (&of != &kMistralLarge4) text.finish();
  c.spatial_merge_size = reader.integer("spatial_merge_size", 2, {1, 1024});
  if (!is_ocr) {
    c.projector_bias = reader.boolean("multimodal_projector_bias", false);
    c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
  }
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", &of != &kMistralLarge4);
  if (is_ocr)
    reader.ignore({"eos_token_id", "pad_token_id", "vision_feature_layer"});
  else if (reader.is_list("vision_feature_layer"))
    reader.fail_found("vision_feature_layer", "not-modelled", "several layers are not supported yet: expected -1");
  else if (reader.integer("vision_feature_layer", -1, {-layer_count.max, layer_count.max}) != -1)
    reader.fail_found("vision_feature_layer", "not-modelled", "another layer is not supported yet: expected -1");
  reader.ignore({"image_token_index", "image_token_id"});
  return c;
}

}  // namespace oometer
