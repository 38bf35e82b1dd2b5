#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "importers/import.h"

namespace oometer::cli {

/// A trainer's files, read and made a job of; "-" is standard input. Throws std::runtime_error where one cannot be
/// read, with line and column of what is no YAML.
importers::Ledger import_paths(const std::vector<std::string>& paths, const std::string& gpu, std::int64_t gpus);

/// Whether a path is one of a trainer's own files and no job: YAML or a shell script.
bool is_trainers_file(const std::string& path);

/// The job of one such file, as text. Throws std::runtime_error where there is none, saying what is missing or refused.
std::string imported_job(const std::string& path);

/// What was taken, what changes no memory, what is not modelled, what is missing: for people.
std::string import_table(const importers::Ledger& ledger);

}  // namespace oometer::cli
