#include "cli/options.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "cli/import_command.h"
#include "cli/lengths_file.h"
#include "job/settings/describe.h"

namespace oometer::cli {

using Json = nlohmann::json;

namespace {

std::string read(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The value of a text, or a discarded one where it is not JSON, or nested deeper than any job is.
Json parse(const std::string& text) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) { return !(too_deep |= depth > 64); };
  Json value = Json::parse(text, watch, false);
  return too_deep ? Json(Json::value_t::discarded) : value;
}

Json read_json(const std::string& path, const char* advice = "") {
  Json value = parse(read(path));
  if (value.is_discarded()) throw std::runtime_error(path + ": not valid JSON" + advice);
  return value;
}

/// The text of an option as JSON: a text where the setting takes nothing else ("2.15" is a version, not a number), else
/// what it says as JSON (8, null, ["lm_head"]). A value that is not what the setting wants stays text: the core then
/// names the key, what it found and what would be right, for files and options alike.
Json to_json(const Field& field, const std::string& text) {
  if (field.types == kText) return text;
  Json value = parse(text);
  return value.is_discarded() ? Json(text) : value;
}

/// Puts a value at a pointer; a parent that is no object ("optimizer": "adamw") is replaced by one.
void put(Json& job, const Json::json_pointer& pointer, Json value) {
  if (!pointer.parent_pointer().empty()) {
    Json& parent = job[pointer.parent_pointer()];
    if (!parent.is_object()) parent = Json::object();
  }
  job[pointer] = std::move(value);
}

/// An option for a model or a GPU replaces the file's, in whichever form that is given.
void make_room(Json& job, std::string_view option) {
  if (option == "--preset") job.erase("model");
  if (option == "--gpu") job.erase("gpu");
  if (option == "--usable-bytes" && job.contains("gpu") && job["gpu"].is_object()) job["gpu"].erase("name");
}

}  // namespace

std::string job_of_file(const std::string& path) { return is_trainers_file(path) ? imported_job(path) : read(path); }

JobOptions::JobOptions(CLI::App& command) {
  command.add_option(
      "job", file_,
      "JSON file of a job, or - for standard input, or a trainer's YAML or shell script, as `oometer import` "
      "reads it; optional with --preset, --config or --graph");
  command.add_option("--config", config_file_, "Hugging Face config.json of the model");
  command.add_option("--graph", graph_file_, "Graph of the model, written by tools/export_graph.py");
  command.add_option("--ds-config", ds_config_file_,
                     "DeepSpeed configuration (JSON); \"auto\" is resolved as in HF Trainer");
  command.add_option("--accelerate-config", accelerate_config_file_,
                     "Configuration of accelerate, as JSON; the deepspeed_config_file that it names is read too");
  command.add_option("--lengths", lengths_file_,
                     "Lengths of your samples, image tokens included: one number a sample, or lengths with how many "
                     "samples have each (512x300, JSON, or a table of two columns)");
  for (const SectionWords* section : section_words()) {
    for (std::size_t i = 0; i < section->rows.size(); ++i) {
      const Setting& row = section->rows[i];
      if (*row.option == '\0') continue;
      const Field& field = section->section.fields[i];
      Given& given = given_.emplace_back(
          Given{std::string(section->section.pointer) + "/" + row.key, row.option, &field, "true", nullptr});
      given.option = command.add_option(row.option, given.text, settings_help(row, field));
      if ((field.types & kBoolean) != 0) given.option->expected(0, 1)->default_str("true");  // alone it means true
    }
  }
}

bool JobOptions::has_any() const {
  return !config_file_.empty() || !graph_file_.empty() || !ds_config_file_.empty() ||
         !accelerate_config_file_.empty() || !lengths_file_.empty() ||
         std::any_of(given_.begin(), given_.end(), [](const Given& given) { return given.option->count() > 0; });
}

std::string JobOptions::job() const {
  if (file_.empty()) return with_options("{\"version\":1}");
  return with_options(job_of_file(file_));
}

std::string JobOptions::with_options(std::string text) const {
  if (!has_any()) return text;
  Json job = parse(text);
  if (!job.is_object()) return text;  // the core says what is wrong with it
  for (const Given& given : given_) {
    if (given.option->count() > 0) make_room(job, given.name);
  }
  if (!config_file_.empty()) put(job, Json::json_pointer("/model/config"), read_json(config_file_));
  if (!graph_file_.empty()) job["model"] = {{"graph", read_json(graph_file_)}};
  if (!ds_config_file_.empty() || !accelerate_config_file_.empty()) {
    // The file replaces what the job says of it.
    Json& parallel = job["parallel"];
    if (!parallel.is_object()) parallel = Json::object();
    for (const char* key : {"strategy", "zero_stage", "ds_config", "ddp", "fsdp", "accelerate_config"})
      parallel.erase(key);
  }
  if (!ds_config_file_.empty()) {
    put(job, Json::json_pointer("/parallel/strategy"), "deepspeed");
    put(job, Json::json_pointer("/parallel/ds_config"), read_json(ds_config_file_));
  }
  if (!accelerate_config_file_.empty()) {
    Json config = read_json(accelerate_config_file_,
                            "; accelerate writes YAML; convert it to JSON with: python -c \"import json, sys, yaml; "
                            "json.dump(yaml.safe_load(sys.stdin), sys.stdout)\"");
    const Json::json_pointer file("/deepspeed_config/deepspeed_config_file");
    if (config.contains(file) && config[file].is_string()) config[file] = read_json(config[file].get<std::string>());
    put(job, Json::json_pointer("/parallel/accelerate_config"), std::move(config));
  }
  if (!lengths_file_.empty())
    put(job, Json::json_pointer("/data/lengths"), lengths_of_text(read(lengths_file_), lengths_file_));
  for (const Given& given : given_) {
    if (given.option->count() > 0) put(job, Json::json_pointer(given.pointer), to_json(*given.field, given.text));
  }
  return job.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace oometer::cli
