#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/job.h"
#include "result.h"
#include "tensor/host_memory.h"
#include "trace/log.h"
#include "train/step.h"

namespace oometer {

/// What running a job leaves.
struct Simulation {
  Log log;
  std::vector<std::int64_t> module_parameters;  ///< by ModuleId: elements of its own, however they are kept
  std::int64_t parameters = 0;                  ///< elements, as `sum(p.numel() for p in model.parameters())`
  std::int64_t trainable = 0;                   ///< of those, the ones that require gradients
  bool trains_vision = false;                   ///< some of those are the vision tower's
  HostMemory host;                              ///< of the rank, offloaded
  std::int64_t rank = 0;                        ///< whose run this is
  std::vector<std::int64_t> ranks_that_differ;  ///< its own too; empty where all are alike, or the job names one
  std::optional<Error> refusal;                 ///< what a library would have stopped the run with
  Generated generated;                          ///< of inference
  std::vector<std::string> notes;               ///< what libraries pass over without a word
};

/// Executes a job: the model is built and trained for two iterations on tensors without numbers. `behaviours` is the
/// job's runtime, resolved (the reference tests change a flag of it). `repeats` false: every operator is executed, even
/// where what it does is known already; the log is the same, which is tested.
Simulation simulate(const Job& job, const Behaviours& behaviours, bool repeats = true);

}  // namespace oometer
