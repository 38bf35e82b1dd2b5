#pragma once

#include <span>

#include "models/deepseek/config.h"
#include "models/family.h"

/// What a family whose modeling file copies DeepSeek-V3's needs: how its config is read.
namespace oometer {

std::unique_ptr<Model> build_deepseek_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                             const ModelOptions& options);
ModelTraits deepseek_traits(const FamilyConfig& config);
/// Flash attention, where values are not as wide as keys.
void refuse_flash_of_other_widths(ModelTraits& traits, const DeepseekConfig& config);
double largest_tensor_of_deepseek(const FamilyConfig& config, const DataConfig& data);
void convert_deepseek_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora);

template <FamilyConfig (*read)(ConfigReader& config, const ModelClass& of, Framework framework)>
constexpr Family deepseek_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                                 decltype(Family::convert_targets) convert_targets = convert_deepseek_targets,
                                 decltype(Family::traits) traits = deepseek_traits) {
  return {.classes = classes,
          .blocks = blocks,
          .read = read,
          .build = build_deepseek_family,
          .traits = traits,
          .largest_tensor = largest_tensor_of_deepseek,
          .convert_targets = convert_targets};
}

}  // namespace oometer
