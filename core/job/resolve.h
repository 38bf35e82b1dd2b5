#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "result.h"

/// What became of the configuration files that a job holds: of each key its value, where that comes from, and whether
/// it matters.
namespace oometer {

enum class Origin : std::uint8_t { file, automatic, fallback };
enum class Matters : std::uint8_t { yes, no, not_modelled };

struct ResolvedKey {
  std::string pointer;   ///< into the job; a key that the file has not stands where it would
  nlohmann::json value;  ///< as it is used
  Origin origin = Origin::file;
  std::string from;  ///< of an "auto": what it became that value by, for people
  Matters matters = Matters::yes;
};

/// Every key of `parallel.ds_config` or `parallel.accelerate_config`, then the defaults of those that the file leaves
/// out and that memory depends on; empty where the job has neither. The errors are parse_job's.
Result<std::vector<ResolvedKey>> resolved_keys(std::string_view job);

/// The same as JSON, or {"error": {...}}:
///
///     {"resolved": [{"pointer", "value", "origin", "from", "matters"}]}
///
/// `origin` is "file", "auto" (`from` then says by what it was resolved, else "") or "default"; `matters` is true,
/// false (memory does not depend on it, at this stage of ZeRO) or "not modelled". Never throws.
std::string resolve_json(std::string_view job);

}  // namespace oometer
