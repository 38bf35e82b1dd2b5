#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/unmodelled.h"

/// Trainers' own files turned into jobs. An importer accounts for every key: taken, without effect, or not modelled.
namespace oometer::importers {

/// A file as it was given. What is JSON or YAML comes as a tree, anything else (a shell script) as its text.
struct SourceFile {
  std::string name;
  nlohmann::json content;
  std::string text = {};  ///< as it is written, where a patch of it is wanted
};

/// A value of the job, and the trainer's key that led to it.
struct Taken {
  std::string file;     ///< "" where no file says it
  std::string key;      ///< theirs; where they have a default, the key that would change it
  std::string pointer;  ///< ours: where it stands in the job
  nlohmann::json value;
  bool is_default = false;  ///< the file does not say it: the trainer's own default
  std::string source;       ///< of a default: project and version, file, class; of an older name: the newer one
};

/// A key that the job leaves out, and what it could change.
struct LeftOut {
  std::string file, key;
  nlohmann::json value;
  std::string text;
  Effect effect = Effect::unknown;
  std::optional<std::int64_t> bytes;  ///< how much, where it is known
};

/// Something that the files name or leave open and that was not given with them.
struct Missing {
  std::string kind;  ///< "file", "config.json", "variable", "gpus", "value"
  std::string name;  ///< of the file, model or variable
  std::string file, key;
  std::string text;  ///< for people
};

/// Why there is no answer, at the trainer's own key.
struct Refusal {
  std::string file, key;
  std::string pointer;  ///< ours, where the job's reader refuses it
  std::string message;
};

/// What was read so far.
struct Ledger {
  std::string trainer;  ///< project and version
  nlohmann::json job = {{"version", 1}};
  std::vector<Taken> taken;
  std::vector<std::pair<std::string, std::string>> ignored;  ///< file and key
  std::vector<LeftOut> unmodelled;
  std::vector<Missing> missing;
  std::optional<Refusal> refused;  ///< the first one

  /// Puts a value at a pointer of the job. A parent that is no object is replaced by one.
  void put(const std::string& pointer, nlohmann::json value);
  void refuse(const std::string& file, const std::string& key, const std::string& message);
};

}  // namespace oometer::importers
