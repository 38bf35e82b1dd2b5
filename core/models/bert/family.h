#pragma once

#include <string_view>

#include "models/bert/config.h"
#include "models/family.h"

/// What a family whose modeling file copies BERT's needs: its names.
namespace oometer {

ModelTraits bert_traits(const FamilyConfig& config);
/// The same of an encoder of the family's own, which peft does not know, and which was not compared while it is
/// sharded.
ModelTraits own_encoder_traits(const FamilyConfig& config);
double largest_tensor_of_bert(const FamilyConfig& config, const DataConfig& data);
std::unique_ptr<Model> build_bert_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                         const ModelOptions& options);

template <const BertClassNames& names>
constexpr Family bert_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                             ModelTraits (*traits)(const FamilyConfig&) = bert_traits) {
  return {.classes = classes,
          .blocks = blocks,
          .read = [](ConfigReader& reader, const ModelClass& of, Framework) -> FamilyConfig {
            return read_bert_config(reader, names, of);
          },
          .build = build_bert_family,
          .traits = traits,
          .largest_tensor = largest_tensor_of_bert};
}

}  // namespace oometer
