#include "models/family.h"

#include "config/reader.h"
#include "models/vit/vit.h"

/// transformers 5.23, models/vit_msn/modeling_vit_msn.py: ViT's classes.
namespace oometer {

namespace {

constexpr VitClassNames kNames{
    "ViTMSNModel", "ViTMSNEmbeddings", "ViTMSNPatchEmbeddings", "ViTMSNLayer", "ViTMSNAttention", "ViTMSNMLP", "vit",
    true};
constexpr ModelClass kClasses[] = {{"vit_msn", "ViTMSNForImageClassification"}, {"vit_msn", kNames.model}};
constexpr const char* kBlocks[] = {kNames.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VitConfig c;
  c.names = &kNames;
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  return c;
}

}  // namespace

namespace family {
extern const Family vit_msn = vit_family(kClasses, kBlocks, read, vit_kin_traits);
}  // namespace family

}  // namespace oometer
