#include "models/clip/family.h"

#include "config/reader.h"
#include "models/clip/clip.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"clip", "CLIPVisionModel"}, {"clip_vision_model", "CLIPVisionModel"}};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  if (&of == &kClasses[1]) return read_clip_vision_config(reader);
  // from_pretrained takes the vision_config out of a CLIPConfig (base_config_key of CLIPVisionConfig).
  ConfigReader vision = reader.object("vision_config");
  const ClipVisionConfig c = read_clip_vision_config(vision);
  vision.finish();
  reader.ignore({"text_config", "text_config_dict", "vision_config_dict", "projection_dim", "logit_scale_init_value"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_clip_vision(context, config.as<ClipVisionConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) { return clip_vision_traits(config.as<ClipVisionConfig>()); }

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of(config.as<ClipVisionConfig>(), data);
}

}  // namespace

namespace family {
extern const Family clip_vision{
    .classes = kClasses, .read = read, .build = build, .traits = traits, .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
