#pragma once

#include <initializer_list>
#include <span>

#include "models/family.h"
#include "models/kit/decoder.h"
#include "models/kit/text_attention.h"
#include "models/kit/text_config.h"
#include "models/kit/text_layer.h"
#include "models/llama/family.h"

/// What a family of the kit is: how its config is read, and what its decoder is made of.
namespace oometer {

/// Of a config that is read; `config` outlives nothing of what is made.
using MakeParts = DecoderParts (*)(const TextConfig& config, const ModelOptions& options);

/// As of Llama's classes, less what was not compared with the real libraries.
ModelTraits text_traits(const TextConfig& config);
ModelTraits traits_of_text_family(const FamilyConfig& config);
/// Allows what was compared with the real libraries, of the class that was: the causal LM.
void allow_compared(ModelTraits& traits, std::initializer_list<Feature> features);
/// traits_of_text_family, and what was compared.
template <Feature... compared>
ModelTraits traits_with(const FamilyConfig& config) {
  ModelTraits t = traits_of_text_family(config);
  allow_compared(t, {compared...});
  return t;
}
double largest_tensor_of_text_family(const FamilyConfig& config, const DataConfig& data);
std::unique_ptr<Model> build_text_family(Context& context, const TextConfig& config, const DataConfig& data,
                                         const ModelOptions& options, DecoderParts parts);

template <TextConfig (*read)(ConfigReader&), MakeParts make_parts>
constexpr Family text_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                             ModelTraits (*traits)(const FamilyConfig&) = traits_of_text_family,
                             FamilyConfig (*without_dropout)(const FamilyConfig&) = nullptr) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig {
            TextConfig config = read(reader);
            config.classifier = read_classifier(reader, of, config.classifier.dropout);
            return config;
          },
          .build =
              [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
                const auto& text = config.as<TextConfig>();
                return build_text_family(context, text, data, options, make_parts(text, options));
              },
          .traits = traits,
          .largest_tensor = largest_tensor_of_text_family,
          .without_dropout = without_dropout};
}

/// Parts that are the same in all: `make` is the family's decoder layer.
template <typename Make>
DecoderParts parts_of(const TextConfig& config, const ModelOptions& options, Make make) {
  DecoderParts parts;
  parts.layer = [config, options, make](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return make(layer, config, options, index);
  };
  return parts;
}

/// The decoder's last norm, of a class of its own.
DecoderParts::MakeNorm final_norm(Norm::Forward forward, bool with_bias = false);

}  // namespace oometer
