#pragma once

#include <optional>

#include "job/job.h"
#include "result.h"

namespace oometer {

/// Why this build cannot answer a job that oometer as a whole can: an error of code "elsewhere". None: it carries what
/// the job needs. The page's first module and the widget leave out what few jobs need (wasm/first.cpp) and are light
/// for it; whoever gets this error asks the whole module.
std::optional<Error> not_carried(const Job& job);

}  // namespace oometer
