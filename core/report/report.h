#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/unmodelled.h"
#include "cuda/outside.h"
#include "cuda/replay.h"
#include "report/host.h"
#include "trace/log.h"

/// What a job's log and its replays say: the paper's Equation 1 (parameters + gradients + optimizer states +
/// activations, by module) as a view of what is alive at the peak. Everything here is counted, nothing is added.
namespace oometer {

/// What an allocated byte is for.
enum class Factor : std::uint8_t {
  parameters,        ///< gathered ones too
  gradients,         ///< buckets and flat partitions too
  optimizer_states,  ///< fp32 master weights, moments, step counters
  activations,       ///< kept by a forward pass for its backward; recomputed ones and autocast's weights too; of
                     ///< inference all that its operators give
  temporaries,       ///< of operators, libraries and the optimizer
  buffers_and_inputs,
  kv_cache,            ///< keys and values of the tokens seen, with the copies by which a growing cache grows
  allocator_rounding,  ///< blocks are multiples of 512 bytes, and up to 1 MiB of a large one is not split off
};
inline constexpr std::size_t kFactors = 8;
const char* factor_name(Factor factor);

/// Bytes by factor.
struct Factors : std::array<std::int64_t, kFactors> {
  std::int64_t& operator[](Factor factor) {
    return std::array<std::int64_t, kFactors>::operator[](static_cast<std::size_t>(factor));
  }
  std::int64_t operator[](Factor factor) const {
    return std::array<std::int64_t, kFactors>::operator[](static_cast<std::size_t>(factor));
  }
  Factors& operator+=(const Factors& other) {
    for (std::size_t i = 0; i < kFactors; ++i) data()[i] += other.data()[i];
    return *this;
  }
  std::int64_t sum() const {
    std::int64_t total = 0;
    for (const std::int64_t bytes : *this) total += bytes;
    return total;
  }
};

enum class Verdict : std::uint8_t {
  fits,
  tight,  ///< it fits, but the interval's upper end does not
  does_not_fit,
};
const char* verdict_name(Verdict verdict);

/// A moment of the log: the state after `event`, which is not of the log if that was before anything happened.
struct Moment {
  std::uint32_t event = kNever;
  int iteration = 0;
  PhaseName phase = PhaseName::init;
  ModuleId module = 0;
  OpId op = 0;
};
const char* phase_name(PhaseName phase);

struct TimelineRow {
  std::uint32_t event = 0;  ///< the state after it
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
  Factors factors{};
};

/// One rank's run, where ranks differ.
struct RankPeak {
  std::int64_t rank = 0;
  MemoryStats peak;
  std::int64_t host_bytes = 0;
  bool fits = true;
};

/// Peak reserved memory of a run over random orders of its samples.
struct OrderSpread {
  std::int64_t low = 0, high = 0;
  std::int64_t orders = 0;       ///< that were tried; 0: the samples have one order only
  std::int64_t worst_batch = 0;  ///< peak allocated of two steps with the longest samples only
};

/// One image as the model sees it.
struct ImageSize {
  std::int64_t height = 0;  ///< pixels; 0: the job has no images
  std::int64_t width = 0;
  std::int64_t tokens = 0;  ///< of the language model's sequence; 0: images are not merged into it
};

/// What stands behind a job's interval: measurements of cases like it on real GPUs (core/report/spread.h), or their
/// lack.
enum class Evidence : std::uint8_t {
  one_gpu,       ///< one GPU, torch and transformers near those of the measured runs
  one_gpu_4bit,  ///< the same with weights in 4 bits
  convolutions,  ///< a graph with convolutions by cuDNN on one GPU, any version
  none,          ///< several GPUs, or versions or vendors that no measured run had: the widest of the others
  source_only,   ///< what the job runs was read, never executed
};

/// What the log does not know.
struct ReportInput {
  Gpu gpu;
  Outside outside;
  AllocatorOptions allocator;  ///< of the device: no limit
  Evidence evidence = Evidence::none;
  Calibration calibration;
  std::vector<std::int64_t> module_parameters;  ///< by ModuleId: elements of its own
  std::int64_t parameters = 0;
  std::int64_t trainable = 0;
  std::int64_t host_bytes = 0;  ///< what this rank keeps in host memory instead: not in any other figure
  std::int64_t rank = 0;        ///< whose report this is
  std::vector<RankPeak> ranks;  ///< in their order, this one's too, if the job asked for all and they differ
  ImageSize image;              ///< each of them
  bool lists_steps = false;     ///< the report has each optimizer step's peaks
  OrderSpread spread;
  std::vector<std::string> notes;  ///< what surprises people about this result
  std::vector<std::string> assumptions;
  std::vector<Unmodelled> unmodelled;
};

struct ReportOptions {
  std::size_t timeline_points = 300;  ///< at most; each is the highest of its share of the events
  std::size_t largest = 20;
  bool host = false;        ///< with what the host needs, also where the job does not say what it has
  bool attribution = true;  ///< false: verdict, peaks and phases only, not who holds the memory
};

struct Report {
  Verdict verdict = Verdict::fits;
  bool fits = true;
  std::int64_t headroom = 0;  ///< negative: what is missing
  MemoryStats peak;
  std::int64_t outside_allocator = 0;
  std::int64_t total = 0;
  std::int64_t low = 0;  ///< the total's interval
  std::int64_t high = 0;
  /// What the job needs at least, to 16 MiB: the total on the smallest device on which it runs, where PyTorch frees its
  /// cache before it asks for more. Found only where the job runs here though this GPU has less than `total`; else 0.
  std::int64_t least = 0;
  std::string basis;
  Moment peak_at;
  std::optional<HostReport> host;
  std::optional<OutOfMemory> out_of_memory;
  Moment out_of_memory_at;
  Factors breakdown{};           ///< sums to peak.allocated
  std::vector<Factors> modules;  ///< by ModuleId, at the peak, with all below it: the root's is the breakdown
  std::vector<std::int64_t> parameter_count;  ///< by ModuleId, elements, with all below it
  std::vector<MemoryStats> phases;            ///< of Log::phases
  std::vector<TimelineRow> timeline;
  std::vector<StorageId> largest;  ///< alive at the peak, largest first
  std::vector<Factor> factors;     ///< of every storage
};

/// What the simulated allocator may take of a GPU: the rest is outside it.
std::int64_t allocator_limit(const Gpu& gpu, const Outside& outside, const Calibration& calibration = {});

/// `unlimited` is the log's replay without a limit, `limited` the one within allocator_limit().
Report build_report(const Log& log, const Replay& unlimited, const Outcome& limited, const ReportInput& input,
                    const ReportOptions& options = {});

/// What a module holds at the peak: a tensor, or its part of one that many share.
struct Holding {
  StorageId storage = 0;
  ModuleId module = 0;  ///< the module itself, or one below it
  std::int64_t bytes = 0;
  bool shared = false;  ///< a part of a flat buffer
};

/// Everything that a module and those below it hold at the peak, the largest first: with the blocks' rounding it sums
/// to the module's factors. The report has to be one with every tensor among its `largest`.
std::vector<Holding> holdings_of(const Log& log, const Report& report, ModuleId module);

/// "saved output of silu", "gradient": what a tensor of the log is.
std::string role_text(const Log& log, StorageId storage, Factor factor);

}  // namespace oometer
