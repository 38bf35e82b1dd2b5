#include "models/vision_language.h"

#include <algorithm>

#include "models/clip/family.h"
#include "models/llama/family.h"

namespace oometer {

ModelTraits vision_language_traits(const char* class_name, const LlamaConfig& text, bool ties_embeddings) {
  ModelTraits t = llama_traits(text);
  t.class_name = class_name;
  t.takes_images = true;
  t.convolutions = 1;
  t.ties_embeddings = ties_embeddings;
  t.lora_targets = t.ia3_targets = t.ia3_feedforward = t.ln_tuning_targets = {};
  t.has_no_liger();
  t.refuse(Feature::quantization, "not-modelled",
           "a quantised " + t.class_name + " is not supported yet: leave it out");
  t.refuse(Feature::packing, "not-modelled",
           "packed samples of " + t.class_name + " are not supported yet: leave it out");
  return t;
}

ModelTraits vision_language_traits(const char* class_name, const VisionLanguageConfig& config) {
  ModelTraits t = vision_language_traits(class_name, config.text, config.tie_word_embeddings);
  t.image_keys = {"image_size"};
  t.image_size = config.vision.image_size;
  t.no_split_modules.emplace_back(config.vision.family->encoder_layer);
  return t;
}

double largest_tensor_of(const VisionLanguageConfig& config, const DataConfig& data) {
  return std::max(largest_tensor_of(config.vision, data), largest_tensor_of(config.text, data));
}

}  // namespace oometer
