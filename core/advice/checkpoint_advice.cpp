#include "advice/checkpoint_advice.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "advice/trial.h"
#include "config/reader.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"
#include "job/timed.h"
#include "report/json_writer.h"

namespace oometer {

namespace {

/// A block's place: the list that it is an item of, and its index there.
struct Place {
  ModuleId parent = 0;
  const char* list = "";
  std::size_t index = 0;
};

/// The outermost ModuleList item that a module is or is within. A Sequential's items have no name of their own.
std::optional<Place> block_of(const Log& log, ModuleId module) {
  std::optional<Place> found;
  for (; !log.is_root(module); module = log.modules[module].parent) {
    const ModuleRecord& record = log.modules[module];
    if (record.index >= 0 && record.name[0] != '\0')
      found = Place{record.parent, record.name, static_cast<std::size_t>(record.index)};
  }
  return found;
}

struct Kept {
  std::int64_t bytes = 0;   ///< alive when the second forward ends, for its backward
  std::int64_t output = 0;  ///< of those, the block's output
};

using Stacks = std::map<std::string, std::vector<Kept>>;

/// What each block of each stack keeps from the second iteration's forward.
Result<Stacks> kept_by_blocks(Job job, CheckpointMode mode) {
  job.training.checkpointing.mode = mode;
  job.training.checkpointing.every = 1;
  job.training.checkpointing.segments.clear();
  job.training.checkpointing.offload = false;
  job.training.save_on_cpu = SavesOn::device;
  job.training.checkpointing.input_require_grads = job.training.has_adapters() && mode != CheckpointMode::none;
  Result<Estimate> run = estimate(job, {0, 0, false});
  if (!run) return run.error();
  const Log& log = run->simulation.log;
  std::uint32_t begin = 0, end = 0;
  for (const PhaseMark& mark : log.phases) {
    if (mark.iteration == 2 && mark.name == PhaseName::forward) begin = mark.first_event;
    if (mark.iteration == 2 && mark.name == PhaseName::backward) {
      end = mark.first_event;
      break;
    }
  }
  Stacks stacks;
  std::map<std::pair<std::string, std::size_t>, StorageId> last;  // what each block made last: its output
  for (StorageId id = 0; id < log.storages.size(); ++id) {
    const StorageRecord& storage = log.storages[id];
    if (storage.alloc_event < begin || storage.alloc_event >= end || storage.role != Role::tensor) continue;
    const std::optional<Place> place = block_of(log, storage.module);
    if (!place) continue;
    const std::string parent = module_path(log, place->parent);
    const std::string path = parent + (parent.empty() ? "" : ".") + place->list;
    std::vector<Kept>& blocks = stacks[path];
    if (blocks.size() <= place->index) blocks.resize(place->index + 1);
    last[{path, place->index}] = id;
    if (storage.free_event >= end) blocks[place->index].bytes += storage.bytes;
  }
  for (const auto& [block, id] : last)
    if (log.storages[id].free_event >= end) stacks[block.first][block.second].output = log.storages[id].bytes;
  return stacks;
}

/// A merge patch (RFC 7386) on a job that checkpoints the stack so.
void write_change(JsonWriter& writer, const std::string& stack, const CheckpointPlan& plan) {
  writer.begin_object();
  writer.key("training");
  writer.begin_object();
  writer.key("activation_checkpointing");
  if (plan.recomputed == 0) {
    writer.value("none");
  } else {
    writer.begin_object();
    writer.member("mode", "non-reentrant");
    writer.key("segments");
    writer.begin_object();
    writer.key(stack);
    writer.begin_array();
    for (const ChainSegment& segment : plan.segments) {
      if (!segment.recomputed) continue;
      writer.begin_array();
      writer.value(static_cast<std::int64_t>(segment.begin));
      writer.value(static_cast<std::int64_t>(segment.end));
      writer.end_array();
    }
    writer.end_array();
    writer.end_object();
    writer.end_object();
  }
  writer.end_object();
  writer.end_object();
}

/// What the whole job takes and how long its step lasts with a change of it.
void write_costs(JsonWriter& writer, const nlohmann::json& job, const std::string& change) {
  const Result<Job> changed = parse_job(text_of(patched(job, nlohmann::json::parse(change))));
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> run = changed ? estimate(*changed, options) : Result<Estimate>(changed.error());
  writer.key("total");
  if (run)
    writer.value(run->report.total);
  else
    writer.null();
  if (run) {
    const JobTime time = job_time(*changed, run->simulation.log);
    if (time.unknown.empty()) {
      write_seconds(writer, time);
      return;
    }
  }
  writer.key("step");
  writer.null();
}

void write_plan(JsonWriter& writer, const nlohmann::json& job, const std::string& stack, const CheckpointPlan& plan) {
  writer.begin_object();
  writer.member("peak", plan.peak);
  writer.member("recomputed", static_cast<std::int64_t>(plan.recomputed));
  writer.key("segments");
  writer.begin_array();
  for (const ChainSegment& segment : plan.segments) {
    writer.begin_array();
    writer.value(static_cast<std::int64_t>(segment.begin));
    writer.value(static_cast<std::int64_t>(segment.end));
    writer.value(segment.recomputed);
    writer.end_array();
  }
  writer.end_array();
  JsonWriter change;
  write_change(change, stack, plan);
  const std::string patch = change.take();
  write_costs(writer, job, patch);
  writer.key("change");
  writer.raw(patch);
  writer.end_object();
}

}  // namespace

Result<std::vector<CheckpointAdvice>> advise_checkpoints(const Job& job) {
  const Result<Stacks> whole = kept_by_blocks(job, CheckpointMode::none);
  if (!whole) return whole.error();
  const Result<Stacks> checkpointed = kept_by_blocks(job, CheckpointMode::non_reentrant);
  if (!checkpointed) return checkpointed.error();
  std::vector<CheckpointAdvice> result;
  for (const auto& [stack, blocks] : *whole) {
    const auto found = checkpointed->find(stack);
    if (found == checkpointed->end() || found->second.size() != blocks.size() || blocks.size() < 2) continue;
    const std::vector<Kept>& inputs = found->second;
    CheckpointAdvice advice{stack, {}, {}, {}};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      // A block's input is the output of the one before it; the first one's looks like the second's.
      const std::int64_t input = inputs[i == 0 ? 0 : i - 1].output;
      advice.chain.push_back({input, blocks[i].bytes - blocks[i].output});
    }
    if (std::all_of(advice.chain.begin(), advice.chain.end(), [](const ChainBlock& b) { return b.inside == 0; }))
      continue;
    advice.least = least_memory(advice.chain);
    if (advice.chain.size() <= kLongestFrontier) advice.frontier = checkpoint_frontier(advice.chain);
    result.push_back(std::move(advice));
  }
  return result;
}

std::string checkpoint_advice_json(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return error_json(job.error());
  const Result<std::vector<CheckpointAdvice>> advice = advise_checkpoints(*job);
  if (!advice) return error_json(advice.error());
  const nlohmann::json document = *parse_json(text);
  JsonWriter writer;
  writer.begin_array();
  for (const CheckpointAdvice& stack : *advice) {
    writer.begin_object();
    writer.member("stack", stack.stack);
    writer.key("blocks");
    writer.begin_array();
    for (const ChainBlock& block : stack.chain) {
      writer.begin_object();
      writer.member("input", block.input);
      writer.member("inside", block.inside);
      writer.end_object();
    }
    writer.end_array();
    writer.key("least");
    write_plan(writer, document, stack.stack, stack.least);
    writer.key("frontier");
    writer.begin_array();
    for (const CheckpointPlan& plan : stack.frontier) write_plan(writer, document, stack.stack, plan);
    writer.end_array();
    writer.end_object();
  }
  writer.end_array();
  return writer.take();
}

}  // namespace oometer
