#pragma once

#include "models/kit/text_family.h"

/// Language models some of whose layers have something else in attention's place.
namespace oometer {

/// Of classes that generate by plain generate() alone so far.
void refuse_generate_options(ModelTraits& traits);

/// As of the kit's families, less what is not there yet.
ModelTraits recurrent_traits(const TextConfig& config);
ModelTraits traits_of_recurrent_family(const FamilyConfig& config);
/// The same, and what was compared.
template <Feature... compared>
ModelTraits recurrent_traits_with(const FamilyConfig& config) {
  ModelTraits t = traits_of_recurrent_family(config);
  allow_compared(t, {compared...});
  return t;
}
/// Of those whose layers keep their states in a cache between tokens: they generate, by plain generate().
ModelTraits traits_of_generating_family(const FamilyConfig& config);
template <Feature... compared>
ModelTraits generating_traits_with(const FamilyConfig& config) {
  ModelTraits t = traits_of_generating_family(config);
  allow_compared(t, {compared...});
  return t;
}

/// What a decoder has of its config: of which kind each layer is, and how much of a head is rotated.
void complete_parts(DecoderParts& parts, const TextConfig& config);

/// largest_tensor_of_text_family of a config.
double largest_tensor_of_text(const TextConfig& config, const DataConfig& data);

/// text_family with a config of the family's own, which adds to TextConfig.
template <typename Config, Config (*read)(ConfigReader&),
          DecoderParts (*make_parts)(const Config& config, const ModelOptions& options)>
constexpr Family text_family_of(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                                ModelTraits (*traits)(const FamilyConfig&)) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig {
            Config config = read(reader);
            config.classifier = read_classifier(reader, of);
            return config;
          },
          .build =
              [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
                const auto& its = config.as<Config>();
                return build_text_family(context, its, data, options, make_parts(its, options));
              },
          .traits = traits,
          .largest_tensor = [](const FamilyConfig& config,
                               const DataConfig& data) { return largest_tensor_of_text(config.as<Config>(), data); }};
}

}  // namespace oometer
