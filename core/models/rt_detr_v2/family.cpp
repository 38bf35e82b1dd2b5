#include "models/family.h"

#include "config/reader.h"
#include "models/rt_detr/rt_detr.h"

/// transformers 5.23, models/rt_detr_v2/modeling_rt_detr_v2.py: RT-DETR with another attention to the feature maps.
namespace oometer {

namespace {

constexpr RTDetrClassNames kRTDetrV2{"RTDetrV2Model",
                                     "RTDetrV2ConvEncoder",
                                     "RTDetrV2FrozenBatchNorm2d",
                                     "RTDetrV2ConvNormLayer",
                                     "RTDetrV2CSPRepLayer",
                                     "RTDetrV2RepVggBlock",
                                     "RTDetrV2AIFILayer",
                                     "RTDetrV2EncoderLayer",
                                     "RTDetrV2HybridEncoder",
                                     "RTDetrV2SelfAttention",
                                     "RTDetrV2MultiscaleDeformableAttention",
                                     "RTDetrV2MLP",
                                     "RTDetrV2DecoderLayer",
                                     "RTDetrV2Decoder",
                                     "RTDetrV2SinePositionEmbedding",
                                     "RTDetrV2MLPPredictionHead",
                                     true,
                                     true};
constexpr ModelClass kClasses[] = {{"rt_detr_v2", "RTDetrV2ForObjectDetection"}};
constexpr const char* kBlocks[] = {kRTDetrV2.encoder, kRTDetrV2.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) { return read_rt_detr(reader, of, kRTDetrV2); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_rt_detr(context, config.as<RTDetrConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = rt_detr_traits(config.as<RTDetrConfig>());
  t.refuse(Feature::adapters, "inconsistent",
           "peft asks models that tie weights for embeddings, which " + t.class_name +
               " does not have (a NotImplementedError): expected no adapters");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_rt_detr(config.as<RTDetrConfig>(), data);
}

}  // namespace

namespace family {
extern const Family rt_detr_v2{.classes = kClasses,
                               .blocks = kBlocks,
                               .read = read,
                               .build = build,
                               .traits = traits,
                               .largest_tensor = largest_tensor,
                               .read_images = read_rt_detr_images};
}  // namespace family

}  // namespace oometer
