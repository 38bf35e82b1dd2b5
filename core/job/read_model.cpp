#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "graph/model.h"
#include "graph/read.h"
#include "job/names.h"
#include "job/presets.h"
#include "job/read.h"
#include "models/registry.h"

namespace oometer {

using nlohmann::json;

namespace {

/// Lays `patch` over `base`, object by object.
void merge(json& base, const json& patch) {
  for (const auto& [key, value] : patch.items()) {
    json& slot = base[key];
    if (slot.is_object() && value.is_object()) {
      merge(slot, value);
    } else {
      slot = value;
    }
  }
}

/// RewardTrainer.__init__ (trl 1.16): AutoModelForSequenceClassification.from_pretrained(..., num_labels=1).
void make_reward_model(json& config) {
  const json model_type = config.value("model_type", json());
  const std::string_view name = model_type.is_string() ? sequence_classifier_of(model_type.get<std::string>()) : "";
  if (name.empty()) return;  // the loop's reader says so
  config["architectures"] = {name};
  config["num_labels"] = 1;
  config.erase("id2label");
}

/// A model by its operators.
ModelChoice read_graph_model(ConfigReader& reader, const json& given) {
  ModelChoice model;
  for (const char* key : {"preset", "config"})
    if (reader.has(key)) reader.fail_found(key, "inconsistent", "the graph says what the model is: leave it out");
  model.given_name = model.name = reader.text("name", "");
  Result<Graph> graph = read_graph(given, reader.pointer_to("graph"));
  if (graph) {
    model.config = graph_model(*std::move(graph));
    model.config_json = given.dump();
    if (model.name.empty()) model.name = model.config.traits().class_name;
  } else if (reader.ok()) {
    reader.findings().error = graph.error();
  }
  reader.finish();
  return model;
}

/// The preset that a name means: the longest with which the hub's begins ("Qwen/Qwen2.5-VL-7B-Instruct"), or the
/// nearest.
std::string_view nearest_preset(const std::string& given, const std::vector<std::string_view>& ids) {
  const std::string name = lower_case(given.substr(given.rfind('/') + 1));
  std::string_view begins;
  for (const std::string_view id : ids)
    if (id.size() > begins.size() && std::string_view(name).starts_with(id)) begins = id;
  return begins.empty() ? closest(name, ids) : begins;
}

[[gnu::noinline]] void leave_out_quantization(ConfigReader& config) {
  config.ignore({"quantization_config"});
  config.findings().unmodelled.push_back(
      {config.pointer_to("quantization_config") +
           ": weights that are loaded quantized are not supported yet, and are counted as training.precision says; "
           "4-bit weights of bitsandbytes are set in training.quantization",
       Effect::less});
}

}  // namespace

std::pair<ModelChoice, std::int64_t> read_model(ConfigReader reader, Framework framework, bool scores) {
  ModelChoice model;
  std::int64_t usual_length = 0;
  json config = json::object();
  if (const json* given = reader.find("graph"); given && !given->is_null())
    return {read_graph_model(reader, *given), 0};
  model.preset = reader.text("preset", "");
  model.given_name = reader.text("name", "");
  model.reference = reader.choice("reference", Reference::of_trainer, kReferences);
  if (const json* dtype = reader.find("reference_dtype"); dtype && !dtype->is_null())
    model.reference_dtype = reader.choice("reference_dtype", DType::float32, kFloats);
  if (!model.preset.empty()) {
    const std::string_view text = preset_text("models", model.preset);
    if (text.empty()) {
      std::string known;
      std::vector<std::string_view> ids;
      for (const PresetFile& file : preset_files()) {
        if (file.folder != "models") continue;
        ids.push_back(file.id);
        known += (known.empty() ? "" : ", ") + std::string(file.id);
      }
      const std::string_view near = nearest_preset(model.preset, ids);
      reader.fail_found(
          "preset", "unknown-preset",
          near.empty() ? "expected one of these: " + known : "did you mean \"" + std::string(near) + "\"?");
    } else if (Result<json> preset = parse_json(text)) {
      config = std::move((*preset)["config"]);
      model.name = preset->value("title", model.preset);
      if (const json::json_pointer usual("/defaults/sequence_length"); preset->contains(usual))
        usual_length = preset->at(usual).get<std::int64_t>();
    }
  } else if (reader.ok() && !reader.has("config")) {
    reader.fail("", "missing",
                "found neither preset nor config nor graph; expected {\"preset\": NAME} or {\"config\": {...}}");
  }
  if (const json* given = reader.find("config"); given && given->is_object()) {
    model.config_json = given->dump();
    merge(config, *given);
  } else if (given) {
    reader.fail_found("config", "wrong-type", "expected the object of a config.json");
  }
  if (scores) make_reward_model(config);
  if (reader.ok()) {
    ConfigReader config_reader(&config, reader.pointer_to("config"), Mode::lenient, reader.findings());
    if (const json* quantization = config_reader.find("quantization_config");
        quantization && quantization->is_object() && !quantization->empty())
      leave_out_quantization(config_reader);
    model.config = read_model_config(config_reader, framework);
  }
  if (!model.given_name.empty()) model.name = model.given_name;
  if (model.name.empty() && reader.ok()) model.name = model.config.traits().class_name;
  reader.finish();
  return {std::move(model), usual_length};
}

}  // namespace oometer
