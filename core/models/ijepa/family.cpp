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

}  // namespace

namespace family {
extern const Family ijepa = vit_family(kClasses, kBlocks, read, vit_kin_traits);
}  // namespace family

}  // namespace oometer
