#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/job.h"
#include "job/simulate.h"
#include "report/report.h"

namespace oometer {

/// "1.5 GiB"
std::string gibibytes(std::int64_t bytes);

/// What surprises people about a result, in sentences, with its own numbers.
std::vector<std::string> explain(const Job& job, const Simulation& simulation, const Report& report,
                                 const ReportInput& input);

/// What an answer of inference assumes, and how well it is known.
void note_inference(const Job& job, const Simulation& simulation, ReportInput& input);

/// "fla and causal_conv1d": what has these operations.
std::string packages_of(Kernels kernels);
/// Images that differ, or a video, as the model sees them.
std::string describe_images(const DataConfig& data);
/// How its experts run.
void note_experts(const Job& job, ReportInput& input);
/// Those that the job's model calls and that are not installed.
Kernels missing_kernels(const Job& job);
/// Whose code runs what packages of kernels could.
void note_kernels(const Job& job, ReportInput& input);
/// What the job would save with every package of them installed, in a sentence; none where that is little, or cannot be
/// said. Runs the job once more.
std::optional<std::string> explain_kernels(const Job& job, const Report& report);

/// What DeepSpeed's own estimators say that a GPU needs for model states (0.19.8: stage_1_and_2.py,
/// estimate_zero2_model_states_mem_needs, which stands for stage 1 too; stage3.py,
/// estimate_zero3_model_states_mem_needs), bytes. `parameters` and `largest_layer` are elements, trained or not.
std::int64_t deepspeed_estimate(const DeepSpeedConfig& config, std::int64_t parameters, std::int64_t largest_layer,
                                std::int64_t gpus);

}  // namespace oometer
