#include "report/json.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "report/json_writer.h"
#include "report/work.h"
#include "version.h"

namespace oometer {

namespace {

void write_factors(JsonWriter& json, const Factors& factors) {
  for (std::size_t i = 0; i < kFactors; ++i) json.member(factor_name(static_cast<Factor>(i)), factors.data()[i]);
}

void write_moment(JsonWriter& json, const Log& log, const Moment& moment) {
  const bool known = moment.event < log.events.size();
  json.member("iteration", moment.iteration);
  json.member("phase", phase_name(moment.phase));
  json.member("module", known ? module_path(log, moment.module) : std::string());
  json.member("op", known && moment.op < log.ops.size() ? log.ops[moment.op] : "");
}

const char* modality_name(Modality modality) {
  constexpr const char* kNames[] = {"", "vision", "projector", "language"};
  return kNames[static_cast<std::size_t>(modality)];
}

/// A model's module tree, in the order in which the modules were made.
class ModuleTree {
 public:
  ModuleTree(JsonWriter& json, const Report& report, const Log& log, bool full)
      : json_(json),
        report_(report),
        log_(log),
        full_(full),
        first_child_(log.modules.size(), kNone),
        next_(log.modules.size(), kNone) {
    for (std::size_t i = log.modules.size(); i-- > 1;) {
      if (log.is_root(static_cast<ModuleId>(i))) continue;
      ModuleId& first = first_child_[log.modules[i].parent];
      next_[i] = first;
      first = static_cast<ModuleId>(i);
    }
  }

  void write_root(ModuleId root) {
    path_ = log_.modules[root].name;
    write(root);
  }

 private:
  void write(ModuleId id) {
    const ModuleRecord& module = log_.modules[id];
    json_.begin_object();
    json_.member("path", path_);
    json_.member("type", module.type);
    json_.member("modality", modality_name(module.modality));
    json_.member("parameter_count", report_.parameter_count[id]);
    write_factors(json_, report_.modules[id]);
    json_.key("children");
    json_.begin_array();
    if (full_ || module.index < 0) {
      const std::size_t length = path_.size();
      for (ModuleId child = first_child_[id]; child != kNone; child = next_[child]) {
        if (length > 0) path_ += '.';
        path_ += log_.modules[child].name;
        if (log_.modules[child].index >= 0) path_ += '.' + std::to_string(log_.modules[child].index);
        write(child);
        path_.resize(length);
      }
    }
    json_.end_array();
    json_.end_object();
  }

  static constexpr ModuleId kNone = std::numeric_limits<ModuleId>::max();

  JsonWriter& json_;
  const Report& report_;
  const Log& log_;
  bool full_;
  std::vector<ModuleId> first_child_, next_;
  std::string path_;
};

void write_head(JsonWriter& json, const Report& report, const ReportInput& input, bool with_basis) {
  json.member("verdict", verdict_name(report.verdict));
  json.member("fits", report.fits);
  json.member("headroom", report.headroom);
  json.key("peak");
  json.begin_object();
  json.member("allocated", report.peak.allocated);
  json.member("reserved", report.peak.reserved);
  json.member("outside_allocator", report.outside_allocator);
  json.member("total", report.total);
  if (report.least != 0) json.member("least", report.least);
  json.end_object();
  json.key("interval");
  json.begin_object();
  json.member("of", "total");
  json.member("low", report.low);
  json.member("high", report.high);
  if (with_basis) json.member("basis", report.basis);
  json.end_object();
  json.key("gpu");
  json.begin_object();
  json.member("name", input.gpu.id);
  json.member("usable_bytes", input.gpu.usable_bytes);
  json.end_object();
  if (report.host) {
    json.key("host");
    write_host(json, *report.host);
  }
}

void write_places(JsonWriter& json, const Report& report, const Log& log) {
  json.key("out_of_memory");
  if (report.out_of_memory) {
    const OutOfMemory& out = *report.out_of_memory;
    json.begin_object();
    json.member("requested", out.requested);
    json.member("tried", out.segment);
    json.member("free", out.device_free);
    json.member("allocated", out.in_use.allocated);
    json.member("reserved", out.in_use.reserved);
    write_moment(json, log, report.out_of_memory_at);
    json.end_object();
  } else {
    json.null();
  }
  json.key("peak_at");
  json.begin_object();
  write_moment(json, log, report.peak_at);
  json.end_object();
}

void write_phases(JsonWriter& json, const Report& report, const Log& log) {
  json.key("phases");
  json.begin_array();
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    json.begin_object();
    json.member("iteration", log.phases[i].iteration);
    json.member("name", phase_name(log.phases[i].name));
    json.member("event", log.phases[i].first_event);
    json.member("allocated", report.phases[i].allocated);
    json.member("reserved", report.phases[i].reserved);
    json.end_object();
  }
  json.end_array();
}

/// Each optimizer step, from its begin to its end: what a trainer does between steps is not in it.
void write_steps(JsonWriter& json, const Report& report, const Log& log) {
  json.key("steps");
  json.begin_array();
  const auto is_of_step = [&](std::size_t i) {
    const PhaseName name = log.phases[i].name;
    return name == PhaseName::forward || name == PhaseName::backward || name == PhaseName::optimizer;
  };
  for (std::size_t i = 0; i < log.phases.size();) {
    if (!is_of_step(i)) {
      ++i;
      continue;
    }
    MemoryStats peak;
    for (const std::int32_t step = log.phases[i].iteration;
         i < log.phases.size() && log.phases[i].iteration == step && is_of_step(i); ++i) {
      peak.allocated = std::max(peak.allocated, report.phases[i].allocated);
      peak.reserved = std::max(peak.reserved, report.phases[i].reserved);
    }
    json.begin_object();
    json.member("allocated", peak.allocated);
    json.member("reserved", peak.reserved);
    json.end_object();
  }
  json.end_array();
}

void write_timeline(JsonWriter& json, const Report& report, const Log& log) {
  json.key("timeline");
  json.begin_object();
  json.member_array("columns", timeline_columns());
  const TimelinePlaces places = timeline_places(report, log);
  json.member_array("ops", places.ops);
  json.member_array("modules", places.modules);
  json.key("rows");
  json.begin_array();
  for (std::size_t i = 0; i < report.timeline.size(); ++i) {
    const TimelineRow& row = report.timeline[i];
    json.begin_array();
    json.value(std::int64_t{row.event});
    json.value(row.allocated);
    json.value(row.reserved);
    for (const std::int64_t bytes : row.factors) json.value(bytes);
    json.value(places.rows[i].op);
    json.value(places.rows[i].module);
    json.end_array();
  }
  json.end_array();
  json.end_object();
}

void write_holding(JsonWriter& json, const Holding& holding, const Report& report, const Log& log) {
  const StorageRecord& record = log.storages[holding.storage];
  json.begin_object();
  json.member("bytes", holding.bytes);
  json.key("shape");
  json.begin_array();
  if (holding.shared) json.value(holding.bytes / element_size(record.dtype));
  for (std::uint32_t i = 0; i < record.ndim && !holding.shared; ++i) json.value(log.dims[record.shape + i]);
  json.end_array();
  json.member("dtype", dtype_name(record.dtype));
  json.member("module", module_path(log, holding.module));
  json.member("role", role_text(log, holding.storage, report.factors[holding.storage]));
  if (holding.shared) json.member("flat", true);
  json.end_object();
}

void write_largest(JsonWriter& json, const Report& report, const Log& log) {
  json.key("largest");
  json.begin_array();
  for (const StorageId id : report.largest)
    write_holding(json, {id, log.storages[id].module, log.storages[id].bytes, false}, report, log);
  json.end_array();
}

}  // namespace

std::vector<const char*> timeline_columns() {
  std::vector<const char*> columns = {"event", "allocated", "reserved"};
  for (std::size_t i = 0; i < kFactors; ++i) columns.push_back(factor_name(static_cast<Factor>(i)));
  columns.push_back("op");
  columns.push_back("module");
  return columns;
}

TimelinePlaces timeline_places(const Report& report, const Log& log) {
  constexpr std::int64_t kNew = -1;
  TimelinePlaces places;
  std::vector<std::int64_t> ops(log.ops.size(), kNew);
  std::vector<std::int64_t> modules(log.modules.size(), kNew);
  for (const TimelineRow& row : report.timeline) {
    const Event& event = log.events[row.event];
    std::int64_t& op = ops[event.op];
    if (op == kNew) {
      op = std::ssize(places.ops);
      places.ops.push_back(log.ops[event.op]);
    }
    std::int64_t& module = modules[event.module];
    if (module == kNew) {
      module = std::ssize(places.modules);
      places.modules.push_back(module_path(log, event.module));
    }
    places.rows.push_back({op, module});
  }
  return places;
}

std::string summary_to_json(const Report& report, const ReportInput& input) {
  JsonWriter json;
  json.begin_object();
  write_head(json, report, input, false);
  json.end_object();
  return json.take();
}

std::string holdings_to_json(const std::vector<Holding>& holdings, const Report& report, const Log& log) {
  JsonWriter json;
  json.begin_array();
  for (const Holding& holding : holdings) write_holding(json, holding, report, log);
  json.end_array();
  return json.take();
}

namespace {

/// What the last iteration (of inference: the last turn) computes and moves.
void write_work(JsonWriter& json, const Log& log) {
  if (log.phases.empty()) return;
  const int iteration = log.phases.back().iteration;
  const WorkTotals totals = work_of(log, iteration);
  json.key("work");
  json.begin_object();
  json.member("iteration", iteration);
  json.key("flops");
  json.begin_object();
  json.member("model", totals.all.model);
  json.member("executed", totals.all.executed);
  json.member("hardware", totals.all.hardware);
  json.key("by_op");
  json.begin_object();
  for (OpId op = 0; op < log.ops.size(); ++op)
    if (const std::int64_t executed = totals.by_op[op].executed; executed > 0)
      json.member(flop_counter_name(log, op).c_str(), executed);
  json.end_object();
  json.end_object();
  json.member("bytes_moved", totals.all.read + totals.all.written);
  json.member("bytes_sent", totals.all.sent);
  json.key("by_kind");
  json.begin_object();
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind) {
    const WorkSum& sum = totals.by_kind[kind];
    if (sum.kernels == 0) continue;
    json.key(work_kind_name(static_cast<WorkKind>(kind)));
    json.begin_object();
    json.member("kernels", sum.kernels);
    json.member("flops", sum.hardware);
    json.member("read", sum.read);
    json.member("written", sum.written);
    json.member("sent", sum.sent);
    json.end_object();
  }
  json.end_object();
  json.end_object();
}

void write_unmodelled(JsonWriter& json, const std::vector<Unmodelled>& unmodelled) {
  constexpr const char* kEffects[] = {"", "; the run needs less than is said here",
                                      "; the run may need more than is said here",
                                      "; the run may need more or less than is said here"};
  std::vector<std::string> sentences;
  for (const Unmodelled& left_out : unmodelled)
    sentences.push_back(left_out.text + kEffects[static_cast<std::size_t>(left_out.effect)]);
  json.member_array("unmodelled", sentences);
}

}  // namespace

void write_spread(JsonWriter& json, const OrderSpread& spread) {
  if (spread.orders == 0) return;
  json.key("spread");
  json.begin_object();
  json.member("of", "reserved");
  json.member("low", spread.low);
  json.member("high", spread.high);
  json.member("orders", spread.orders);
  json.member("worst_batch_allocated", spread.worst_batch);
  json.end_object();
}

std::string to_json(const Report& report, const Log& log, const ReportInput& input, const JsonOptions& options) {
  JsonWriter json;
  json.begin_object();
  write_head(json, report, input, true);
  write_places(json, report, log);
  json.key("breakdown");
  json.begin_object();
  write_factors(json, report.breakdown);
  json.end_object();
  json.key("modules");
  json.begin_array();
  ModuleTree tree(json, report, log, options.full_tree);
  for (ModuleId root = 0; root < log.modules.size(); root = log.end_of(root)) tree.write_root(root);
  json.end_array();
  write_phases(json, report, log);
  if (input.lists_steps) write_steps(json, report, log);
  write_spread(json, input.spread);
  write_timeline(json, report, log);
  write_largest(json, report, log);
  json.key("model");
  json.begin_object();
  json.member("parameters", input.parameters);
  json.member("trainable", input.trainable);
  json.end_object();
  if (input.image.height != 0) {
    json.key("image");
    json.begin_object();
    json.member("height", input.image.height);
    json.member("width", input.image.width);
    json.member("tokens", input.image.tokens);
    json.end_object();
  }
  write_work(json, log);
  json.member("host_bytes", input.host_bytes);
  json.key("ranks");
  json.begin_array();
  for (const RankPeak& rank : input.ranks) {
    json.begin_object();
    json.member("rank", rank.rank);
    json.member("allocated", rank.peak.allocated);
    json.member("reserved", rank.peak.reserved);
    json.member("host_bytes", rank.host_bytes);
    json.member("fits", rank.fits);
    json.member("reported", rank.rank == input.rank);
    json.end_object();
  }
  json.end_array();
  json.member_array("assumptions", input.assumptions);
  write_unmodelled(json, input.unmodelled);
  json.member_array("notes", input.notes);
  json.member("events", log.events.size());
  json.member("version", version());
  json.end_object();
  return json.take();
}

}  // namespace oometer
