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

}  // namespace

namespace family {
extern const Family deit = vit_family(kClasses, kBlocks, read, vit_kin_traits);
}  // namespace family

}  // namespace oometer
