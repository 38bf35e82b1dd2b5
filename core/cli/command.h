#pragma once

#include "job/estimate.h"

namespace oometer::cli {

/// The command `oometer`: options and files of a job in, text out. It computes nothing of its own. Never throws.
/// Returns the exit code: 0 answered, or fits; 1 does not fit; 2 bad input.
int command(int argc, char** argv);

/// What a report of the command and of the Python package holds: everything, also what takes longer than the rest.
EstimateOptions report_options();

}  // namespace oometer::cli
