#pragma once

#include <cstdint>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/job.h"
#include "result.h"

/// What a person's own runs say of a job like them. They are the lines that the Python package's FitsCallback appends
/// to a file at the end of a training; nothing leaves the machine.
namespace oometer::cli {

struct Telemetry {
  std::vector<double> reserved;  ///< measured over simulated, of the runs that are like the job; ascending
  std::vector<double> step;      ///< the same of the seconds of a step
  std::int64_t others = 0;       ///< runs of another kind
  std::int64_t refused = 0;      ///< runs whose job this version refuses
};

/// A run is like the job where both have 4-bit weights or neither, one GPU or several, and, for the seconds, the same
/// GPU. Each run's job is simulated again, as this version does. An error, with the line, where the file is another.
Result<Telemetry> read_telemetry(std::istream& lines, const std::string& name, const Job& job);

/// Puts what they say into the report of the job: the intervals of `interval` and `time`, the verdict that depends on
/// them, and a note. A new run of the same kind lies between the least and the most of n with a probability of
/// (n - 1) / (n + 1). From kEnoughRuns on that is the interval; fewer only widen the one that the report has.
inline constexpr std::size_t kEnoughRuns = 19;
void refine(nlohmann::ordered_json& report, const Job& job, const Telemetry& telemetry);

}  // namespace oometer::cli
