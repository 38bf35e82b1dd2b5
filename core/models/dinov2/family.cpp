#include "models/family.h"

#include "config/reader.h"
#include "models/dinov2/dinov2.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"dinov2", "Dinov2ForImageClassification"},
                                   {"dinov2", "Dinov2Model"},
                                   {"dinov2_with_registers", "Dinov2WithRegistersForImageClassification"},
                                   {"dinov2_with_registers", "Dinov2WithRegistersModel"}};
constexpr const char* kBlocks[] = {kDinov2.layer, kDinov2WithRegisters.layer};

}  // namespace

/// class Dinov2Config (models/dinov2/configuration_dinov2.py) and Dinov2WithRegistersConfig.
void read_dinov2(ConfigReader& reader, const ModelClass& of, bool has_registers, VitConfig& c) {
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
  reader.ignore({"layerscale_value"});
}

void read_dinov2_backbone(ConfigReader& reader, const ModelClass& of, bool reshapes, Dinov2BackboneConfig& c) {
  read_dinov2(reader, of, false, c);
  if (const auto given = reader.integers("out_indices", {0, 1 << 16}); !given.empty()) c.out_indices = given;
  if (const auto stages = reader.texts("out_features"); !stages.empty()) {
    std::vector<std::int64_t> named;
    for (const std::string& stage : stages)
      for (std::int64_t i = 0; i <= c.num_hidden_layers; ++i)
        if (stage == (i == 0 ? "stem" : "stage" + std::to_string(i))) named.push_back(i);
    if (named.size() != stages.size() || (reader.has("out_indices") && named != c.out_indices))
      reader.fail_found(
          "out_features", "inconsistent",
          "expected stem, stage1 ... stage" + std::to_string(c.num_hidden_layers) + ", the same as out_indices");
    c.out_indices = named;
  }
  if (c.out_indices.empty()) c.out_indices = {c.num_hidden_layers};
  for (std::size_t i = 0; i < c.out_indices.size(); ++i)
    if (c.out_indices[i] > c.num_hidden_layers || (i > 0 && c.out_indices[i] <= c.out_indices[i - 1]))
      reader.fail_found("out_indices", "inconsistent",
                        "expected indices of layers from 0 to num_hidden_layers (" +
                            std::to_string(c.num_hidden_layers) + "), in their order");
  c.apply_layernorm = reader.boolean("apply_layernorm", true);
  if (reader.boolean("reshape_hidden_states", reshapes))
    reader.fail_found("reshape_hidden_states", "inconsistent",
                      "expected false: the neck behind this backbone takes its tokens");
  reader.ignore({"stage_names"});
}

namespace {

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  VitConfig c;
  read_dinov2(reader, of, &of >= &kClasses[2], c);
  reader.ignore({"out_features", "out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states"});
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
  if (t.has_loss) t.allow({Feature::quantization});
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_vit(config.as<VitConfig>(), data);
}

/// Positions are stretched to it.
void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  read_images_of_any_size(reader, config.as<VitConfig>(), data);
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
