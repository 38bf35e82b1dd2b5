#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "importers/ledger.h"
#include "result.h"

namespace oometer::importers {

/// A trainer's files, dropped together.
struct Question {
  std::vector<SourceFile> files;
  nlohmann::json hub;     ///< presets/hub.json: models by their names, [{"id", "preset" or "config"}]
  std::string gpu;        ///< a GPU of the catalogue; "": the job's default
  std::int64_t gpus = 0;  ///< how many; 0: as the files say
};

/// Makes a job of them and accounts for every key. What could be read is in the job even where something is missing or
/// refused. Never throws.
Ledger import_files(const Question& question);

/// Two trainings and more that were given at once, each with the files that none of them is by itself; else the
/// question.
std::vector<Question> trainings_of(const Question& question);

/// A ledger as JSON text:
///
///     {"trainer", "job", "taken": [{"file", "key", "pointer", "value", "from", "source"}], "ignored": [{"file",
///     "key"}],
///      "unmodelled": [{"file", "key", "value", "text", "effect", "bytes"}],
///      "missing": [{"kind", "name", "file", "key", "text"}], "refused": null or {"file", "key", "pointer", "message"}}
///
/// `from` is "file" or "default"; `effect` is "less", "more", "either" or "unknown"; `bytes` is null where nobody
/// knows.
std::string to_json(const Ledger& ledger);

/// {"files": [{"name", "content", "text"}], "hub", "gpu", "gpus"}; `text` may be left out, as all after the files.
Result<Question> read_question(std::string_view text);

/// Such a question in, the above out, or {"error": {...}}. For the page.
std::string import_json(std::string_view question);

}  // namespace oometer::importers
