#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// The verdict on a job, or the error in it, for those who read it: `text` one sentence; `github` a workflow command of
/// GitHub Actions, which marks the file; `junit` the XML that most continuous integrations collect; `json` the answer
/// itself. `file` is the job's, "" where it has none; `passes` says whether the check does.
std::string check_result(const std::string& format, const std::string& file, const nlohmann::ordered_json& answer,
                         bool passes);

}  // namespace oometer::cli
