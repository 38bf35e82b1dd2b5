#include "cli/import_command.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

#include "cli/format.h"
#include "cli/hub.h"
#include "cli/yaml.h"
#include "config/reader.h"

namespace oometer::cli {

using Json = nlohmann::json;

namespace {

std::string read_text(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// JSON, YAML or a shell script, by its name, else by what it looks like.
Json content_of(const std::string& path, const std::string& text) {
  if (path.ends_with(".sh") || path.ends_with(".bash") || text.starts_with("#!")) return text;
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && text[begin] == '{' && !text.substr(begin).starts_with("{{")) {
    Result<Json> tree = parse_json(text);
    if (tree) return *std::move(tree);
    if (path.ends_with(".json")) throw std::runtime_error(path + ": " + tree.error().message);
  }
  Result<Json> tree = parse_yaml(text);
  const bool is_yaml = path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".json");
  if (tree && tree->is_object()) return *std::move(tree);
  if (is_yaml) throw std::runtime_error(path + ": " + (tree ? "expected keys and values" : tree.error().message));
  return text;  // a command line
}

std::string short_text(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 44) text = text.substr(0, 41) + "...";
  return text;
}

std::string line_of(const std::string& first, const std::string& second, const std::string& third) {
  char line[512];
  std::snprintf(line, sizeof line, "  %-34s %-44s %s\n", first.c_str(), second.c_str(), third.c_str());
  return line;
}

}  // namespace

importers::Ledger import_paths(const std::vector<std::string>& paths, const std::string& gpu, std::int64_t gpus) {
  importers::Question question;
  for (const std::string& path : paths) question.files.push_back({path, content_of(path, read_text(path))});
  question.hub = *parse_json(hub_text());
  question.gpu = gpu;
  question.gpus = gpus;
  return import_files(question);
}

bool is_trainers_file(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".sh");
}

std::string imported_job(const std::string& path) {
  const importers::Ledger ledger = import_paths({path}, "", 0);
  if (ledger.refused) {
    const importers::Refusal& refused = *ledger.refused;
    throw std::runtime_error(path + ": " + refused.key + (refused.key.empty() ? "" : ": ") + refused.message);
  }
  for (const importers::Missing& missing : ledger.missing)
    if (missing.kind != "gpus")
      throw std::runtime_error(path + ": " + missing.name + (missing.name.empty() ? "" : ": ") + missing.text +
                               " (oometer import takes several files)");
  return ledger.job.dump();
}

std::string import_table(const importers::Ledger& ledger) {
  std::string out = (ledger.trainer.empty() ? "No trainer" : "Read as " + ledger.trainer) + "\n";
  if (ledger.refused) {
    const importers::Refusal& refused = *ledger.refused;
    out += "\nNot supported: " + refused.key + (refused.key.empty() ? "" : ": ") + refused.message +
           (refused.pointer.empty() ? "" : " (" + refused.pointer + ")") + "\n";
  }
  if (!ledger.missing.empty()) {
    out += "\nMissing\n";
    for (const importers::Missing& missing : ledger.missing) out += line_of(missing.kind, missing.name, missing.text);
  }
  out += "\nTaken\n";
  for (const importers::Taken& taken : ledger.taken)
    out += line_of(taken.key, taken.pointer + " = " + short_text(taken.value),
                   taken.is_default ? "default" + (taken.source.empty() ? "" : ": " + taken.source) : taken.file);
  if (!ledger.unmodelled.empty()) out += "\nNot modelled\n";
  for (const importers::LeftOut& left : ledger.unmodelled) {
    const char* const effect = left.effect == Effect::less     ? "may need less: "
                               : left.effect == Effect::more   ? "may need more: "
                               : left.effect == Effect::either ? "may differ: "
                                                               : "";
    out += line_of(left.key, left.value.is_null() ? "" : short_text(left.value),
                   effect + left.text + (left.bytes ? " (" + bytes_text(*left.bytes) + ")" : ""));
  }
  if (!ledger.ignored.empty()) {
    out += "\nWithout effect on memory\n ";
    std::size_t width = 1;
    for (const auto& [file, key] : ledger.ignored) {
      if (width + key.size() + 1 > 118) out += "\n ", width = 1;
      out += " " + key;
      width += key.size() + 1;
    }
    out += "\n";
  }
  return out + "\nJob\n" + ledger.job.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace oometer::cli
