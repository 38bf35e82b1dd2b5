#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "advice/file_advice.h"
#include "importers/import.h"

namespace oometer::cli {

/// A trainer's files, read; "-" is standard input. Throws std::runtime_error where one cannot be
/// read, with line and column of what is no YAML.
importers::Question read_paths(const std::vector<std::string>& paths, const std::string& gpu, std::int64_t gpus);

/// Whether a path is one of a trainer's own files and no job: YAML, a script or a notebook.
bool is_trainers_file(const std::string& path);

/// The job of one such file, as text. Throws std::runtime_error where there is none, saying what is missing or refused.
std::string imported_job(const std::string& path);

/// In what two trainings differ, and what each difference costs: for people.
std::string comparison_table(const FileComparison& comparison);

/// What helps, as the files say it: for people.
std::string file_advice_table(const std::vector<FileChange>& changes);

/// What was taken, what changes no memory, what is not modelled, what is missing: for people.
std::string import_table(const importers::Ledger& ledger);

}  // namespace oometer::cli
