#include "report/report.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "report/spread.h"
#include "sort_by.h"

namespace oometer {

namespace {

/// Code that was read only: PyTorch's or a framework's behaviour may have been misread. Ten-thousandths.
constexpr std::int64_t kSourceOnly = 1000;

ReservedSpread spread_of(Evidence evidence) {
  if (evidence == Evidence::one_gpu) return kSpreadOneGpu;
  if (evidence == Evidence::one_gpu_4bit) return kSpreadOneGpu4Bit;
  if (evidence == Evidence::convolutions) return kSpreadConvolutions;
  const auto widest = std::max({kSpreadOneGpu.above, kSpreadOneGpu4Bit.above,
                                evidence == Evidence::source_only ? kSourceOnly : std::int64_t{0}});
  return {0, widest, widest};
}

/// Rounded up.
std::string percent_text(std::int64_t ten_thousandths) {
  const std::int64_t tenths = (ten_thousandths + 9) / 10;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

std::int64_t times(std::int64_t bytes, double factor) {
  return factor == 1 ? bytes : static_cast<std::int64_t>(static_cast<double>(bytes) * factor);
}

/// What a storage's bytes are for. `forward_end`: where the forward phase of its birth ends, beyond any event for
/// another. Without branches: neither a tensor's role nor its life can be predicted.
constexpr std::uint64_t kNoForward = std::uint64_t{kNever} + 1;
Factor classify(const StorageRecord& record, std::uint64_t forward_end) {
  constexpr Factor kByRole[] = {
      Factor::parameters,       Factor::buffers_and_inputs, Factor::buffers_and_inputs, Factor::gradients,
      Factor::optimizer_states, Factor::temporaries,        Factor::temporaries,        Factor::kv_cache};
  static_assert(static_cast<int>(Role::parameter) == 0 && static_cast<int>(Role::kv_cache) == 7);
  const bool kept = (record.role == Role::tensor) & (record.saved | (record.free_event >= forward_end));
  return kept ? Factor::activations : kByRole[static_cast<std::size_t>(record.role)];
}

Moment moment_at(const Log& log, std::uint32_t event) {
  Moment moment;
  moment.event = event;
  if (event >= log.events.size()) return moment;
  moment.module = log.events[event].module;
  moment.op = log.events[event].op;
  for (const PhaseMark& phase : log.phases) {
    if (phase.first_event > event) break;
    moment.iteration = phase.iteration;
    moment.phase = phase.name;
  }
  return moment;
}

/// The states that make the timeline: the highest of each share of the events, which is 2^n runs of the replay's.
class Timeline {
 public:
  Timeline(const std::vector<Replay::High>& highs, std::size_t points) {
    std::size_t runs = 1;  // a share
    while (runs * std::max<std::size_t>(points, 1) < highs.size()) runs *= 2;
    shift_ = static_cast<unsigned>(std::countr_zero(runs * Replay::kRun));
    for (std::size_t begin = 0; begin < highs.size(); begin += runs) {
      Replay::High highest{static_cast<std::uint32_t>(begin * Replay::kRun), -1};
      for (std::size_t i = begin; i < std::min(begin + runs, highs.size()); ++i) {
        if (highs[i].allocated > highest.allocated) highest = highs[i];
      }
      chosen_.push_back(highest.event);
    }
    changes_.resize(chosen_.size() + 1);
  }

  /// A storage's bytes count in the states from its alloc on, until its free.
  void add(const StorageRecord& record, Factor factor, std::int64_t slack) {
    const std::size_t from = first_row(record.alloc_event);
    const std::size_t until = record.free_event == kNever ? chosen_.size() : first_row(record.free_event);
    if (from == until) return;  // no state saw it: most live shorter
    changes_[from][factor] += record.bytes;
    changes_[from][Factor::allocator_rounding] += slack;
    changes_[until][factor] -= record.bytes;
    changes_[until][Factor::allocator_rounding] -= slack;
  }

  std::vector<TimelineRow> rows(const std::vector<Replay::Reserved>& reserved) const {
    std::vector<TimelineRow> rows(chosen_.size());
    Factors factors{};
    auto change = reserved.begin();
    std::int64_t now_reserved = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (; change != reserved.end() && change->event <= chosen_[i]; ++change) now_reserved = change->bytes;
      factors += changes_[i];
      rows[i] = {chosen_[i], factors.sum(), now_reserved, factors};
    }
    return rows;
  }

 private:
  /// The first row whose state comes after this event.
  std::size_t first_row(std::uint32_t event) const {
    const std::size_t run = event >> shift_;
    return run + (event > chosen_[run]);
  }

  unsigned shift_ = 0;  // a share is 2^shift events
  std::vector<std::uint32_t> chosen_;
  std::vector<Factors> changes_;
};

/// Keeps the `limit` largest storages offered to it, the earliest among equals.
class Largest {
 public:
  Largest(const Log& log, std::size_t limit) : order_{&log}, limit_(limit) {}

  /// In the order of their ids.
  void offer(StorageId id) {
    if (heap_.size() == limit_) {
      if (limit_ == 0 || !order_(id, heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), order_);
      heap_.pop_back();
    }
    heap_.push_back(id);
    std::push_heap(heap_.begin(), heap_.end(), order_);
  }

  std::vector<StorageId> sorted() {
    std::sort_heap(heap_.begin(), heap_.end(), order_);
    return heap_;
  }

 private:
  struct Order {
    const Log* log;
    bool operator()(StorageId a, StorageId b) const {
      const std::int64_t x = log->storages[a].bytes;
      const std::int64_t y = log->storages[b].bytes;
      return x != y ? x > y : a < b;
    }
  };

  Order order_;
  std::size_t limit_;
  std::vector<StorageId> heap_;  // the smallest on top
};

/// Adds what belongs to each module to the modules above it; parents come before their children in the log.
template <typename T>
void add_to_parents(const Log& log, std::vector<T>& modules) {
  for (auto i = static_cast<ModuleId>(modules.size()); i-- > 1;)
    if (!log.is_root(i)) modules[log.modules[i].parent] += modules[i];
}

void judge(Report& report, const Replay& unlimited, const Outcome& limited, const ReportInput& input) {
  const bool limit_given = input.gpu.allocator_limit;
  const Outside outside = limit_given ? Outside{} : input.outside;
  const std::int64_t reserved = times(report.peak.reserved, input.calibration.reserved);
  report.outside_allocator = outside.total();
  report.total = reserved + report.outside_allocator;

  const ReservedSpread spread = spread_of(input.evidence);
  report.low = std::max(reserved - reserved / 10000 * spread.below, report.peak.allocated) + outside.low;
  report.high = reserved + reserved / 10000 * spread.above + outside.high;
  report.basis = "reserved within " + percent_text(spread.above);
  if (input.evidence == Evidence::convolutions) {
    report.basis =
        "reserved from " + percent_text(spread.below) + " below to " + percent_text(spread.above) + " above, as " +
        std::to_string(spread.runs) +
        " runs of image models on an A100 show (cuDNN's workspaces differ by version and by "
        "torch.backends.cudnn.benchmark; an interval from other architectures holds 95 % of an architecture's runs)";
  } else if (spread.runs > 0) {
    report.basis += ", the largest error of " + std::to_string(spread.runs) +
                    " comparable GPU runs (allocated: 0.06 %; an interval from other runs holds 95 % of the runs)";
  } else if (input.evidence == Evidence::source_only) {
    report.basis += ": compared with the source only";
  } else {
    report.basis += ". No comparable GPU run; the widest known error is used";
  }
  if (input.calibration.reserved != 1 || input.calibration.outside_allocator)
    report.basis = "calibrated by your own measurement; " + report.basis;
  if (report.outside_allocator > 0) report.basis += "; plus the uncertainty of memory outside the allocator";

  report.fits = !limited.out_of_memory;
  report.out_of_memory = limited.out_of_memory;
  report.headroom = input.gpu.usable_bytes - report.outside_allocator -
                    times(report.fits ? limited.peak_reserved : unlimited.peak_reserved, input.calibration.reserved);
  const bool may_need_more = std::any_of(input.unmodelled.begin(), input.unmodelled.end(),
                                         [](const Unmodelled& left_out) { return left_out.may_need_more(); });
  report.verdict = !report.fits                                            ? Verdict::does_not_fit
                   : report.high > input.gpu.usable_bytes || may_need_more ? Verdict::tight
                                                                           : Verdict::fits;
}

}  // namespace

const char* factor_name(Factor factor) {
  constexpr const char* kNames[] = {"parameters",  "gradients",          "optimizer_states", "activations",
                                    "temporaries", "buffers_and_inputs", "kv_cache",         "allocator_rounding"};
  return kNames[static_cast<std::size_t>(factor)];
}

const char* verdict_name(Verdict verdict) {
  constexpr const char* kNames[] = {"fits", "tight", "does-not-fit"};
  return kNames[static_cast<std::size_t>(verdict)];
}

const char* phase_name(PhaseName phase) {
  constexpr const char* kNames[] = {"init",       "forward", "backward", "optimizer", "batch",
                                    "evaluation", "saving",  "prefill",  "decode"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::int64_t allocator_limit(const Gpu& gpu, const Outside& outside, const Calibration& calibration) {
  return times(gpu.allocator_limit ? gpu.usable_bytes : gpu.usable_bytes - outside.total(), 1 / calibration.reserved);
}

Report build_report(const Log& log, const Replay& unlimited, const Outcome& limited, const ReportInput& input,
                    const ReportOptions& options) {
  Report report;
  report.peak = unlimited.peak;
  report.phases = unlimited.phases;
  report.peak_at = moment_at(log, unlimited.peak_event);
  if (limited.out_of_memory) report.out_of_memory_at = moment_at(log, limited.out_of_memory->event);
  judge(report, unlimited, limited, input);
  if (!options.attribution) return report;

  Timeline timeline(unlimited.highs, options.timeline_points);
  Largest largest(log, options.largest);
  report.modules.resize(std::max<std::size_t>(log.modules.size(), 1));
  report.parameter_count = input.module_parameters;
  report.parameter_count.resize(report.modules.size());
  report.factors.resize(log.storages.size());

  std::size_t phase = 0;  // the phase of a storage's birth: storages are born in the order of their ids
  std::uint64_t forward_end = kNoForward;
  std::uint32_t phase_end = log.phases.empty() ? kNever : log.phases[0].first_event;
  for (StorageId id = 0; id < log.storages.size(); ++id) {
    const StorageRecord& record = log.storages[id];
    while (record.alloc_event >= phase_end) {
      const PhaseName name = log.phases[phase++].name;
      phase_end = phase < log.phases.size() ? log.phases[phase].first_event : kNever;
      // Without a backward pass there is nothing to keep for: every result is an activation.
      forward_end = name == PhaseName::forward ? phase_end : name >= PhaseName::prefill ? 0 : kNoForward;
    }
    const Factor factor = classify(record, forward_end);
    report.factors[id] = factor;
    if (unlimited.block_bytes[id] == 0) continue;  // it never was: no bytes, or memory ran out before
    const std::int64_t slack = unlimited.block_bytes[id] - record.bytes;
    timeline.add(record, factor, slack);
    if (record.alloc_event <= unlimited.peak_event && unlimited.peak_event < record.free_event) {
      Factors& module = report.modules[record.module];
      module[factor] += record.bytes;
      module[Factor::allocator_rounding] += slack;
      largest.offer(id);
    }
  }
  for (const Share& share : log.shares) {
    const StorageRecord& record = log.storages[share.storage];
    if (record.alloc_event > unlimited.peak_event || unlimited.peak_event >= record.free_event) continue;
    if (unlimited.block_bytes[share.storage] == 0) continue;
    const Factor factor = report.factors[share.storage];
    const std::int64_t bytes = share.elements * element_size(record.dtype);
    report.modules[record.module][factor] -= bytes;
    report.modules[share.module][factor] += bytes;
  }
  add_to_parents(log, report.modules);
  add_to_parents(log, report.parameter_count);
  for (ModuleId i = 0; i < log.modules.size(); ++i)
    if (log.is_root(i)) report.breakdown += report.modules[i];
  report.timeline = timeline.rows(unlimited.reserved);
  report.largest = largest.sorted();
  return report;
}

std::vector<Holding> holdings_of(const Log& log, const Report& report, ModuleId module) {
  const auto is_below = [&](ModuleId id) {
    while (id > module && !log.is_root(id)) id = log.modules[id].parent;  // parents come before their children
    return id == module;
  };
  constexpr std::int64_t kNotAlive = -1;
  std::vector<std::int64_t> own(log.storages.size(), kNotAlive);  // what a storage's shares leave to its own module
  for (const StorageId id : report.largest) own[id] = log.storages[id].bytes;
  std::vector<Holding> holdings;
  for (const Share& share : log.shares) {
    if (own[share.storage] == kNotAlive) continue;
    const std::int64_t bytes = share.elements * element_size(log.storages[share.storage].dtype);
    own[share.storage] -= bytes;
    if (is_below(share.module)) holdings.push_back({share.storage, share.module, bytes, true});
  }
  for (const StorageId id : report.largest) {
    if (own[id] > 0 && is_below(log.storages[id].module))
      holdings.push_back({id, log.storages[id].module, own[id], own[id] != log.storages[id].bytes});
  }
  sort_by(holdings, [](const Holding& holding) { return -holding.bytes; });
  return holdings;
}

std::string role_text(const Log& log, StorageId storage, Factor factor) {
  const StorageRecord& record = log.storages[storage];
  const std::string op = log.ops[log.events[record.alloc_event].op];
  switch (factor) {
    case Factor::parameters:
      return "parameter";
    case Factor::gradients:
      return "gradient";
    case Factor::optimizer_states:
      return "optimizer state";
    case Factor::buffers_and_inputs:
      return record.role == Role::buffer ? "buffer" : "input";
    case Factor::kv_cache:
      return "KV cache";
    case Factor::activations:
      return (record.recomputed ? "recomputed output of " : record.saved ? "saved output of " : "output of ") + op;
    case Factor::temporaries:
    case Factor::allocator_rounding:
      break;
  }
  return (record.role == Role::workspace ? "workspace of " : "temporary of ") + op;
}

}  // namespace oometer
