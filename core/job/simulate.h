#pragma once

#include "job/job.h"
#include "trace/log.h"

namespace oometer {

/// Executes a job: the model is built and trained for two iterations on tensors without numbers. The log is all that
/// comes of it. `behaviours` is the job's runtime, resolved (the reference tests change a flag of it).
Log simulate(const Job& job, const Behaviours& behaviours);

}  // namespace oometer
