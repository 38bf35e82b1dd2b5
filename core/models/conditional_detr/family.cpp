#include "models/family.h"

#include "config/reader.h"
#include "models/conditional_detr/conditional_detr.h"
#include "models/kit/layerdrop.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"conditional_detr", "ConditionalDetrForObjectDetection"},
                                   {"conditional_detr", "ConditionalDetrModel"}};
constexpr const char* kBlocks[] = {kConditionalDetr.conv_encoder, kConditionalDetr.encoder_layer,
                                   kConditionalDetr.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  read_layerdrop(reader, "decoder_layerdrop");
  return read_detr(reader, of, &of == &kClasses[0], kConditionalDetr);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_conditional_detr(context, config.as<DetrConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) { return detr_traits(config.as<DetrConfig>()); }

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_detr(config.as<DetrConfig>(), data);
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  read_detection_images(reader, config.as<DetrConfig>().detects, kUsualImage, data);
}

}  // namespace

namespace family {
extern const Family conditional_detr{.classes = kClasses,
                                     .blocks = kBlocks,
                                     .read = read,
                                     .build = build,
                                     .traits = traits,
                                     .largest_tensor = largest_tensor,
                                     .read_images = read_images};
}  // namespace family

}  // namespace oometer
