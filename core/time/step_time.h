#pragma once

#include <array>
#include <cstdint>

#include "report/work.h"
#include "time/gpu_speed.h"
#include "time/utilization.h"
#include "trace/log.h"

/// The time of an optimizer step, or of a generation: the kernels of its log one after the other on their streams, and
/// what the host takes to ask for them.
namespace oometer {

inline constexpr std::size_t kPhases = 9;  ///< PhaseName

/// What a phase has beside its kernels: seconds for each of theirs.
struct PhaseWaits {
  double idle = 0, communication = 0;
};

/// Seconds, and what they are of.
struct StepTime {
  double seconds = 0;
  std::array<double, kWorkKinds> by_kind{};  ///< by WorkKind; of communication what no computation hides
  double idle = 0;                           ///< in which the GPU waits for the host; with by_kind it sums to `seconds`
  double unmeasured = 0;                     ///< of kernels without measured kin
  double on_links = 0;                       ///< of collectives, hidden or not
  double prefill = 0, decode = 0;            ///< of inference, in `seconds`
  WorkSum work;                              ///< of one step, or turn
  DType dtype = DType::float32;              ///< of most of its products
  double peak_flops = 0;                     ///< per second, of that dtype
  Utilization utilization;
  std::array<PhaseWaits, kPhases> waits;  ///< by PhaseName
};

/// Of training the mean of all optimizer steps after the first, of inference the last turn. `micro_steps`: forward
/// passes in a step. `overlaps_reduction`: DDP's, whose collectives run beside backward.
StepTime step_time(const Log& log, const GpuSpeed& gpu, const Device& device, std::int64_t micro_steps,
                   bool overlaps_reduction);

/// Whether a step's time has this phase, of iterations from first to last.
bool is_timed(const PhaseMark& phase, int first, int last);
int last_iteration(const Log& log);
/// Whether a kernel runs beside those of the compute stream.
bool runs_beside(const Work& work, PhaseName phase, bool overlaps_reduction);

}  // namespace oometer
