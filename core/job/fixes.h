#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "result.h"

namespace oometer {

/// A change after which a refused job is accepted.
struct Fix {
  std::string label;   ///< what a button says: "Switch to DDP"
  std::string change;  ///< a merge patch (RFC 7386) on the job as given, JSON
};

/// The ways out of a refusal that are known, at most three: those of a table, by the place of the error, and the
/// removal of what stands there. Each was tried: with it parse_job and a run accept the job.
std::vector<Fix> known_fixes(std::string_view job, const Error& error);

}  // namespace oometer
