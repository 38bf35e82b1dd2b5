#pragma once

#include "models/family.h"
#include "models/llama/config.h"

/// What Llama's copies share with it beside its config: a family of its own is a row, a reader and what differs.
namespace oometer {

/// Of a class of that name; of another nothing.
ClassifierConfig read_classifier(ConfigReader& reader, const ModelClass& of,
                                 double dropout = ClassifierConfig().dropout);

ModelTraits llama_traits(const LlamaConfig& config);
/// The first transformers whose class runs Llama's code of its version: `of_class`, or later where it has a window,
/// whose mask is masking_utils.py's since 4.53.
Version oldest_with_llama_code(const ModelTraits& traits, Version of_class);
double largest_tensor_of(const LlamaConfig& config, const DataConfig& data);

/// As Family has them, of a LlamaConfig.
std::unique_ptr<Model> build_llama_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                          const ModelOptions& options);
ModelTraits traits_of_llama_family(const FamilyConfig& config);
/// The same of a config of its own that says model_type, which neither peft nor Liger knows. `name`: with its article.
ModelTraits traits_of_llama_copy(const FamilyConfig& config, const char* name);
double largest_tensor_of_llama_family(const FamilyConfig& config, const DataConfig& data);

/// A family whose classes are Llama's under other names.
template <LlamaConfig (*read)(ConfigReader&)>
constexpr Family llama_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                              ModelTraits (*traits)(const FamilyConfig&) = traits_of_llama_family) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig {
            LlamaConfig config = read(reader);
            config.classifier = read_classifier(reader, of);
            return config;
          },
          .build = build_llama_family,
          .traits = traits,
          .largest_tensor = largest_tensor_of_llama_family,
          .read_language = read};
}

}  // namespace oometer
