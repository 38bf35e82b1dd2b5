#include "models/family.h"

#include <string>
#include <vector>

#include "config/reader.h"
#include "models/dinov2/dinov2.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"dinov2", "Dinov2ForImageClassification"},
                                   {"dinov2", "Dinov2Model"},
                                   {"dinov2_with_registers", "Dinov2WithRegistersForImageClassification"},
                                   {"dinov2_with_registers", "Dinov2WithRegistersModel"}};
constexpr const char* kBlocks[] = {kDinov2.layer, kDinov2WithRegisters.layer};

/// class Dinov2Config (models/dinov2/configuration_dinov2.py) and Dinov2WithRegistersConfig.
FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VitConfig c;
  const bool has_registers = &of >= &kClasses[2];
  c.names = has_registers ? &kDinov2WithRegisters : &kDinov2;
  c.patch_size = has_registers ? 16 : 14;
  read_vit_sizes(reader, of, c);
  c.intermediate_size = checked_product(c.hidden_size, reader.integer("mlp_ratio", 4));
  c.use_swiglu_ffn = reader.boolean("use_swiglu_ffn", false);
  if (c.use_swiglu_ffn) c.intermediate_size = (c.intermediate_size * 2 / 3 + 7) / 8 * 8;
  c.use_mask_token = has_registers || reader.boolean("use_mask_token", true);
  if (has_registers) c.num_register_tokens = reader.integer("num_register_tokens", 4);
  if (reader.number("drop_path_rate", 0, 0, 1) != 0)
    reader.fail_found("drop_path_rate", "not-modelled", "stochastic depth is not supported yet: expected 0");
  reader.ignore(
      {"layerscale_value", "out_features", "out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_dinov2(context, config.as<VitConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<VitConfig>();
  ModelTraits t = vit_traits(c);
  t.has_idle_parts = c.use_mask_token;
  t.image_size = 0;  // any
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_vit(config.as<VitConfig>(), data);
}

/// Any size, to which the positions are stretched; the published processors give 224 x 224, whatever the config's.
void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<VitConfig>();
  std::vector<std::int64_t> size = reader.integers("image_size", {1, 65'536});
  if (size.empty()) size = {224, 224};
  if (size.size() != 2)
    reader.fail_found("image_size", "wrong-type", "expected [height, width] in pixels");
  else if (size[0] < c.patch_size || size[1] < c.patch_size)
    reader.fail_found("image_size", "inconsistent",
                      "expected at least a patch (" + std::to_string(c.patch_size) + " pixels) each way");
  if (!reader.ok()) return;
  data.image_height = size[0];
  data.image_width = size[1];
}

}  // namespace

namespace family {
extern const Family dinov2{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .read_images = read_images};
}  // namespace family

}  // namespace oometer
