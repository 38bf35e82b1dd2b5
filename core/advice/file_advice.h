#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "advice/advice.h"
#include "importers/edit.h"
#include "importers/import.h"

/// Questions about trainers' own files that need many simulations.
namespace oometer {

/// A change that helps, as the files themselves say it. Its figures are those of the changed files, imported and run.
struct FileChange {
  std::string label;  ///< the advisor's, where the changed files are exactly what it advises; else ""
  std::string costs;  ///< plain words
  std::vector<importers::Edit> edits;
  std::vector<std::string> words;    ///< of each edit: "gradient_checkpointing: true"
  std::vector<std::string> patches;  ///< a unified diff for each changed file whose text was given
  Trial trial;
  std::int64_t saves = 0;  ///< bytes of the total
};

/// What the advisor would change in a job of these files, where their trainer has words for it: those that save most
/// first, whole combinations among them. `job` is theirs with something else in it (a command's options); null: theirs.
/// `advice`: of that job, where it was asked for already. Nothing where the files make no job.
std::vector<FileChange> advise_files(const importers::Question& question, const nlohmann::json& job = {},
                                     const Advice* advice = nullptr);

/// The same as JSON: [{"label", "costs", "edits": [{"file", "key", "value"}], "words", "patches", "peak", "verdict",
/// "saves"}]
nlohmann::json to_json(const std::vector<FileChange>& changes);

/// One thing in which two trainings differ, and what it does to the memory.
struct FileDifference {
  std::string pointer;                     ///< of the job
  nlohmann::json first, second;            ///< null: not there
  std::string first_key, second_key;       ///< of the files; "" where none leads to it
  std::optional<std::int64_t> alone;       ///< bytes of the total that it adds to the first one by itself
  std::optional<std::int64_t> on_the_top;  ///< and that it adds when all else is as in the second one
};

struct FileComparison {
  importers::Ledger first, second;
  Trial first_trial, second_trial;
  std::vector<FileDifference> differences;  ///< what costs most first
  std::int64_t together = 0;  ///< bytes of the whole difference that no difference has by itself: only together
};

/// Two trainings side by side. None where one of them makes no job; the ledgers say why.
std::optional<FileComparison> compare_files(const importers::Ledger& first, const importers::Ledger& second);

/// {"first", "second": {"trainer", "peak", "verdict"}, "differences": [{"pointer", "first", "second", "first_key",
/// "second_key", "alone", "on_the_top"}], "together"}: sizes are bytes, null where a job with that alone is refused.
nlohmann::json to_json(const FileComparison& comparison);

/// Both as text: {"comparison": the above, null where one of them makes no job, "imports": [two ledgers]}
std::string compared_json(const importers::Ledger& first, const importers::Ledger& second,
                          const std::optional<FileComparison>& comparison);

/// A question (importers::read_question) in, {"changes": the list of advise_files} out, or {"error": {...}}.
std::string advise_files_json(std::string_view question);

/// The same with compared_json out; {"comparison": null, "imports": []} where the files are not two trainings.
std::string compare_files_json(std::string_view question);

}  // namespace oometer
