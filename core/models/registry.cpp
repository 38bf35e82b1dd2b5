#include "models/registry.h"

#include <string>
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
  bool knows_type = false;
  for (const Family* family : families())
    for (const ModelClass& of : family->classes) {
      knows_type |= model_type == of.model_type;
      if ((!model_type.empty() && model_type != of.model_type) || (!name.empty() && name != of.class_name)) continue;
      FamilyConfig config = family->read(reader, of, framework);
      reader.finish();
      if (!reader.ok()) return {};
      return {*family, std::move(config)};
    }
  reader.fail_found(model_type.empty() || knows_type ? "architectures" : "model_type", "unsupported-model",
                    "expected a supported one: " + supported());
  return {};
}

LlamaConfig read_language_config(ConfigReader& reader) {
  const std::string model_type = reader.text("model_type", "llama");
  std::string known;
  for (const Family* family : families()) {
    if (!family->read_language) continue;
    for (const ModelClass& of : family->classes) {
      if (model_type == of.model_type) return family->read_language(reader);
      known += (known.empty() ? "" : ", ") + std::string(of.model_type);
    }
  }
  reader.fail_found("model_type", "unknown-value", "expected one of these: " + known);
  return {};
}

}  // namespace oometer
