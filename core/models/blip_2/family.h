#pragma once

#include "models/blip_2/config.h"
#include "models/family.h"

/// What the copies of BLIP-2 share with it: a family of its own is a Blip2Family.
namespace oometer {

std::unique_ptr<Model> build_blip2_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                          const ModelOptions& options);
ModelTraits traits_of_blip2_family(const FamilyConfig& config);
double largest_tensor_of_blip2(const FamilyConfig& config, const DataConfig& data);
ImageCount count_blip2_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t tiles);

template <const Blip2Family& family>
constexpr Family blip2_family(std::span<const ModelClass> classes, std::span<const char* const> blocks) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass&, Framework) -> FamilyConfig {
            return read_blip2_config(reader, family);
          },
          .build = build_blip2_family,
          .traits = traits_of_blip2_family,
          .largest_tensor = largest_tensor_of_blip2,
          .count_image = count_blip2_image};
}

}  // namespace oometer
