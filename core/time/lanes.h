#pragma once

#include <cstddef>
#include <vector>

#include "time/step_time.h"

/// What a GPU does through a step: its utilization over time.
namespace oometer {

/// A stretch of time. Seconds of it, each at most all: in which multiprocessors, tensor cores and memory work,
/// collectives are waited for, and the host.
struct Lane {
  void add(const Lane& its, double times) {
    for (double Lane::*part : {&Lane::seconds, &Lane::multiprocessors, &Lane::tensor_cores, &Lane::memory,
                               &Lane::communication, &Lane::idle})
      this->*part += its.*part * times;
  }

  PhaseName phase = PhaseName::init;  ///< that it begins with
  double seconds = 0, multiprocessors = 0, tensor_cores = 0, memory = 0, communication = 0, idle = 0;
};

/// The last step of a log (of inference the turn) in so many equal stretches, kernel by kernel in their order. What
/// `step` has of a phase without a kernel of its own, waiting for the host and for collectives, is spread evenly over
/// the phase.
std::vector<Lane> lanes(const Log& log, const GpuSpeed& gpu, const Device& device, const StepTime& step,
                        bool overlaps_reduction, std::size_t stretches);

}  // namespace oometer
