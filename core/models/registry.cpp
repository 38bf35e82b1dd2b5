#include "models/registry.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/reader.h"
#include "models/llama/config.h"

namespace oometer {
namespace {

std::string supported() {
  std::string out;
  for (const Family* family : families())
    for (const ModelClass& of : family->classes)
      out += (out.empty() ? "" : ", ") + std::string(of.model_type) + " (" + of.class_name + ")";
  return out;
}

/// Other files that are taken for a config.json, by a key that it never has.
struct Mistaken {
  const char* key;
  const char* what;
};

constexpr const char* kDiffusers = "this is a config of diffusers, whose models are not supported";
constexpr const char* kGguf = "this is the metadata of a GGUF file, whose quantised weights llama.cpp runs";

constexpr Mistaken kMistaken[] = {
    {"_diffusers_version", kDiffusers},
    {"_class_name", kDiffusers},
    {"general.architecture", kGguf},
    {"llama.block_count", kGguf},
    {"weight_map", "this is a list of safetensors files"},
    {"metadata", kGguf},  // of gguf-dump --json
    {"peft_type", "this is an adapter_config.json of peft"},
    {"tokenizer_class", "this is a tokenizer_config.json"},
    {"_from_model_config", "this is a generation_config.json"},
};

/// What a config says of its class; empty: nothing.
struct Wanted {
  std::string_view model_type, class_name = {};
  bool language = false;  ///< of a model inside another

  bool is(const Family& family, const ModelClass& of) const {
    return (model_type.empty() || model_type == of.model_type) && (class_name.empty() || class_name == of.class_name) &&
           (!language || family.read_language);
  }
};

struct Found {
  const Family* family = nullptr;  ///< null: none
  const ModelClass* of = nullptr;
};

Found find_among(std::span<const Family* const> among, const Wanted& wanted) {
  for (const Family* family : among)
    for (const ModelClass& of : family->classes)
      if (wanted.is(*family, of)) return {family, &of};
  return {};
}

Found find_class(const Wanted& wanted) {
  const Found found = find_among(first_families(), wanted);
  return found.family ? found : find_among(families(), wanted);
}

}  // namespace

ModelConfig read_model_config(ConfigReader& reader, Framework framework) {
  const std::string model_type = reader.has("model_type") ? reader.text("model_type", "") : "";
  const std::vector<std::string> architectures = reader.texts("architectures");
  const std::string name = architectures.empty() ? "" : architectures[0];
  if (model_type.empty() && name.empty()) {
    for (const Mistaken& file : kMistaken) {
      if (reader.has(file.key)) {
        reader.fail_found(
            file.key, "unsupported-model",
            std::string(file.what) + "; expected the config.json of a transformers model: " + supported());
      }
    }
    reader.fail("model_type", "missing", "found nothing; expected the model_type of a config.json: " + supported());
  }
  if (!reader.ok()) return {};
  const Found found = find_class({.model_type = model_type, .class_name = name});
  if (found.family) {
    FamilyConfig config = found.family->read(reader, *found.of, framework);
    reader.finish();
    if (!reader.ok()) return {};
    return {*found.family, std::move(config)};
  }
  const bool knows_type = find_class({.model_type = model_type}).family;
  reader.fail_found(knows_type ? "architectures" : "model_type", "unsupported-model",
                    "expected a supported one: " + supported());
  return {};
}

std::string_view sequence_classifier_of(std::string_view model_type) {
  for (const Family* family : families())
    for (const ModelClass& of : family->classes)
      if (of.model_type == model_type && std::string_view(of.class_name).ends_with("ForSequenceClassification"))
        return of.class_name;
  return {};
}

LlamaConfig read_language_config(ConfigReader& reader) {
  const std::string model_type = reader.text("model_type", "llama");
  // An empty type is one that no class has, here.
  const Found found = model_type.empty() ? Found{} : find_class({.model_type = model_type, .language = true});
  if (found.family) return found.family->read_language(reader);
  std::string known;
  for (const Family* family : families()) {
    if (!family->read_language) continue;
    for (const ModelClass& of : family->classes) known += (known.empty() ? "" : ", ") + std::string(of.model_type);
  }
  reader.fail_found("model_type", "unknown-value", "expected one of these: " + known);
  return {};
}

}  // namespace oometer
