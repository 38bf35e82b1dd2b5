#include "cli/import_command.h"

#include <algorithm>
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

/// JSON, YAML or a script, by its name, else by what it looks like.
Json content_of(const std::string& path, const std::string& text) {
  if (path.ends_with(".sh") || path.ends_with(".bash") || path.ends_with(".py") || text.starts_with("#!")) return text;
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

importers::Question read_paths(const std::vector<std::string>& paths, const std::string& gpu, std::int64_t gpus) {
  importers::Question question;
  for (const std::string& path : paths) {
    std::string text = read_text(path);
    question.files.push_back({path, content_of(path, text), std::move(text)});
  }
  question.hub = *parse_json(hub_text());
  question.gpu = gpu;
  question.gpus = gpus;
  return question;
}

bool is_trainers_file(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".sh") || path.ends_with(".py") ||
         path.ends_with(".ipynb");
}

std::string imported_job(const std::string& path) {
  const importers::Ledger ledger = import_files(read_paths({path}, "", 0));
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

std::string comparison_table(const FileComparison& comparison) {
  const auto size = [](const std::optional<std::int64_t>& bytes) {
    if (!bytes) return std::string("no job");
    return (*bytes < 0 ? "-" : "+") + bytes_text(*bytes < 0 ? -*bytes : *bytes);
  };
  const auto side = [](const char* name, const importers::Ledger& ledger, const Trial& trial) {
    return std::string(name) + ledger.trainer + ", " + bytes_text(trial.total) + " (" + verdict_name(trial.verdict) +
           ")\n";
  };
  std::string out = side("First   ", comparison.first, comparison.first_trial) +
                    side("Second  ", comparison.second, comparison.second_trial);
  out += "\nWhat differs\n";
  char line[512];
  std::snprintf(line, sizeof line, "  %14s %14s  %s\n", "by itself", "with the rest", "");
  out += line;
  std::string same;
  for (const FileDifference& one : comparison.differences) {
    if (one.alone == 0 && one.on_the_top == 0) {
      same += (same.empty() ? "" : ", ") + one.pointer.substr(1);
      continue;
    }
    const std::string keys = one.first_key == one.second_key || one.second_key.empty() ? one.first_key
                             : one.first_key.empty()                                   ? one.second_key
                                                     : one.first_key + ", " + one.second_key;
    std::snprintf(line, sizeof line, "  %14s %14s  %s: %s -> %s%s\n", size(one.alone).c_str(),
                  size(one.on_the_top).c_str(), one.pointer.substr(1).c_str(), short_text(one.first).c_str(),
                  short_text(one.second).c_str(), keys.empty() ? "" : (" (" + keys + ")").c_str());
    out += line;
  }
  std::snprintf(line, sizeof line, "  %14s                 only together\n", size(comparison.together).c_str());
  out += line;
  std::snprintf(line, sizeof line, "  %14s                 in all\n",
                size(comparison.second_trial.total - comparison.first_trial.total).c_str());
  out += line;
  if (!same.empty()) out += "\nDifferent, without effect on memory: " + same + "\n";
  return out;
}

std::string file_advice_table(const std::vector<FileChange>& changes) {
  if (changes.empty()) return "";
  std::string out = "\nIn the file's own words\n";
  char line[128];
  for (const FileChange& change : changes) {
    std::snprintf(line, sizeof line, "  %13s%13s  %-14s", bytes_text(change.saves).c_str(),
                  bytes_text(change.trial.total).c_str(), verdict_name(change.trial.verdict));
    out += line;
    for (const std::string& words : change.words) out += (&words == change.words.data() ? "" : ", ") + words;
    out += "\n";
  }
  const auto fits = std::find_if(changes.rbegin(), changes.rend(),
                                 [](const FileChange& change) { return change.trial.fits && !change.patches.empty(); });
  if (fits == changes.rend()) return out;
  out += "\nA patch with which it fits\n";
  for (const std::string& patch : fits->patches) out += patch;
  return out;
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
                   taken.is_default       ? "default" + (taken.source.empty() ? "" : ": " + taken.source)
                   : taken.source.empty() ? taken.file
                                          : taken.file + " (" + taken.source + ")");
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
