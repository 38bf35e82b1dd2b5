#pragma once

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "importers/import.h"

/// Questions to the importers, and what their ledgers say of a key.
namespace oometer::importers {

inline const nlohmann::json& hub() {
  static const nlohmann::json models = [] {
    std::ifstream file(OOMETER_SOURCE_DIR "/presets/hub.json");
    return nlohmann::json::parse(file);
  }();
  return models;
}

/// A file: JSON text becomes a tree, other text stays a script.
inline SourceFile file_of(std::string name, const std::string& text) {
  Result<nlohmann::json> tree = parse_json(text);
  return {std::move(name), tree ? *std::move(tree) : nlohmann::json(text)};
}

inline Ledger ask(std::vector<SourceFile> files, std::int64_t gpus = 0) {
  Question question;
  question.files = std::move(files);
  question.hub = hub();
  question.gpus = gpus;
  return import_files(question);
}

inline Ledger ask_one(const std::string& text) { return ask({file_of("given", text)}); }

/// What a pointer of the job has and whose key put it there; null where none did.
inline const Taken* taken_at(const Ledger& ledger, const std::string& pointer) {
  for (const Taken& taken : ledger.taken)
    if (taken.pointer == pointer) return &taken;
  return nullptr;
}

inline const LeftOut* left_out(const Ledger& ledger, const std::string& key) {
  for (const LeftOut& left : ledger.unmodelled)
    if (left.key == key) return &left;
  return nullptr;
}

inline bool is_ignored(const Ledger& ledger, const std::string& key) {
  for (const auto& [file, name] : ledger.ignored)
    if (name == key) return true;
  return false;
}

inline nlohmann::json at(const Ledger& ledger, const std::string& pointer) {
  const nlohmann::json::json_pointer place(pointer);
  return ledger.job.contains(place) ? ledger.job.at(place) : nlohmann::json("absent");
}

}  // namespace oometer::importers
