#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

/// Where the recorded cases lie (README.md).
namespace oometer {

inline const std::filesystem::path kReference = OOMETER_SOURCE_DIR "/tests/reference";

/// The files of a kind, one of each family that has such cases: FAMILY/KIND.jsonl.
inline std::vector<std::filesystem::path> files_of_families(const std::string& kind) {
  std::vector<std::filesystem::path> files;
  for (const auto& family : std::filesystem::directory_iterator(kReference)) {
    const std::filesystem::path file = family.path() / (kind + ".jsonl");
    if (exists(file)) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace oometer
