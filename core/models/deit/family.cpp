#include "models/family.h"

#include "config/reader.h"
#include "models/vit/vit.h"

/// transformers 5.23, models/deit/modeling_deit.py: ViT's classes.
namespace oometer {

namespace {

constexpr VitClassNames kNames{"DeiTModel",
                               "DeiTEmbeddings",
                               "DeiTPatchEmbeddings",
                               "DeiTLayer",
                               "DeiTAttention",
                               "DeiTMLP",
                               "deit",
                               true,
                               "DeiTPooler",
                               2};
constexpr ModelClass kClasses[] = {{"deit", "DeiTForImageClassification"}, {"deit", kNames.model}};
constexpr const char* kBlocks[] = {kNames.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VitConfig c;
  c.names = &kNames;
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.pooler_output_size = reader.integer("pooler_output_size", c.hidden_size);
  if (reader.text("pooler_act", "tanh") != "tanh")
    reader.fail_found("pooler_act", "not-modelled", "another activation is not supported yet: expected tanh");
  reader.ignore({"encoder_stride"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_vit(context, config.as<VitConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = vit_traits(config.as<VitConfig>());
  if (t.has_loss) t.allow({Feature::quantization});
  for (const Feature feature : {Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_vit(config.as<VitConfig>(), data);
}

}  // namespace

namespace family {
extern const Family deit{.classes = kClasses,
                         .blocks = kBlocks,
                         .read = read,
                         .build = build,
                         .traits = traits,
                         .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
