#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "importers/ledger.h"

/// A trainer's own files, changed in their own words.
namespace oometer::importers {

/// A key of a file with another value.
struct Edit {
  std::string file;
  std::string key;  ///< theirs; one in a group has dots
  nlohmann::json value;
};

/// "gradient_checkpointing: true", as YAML has it; as "--gradient_checkpointing true" of a script.
std::string words_of(const SourceFile& file, const Edit& edit);

/// Changes its file; false where the file has no place for the key.
bool apply(SourceFile& file, const Edit& edit);

/// The difference of two texts of a file, as `patch` takes it: a unified diff; "" where they are the same.
std::string patch_of(const std::string& name, const std::string& before, const std::string& after);

/// What a trainer calls something that the job has and the file does not say.
struct Word {
  const char* trainer;  ///< without its version; "": any
  const char* pointer;  ///< of the job
  const char* value;    ///< there, as JSON; "": any
  const char* key;
  const char* said;  ///< as JSON
};

/// Those of a trainer ("llamafactory 0.9.5") for a place of the job and a value there.
std::vector<Word> words_for(const std::string& trainer, const std::string& pointer, const nlohmann::json& value);

}  // namespace oometer::importers
