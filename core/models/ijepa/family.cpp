#include "models/family.h"

#include "config/reader.h"
#include "models/vit/vit.h"

/// transformers 5.23, models/ijepa/modeling_ijepa.py: ViT's classes.
namespace oometer {

namespace {

constexpr VitClassNames kNames{"IJepaModel",
                               "IJepaEmbeddings",
                               "IJepaPatchEmbeddings",
                               "IJepaLayer",
                               "IJepaAttention",
                               "IJepaMLP",
                               "ijepa",
                               true,
                               "",
                               0,
                               true};
constexpr ModelClass kClasses[] = {{"ijepa", "IJepaForImageClassification"}, {"ijepa", kNames.model}};
constexpr const char* kBlocks[] = {kNames.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VitConfig c;
  c.names = &kNames;
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  reader.ignore({"pooler_output_size", "pooler_act"});  // its models have no pooler
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_vit(context, config.as<VitConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = vit_traits(config.as<VitConfig>());
  if (t.has_loss)
    t.allow({Feature::quantization});
  else
    t.losses = {"last_hidden_state"};
  for (const Feature feature : {Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_vit(config.as<VitConfig>(), data);
}

}  // namespace

namespace family {
extern const Family ijepa{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
