#include "importers/context.h"

#include <algorithm>
#include <utility>

#include "config/reader.h"
#include "job/presets.h"
#include "models/registry.h"
#include "peft/config.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

std::string last_part(const std::string& path) {
  const std::size_t slash = path.find_last_of('/', path.find_last_not_of('/'));
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

/// The name of a model without its organisation, as one compares it. Meta took "Meta-" out of its models' names.
std::string plain_name(const std::string& id) {
  std::string name = lower_case(last_part(id));
  return name.starts_with("meta-llama-") ? name.substr(5) : name;
}

bool is_config(const json& content) {
  return content.is_object() && content.contains("model_type") && content["model_type"].is_string() &&
         !content.contains("base_model");
}

}  // namespace

std::string dtype_of(const std::string& name) {
  const std::string word = name.starts_with("torch.") ? name.substr(6) : name;
  if (word == "bfloat16" || word == "bf16") return "bf16";
  if (word == "float16" || word == "fp16" || word == "half") return "fp16";
  if (word == "float32" || word == "fp32" || word == "float") return "fp32";
  return "";
}

const SourceFile* Context::find_file(const std::string& path) const {
  for (const SourceFile& file : files_)
    if (file.name == path) return &file;
  for (const SourceFile& file : files_)
    if (last_part(file.name) == last_part(path)) return &file;
  return nullptr;
}

json Context::named_file(Keys& keys, const char* key) {
  json given = keys.value(key);
  if (given.is_string() && given.get<std::string>().starts_with('{'))  // JSON in the place of a path, as HF takes it
    if (const Result<json> tree = parse_json(given.get<std::string>())) given = *tree;
  if (given.is_object() || given.is_null()) return given;
  const std::string path = keys.text(key);
  if (const SourceFile* file = find_file(path); file && file->content.is_object()) return file->content;
  ledger.missing.push_back({"file", path, keys.file(), key, "the file that it names decides memory: give it too"});
  return json();
}

void Context::take_model(Keys& keys, const char* key, const std::string& named) {
  model_key_ = key;
  const std::string name = named.empty() ? keys.text(key) : named;
  const SourceFile* own = nullptr;
  for (const SourceFile& file : files_)
    if (is_config(file.content)) own = &file;
  if (own != nullptr) {
    model_config_ = own->content;
    ledger.put("/model/config", own->content);
    if (!name.empty()) ledger.put("/model/name", name);
    ledger.taken.push_back({own->name, "model_type", "/model/config", own->content["model_type"], false, ""});
    keys.ignore(key);
    return;
  }
  if (name.empty()) {
    ledger.missing.push_back(
        {"config.json", "", keys.file(), key, "no model is named: give the model's config.json too, or its name"});
    return;
  }
  const json* found = nullptr;
  bool is_same = false;
  if (hub_->is_array())
    for (const json& model : *hub_) {
      const std::string id = member_text(model, "id");
      const bool same = lower_case(id) == lower_case(name);
      if (!same && (found != nullptr || plain_name(id) != plain_name(name))) continue;
      if (!is_same) found = &model;
      is_same |= same;
    }
  if (found == nullptr && !preset_text("models", name).empty()) {
    keys.take(key, "/model/preset", name);
    model_config_ = member(*parse_json(preset_text("models", name)), "config");
    return;
  }
  if (found == nullptr) {
    ledger.missing.push_back(
        {"config.json", name, keys.file(), key, "no model of the catalogue has this name: give its config.json too"});
    keys.mark(key);
    return;
  }
  const std::string id = member_text(*found, "id");
  if (found->contains("preset")) {
    const std::string preset = member_text(*found, "preset");
    keys.take(key, "/model/preset", preset);
    model_config_ = member(*parse_json(preset_text("models", preset)), "config");
  } else {
    keys.take(key, "/model/config", member(*found, "config"));
    ledger.put("/model/name", name);
    model_config_ = member(*found, "config");
  }
  // Some of a preset's kin are published in another type than it.
  if (found->contains("dtype")) model_config_["torch_dtype"] = (*found)["dtype"];
  if (!is_same)
    keys.leave_out(key, Effect::either,
                   "taken as " + id +
                       " of the catalogue, which has the same name in another organisation: if it was "
                       "changed, give its config.json too");
}

std::string Context::model_class() const {
  if (!model_config_.is_object()) return "";
  Findings findings;
  ConfigReader reader(&model_config_, "", Mode::lenient, findings);
  const ModelConfig model = read_model_config(reader, Framework::transformers);
  return findings.error ? "" : model.traits().class_name;
}

json Context::linear_layers() const {
  const char* const all = "all-linear";
  if (!model_config_.is_object()) return all;
  Findings findings;
  ConfigReader reader(&model_config_, "", Mode::lenient, findings);
  const ModelConfig model = read_model_config(reader, Framework::transformers);
  if (findings.error || !model.family().convert_targets) return all;
  LoraConfig lora;
  lora.target_modules.pattern = R"((?!.*\.experts\.)(?!lm_head).*)";
  model.family().convert_targets(reader, model.config(), lora);
  std::vector<std::string> names = std::move(lora.target_modules.names);
  const std::vector<std::string>& parameters = lora.target_parameters;
  if (std::find(parameters.begin(), parameters.end(), "gate_up_proj") != parameters.end())
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) names.emplace_back(name);  // beside the experts
  return names.empty() ? json(all) : json(names);
}

std::string Context::published_dtype(Keys& keys) {
  if (!model_config_.is_object()) return "bf16";  // no model is known, which is asked for
  const json* trees[] = {&model_config_, nullptr};
  if (const auto text = model_config_.find("text_config"); text != model_config_.end()) trees[1] = &*text;
  for (const json* tree : trees)
    for (const char* key : {"dtype", "torch_dtype"})
      if (const std::string said = tree ? dtype_of(member_text(*tree, key)) : ""; !said.empty()) return said;
  if (!is_dtype_asked_)
    keys.leave_out(model_key_.c_str(), Effect::less,
                   "the type of the published weights is not known, which the trainer keeps: taken as float32; a "
                   "config.json with \"dtype\" says it");
  is_dtype_asked_ = true;
  return "fp32";
}

void Context::take_precision(Keys& keys, const char* weights_key, const std::string& weights, const char* autocast_key,
                             const std::string& autocast) {
  const char* const at = "/training/precision";
  if (autocast.empty()) return keys.take(weights_key, at, weights);
  if (weights == "fp32") return keys.take(autocast_key, at, "amp-" + autocast);
  keys.take(weights_key, std::string(at) + "/weights", weights);
  keys.take(autocast_key, std::string(at) + "/autocast", autocast);
}

}  // namespace oometer::importers
