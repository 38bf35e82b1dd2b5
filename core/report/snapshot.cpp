#include "report/snapshot.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "report/pickle_writer.h"
#include "report/report.h"
#include "sort_by.h"

namespace oometer {

namespace {

using Block = CachingAllocator::Block;
using State = CachingAllocator::State;

class Snapshot {
 public:
  Snapshot(const Log& log, const AllocatorOptions& options)
      : log_(log), options_(options), allocator_(options), blocks_(log.storages.size()) {}

  std::string write() {
    out_.begin_dict();
    out_.value("device_traces");
    out_.begin_list();
    out_.begin_list();
    play();
    out_.end_list();
    out_.end_list();
    out_.value("segments");
    write_segments();
    write_settings();
    out_.value("external_annotations");
    out_.begin_list();
    out_.end_list();
    out_.end_dict();
    return out_.take();
  }

 private:
  /// A free that waits for other streams.
  struct Waiting {
    std::uint64_t address;
    StorageId storage;
  };

  void play() {
    for (event_ = 0; event_ < log_.events.size(); ++event_) {
      while (phase_ < log_.phases.size() && log_.phases[phase_].first_event <= event_) ++phase_;
      const Event& event = log_.events[event_];
      if (event.kind == EventKind::alloc) {
        if (log_.storages[event.storage].bytes > 0 && !allocate(event)) return;
      } else if (event.kind == EventKind::empty_cache) {
        complete_frees();
        allocator_.empty_cache();
        write_segment_events();
      } else if (Block* block = blocks_[event.storage]) {
        if (event.kind == EventKind::free) {
          free(event.storage, block);
        } else {
          allocator_.record_stream(block, event.stream);
        }
      }
    }
  }

  bool allocate(const Event& event) {
    const std::int64_t bytes = log_.storages[event.storage].bytes;
    complete_frees();
    Block* block = allocator_.malloc(bytes, event.stream, event.storage);
    write_segment_events();
    if (block == nullptr) {
      // Its address is what the device had left, its size the rounded request.
      const std::int64_t left = options_.usable_bytes - allocator_.stats().reserved;
      write_event("oom", static_cast<std::uint64_t>(left), CachingAllocator::round_size(bytes), event.stream);
      return false;
    }
    blocks_[event.storage] = block;
    write_event("alloc", block->address, bytes, event.stream);
    return true;
  }

  void free(StorageId storage, Block* block) {
    const std::int64_t bytes = log_.storages[storage].bytes;
    const std::uint64_t address = block->address;
    const std::uint8_t stream = allocator_.stream_of(*block);
    blocks_[storage] = nullptr;
    write_event("free_requested", address, bytes, stream);
    if (block->used_elsewhere) {
      waiting_.push_back({address, storage});
    } else {
      write_event("free_completed", address, bytes, stream);
    }
    allocator_.free(block);
  }

  void complete_frees() {
    for (const Waiting& free : waiting_) {
      const std::uint32_t birth = log_.storages[free.storage].alloc_event;
      write_event("free_completed", free.address, log_.storages[free.storage].bytes, log_.events[birth].stream);
    }
    waiting_.clear();
  }

  void write_segment_events() {
    constexpr const char* kNames[] = {"segment_alloc", "segment_free", "segment_map", "segment_unmap"};
    const auto& events = allocator_.segment_events();
    for (; segment_events_ < events.size(); ++segment_events_) {
      const auto& event = events[segment_events_];
      write_event(kNames[static_cast<std::size_t>(event.kind)], event.address, event.size, event.stream);
    }
  }

  void write_event(const char* action, std::uint64_t address, std::int64_t size, std::uint8_t stream) {
    out_.begin_dict();
    out_.member("action", action);
    out_.member(action == std::string_view("oom") ? "device_free" : "addr", static_cast<std::int64_t>(address));
    out_.member("size", size);
    out_.member("stream", std::int64_t{stream});
    out_.member("time_us", std::int64_t{event_});  // an event a microsecond: time is not simulated
    out_.member("compile_context", "N/A");
    out_.member("user_metadata", "");
    out_.value("frames");
    write_frames(log_.events[event_], phase_);
    out_.end_dict();
  }

  /// `phase` is the number of phases that have begun.
  void write_frames(const Event& event, std::size_t phase) {
    const auto [frames, is_new] = frames_.try_emplace({event.module, event.op, phase}, 0);
    if (!is_new) return out_.refer(frames->second);
    out_.begin_list();
    const std::string path = module_path(log_, event.module);
    write_frame(path.empty() ? "(model)" : path, event.op < log_.ops.size() ? log_.ops[event.op] : "");
    if (event.module < log_.modules.size()) write_frame("(module)", log_.modules[event.module].type);
    if (phase > 0) {
      const PhaseMark& mark = log_.phases[phase - 1];
      write_frame("iteration " + std::to_string(mark.iteration), phase_name(mark.name));
    }
    out_.end_list();
    frames->second = out_.remember();
  }

  void write_frame(std::string_view file, std::string_view name) {
    out_.begin_dict();
    out_.member("filename", file);
    out_.member("name", name);
    out_.member("line", std::int64_t{0});
    out_.end_dict();
  }

  /// The state at the end: each segment, or each mapped stretch of an expandable one, with its blocks.
  void write_segments() {
    std::vector<const Block*> blocks;
    allocator_.for_each_block([&](const Block& block) { blocks.push_back(&block); });
    sort_by(blocks, [](const Block* block) { return block->address; });
    out_.begin_list();
    for (auto begin = blocks.begin(); begin != blocks.end();) {
      auto end = begin + 1;
      if ((*begin)->state != State::unmapped) {
        while (end != blocks.end() && !allocator_.starts_segment(**end) && (*end)->state != State::unmapped) ++end;
        write_segment({&*begin, static_cast<std::size_t>(end - begin)});
      }
      begin = end;
    }
    out_.end_list();
  }

  void write_segment(std::span<const Block* const> blocks) {
    std::int64_t total = 0, allocated = 0, active = 0, requested = 0;
    for (const Block* block : blocks) {
      total += block->size;
      if (block->state == State::free) continue;
      active += block->size;
      requested += log_.storages[block->owner].bytes;
      if (block->state == State::allocated) allocated += block->size;
    }
    out_.begin_dict();
    out_.member("device", std::int64_t{0});
    out_.member("address", static_cast<std::int64_t>(blocks.front()->address));
    out_.member("total_size", total);
    out_.member("allocated_size", allocated);
    out_.member("active_size", active);
    out_.member("requested_size", requested);
    out_.member("stream", std::int64_t{allocator_.stream_of(*blocks.front())});
    out_.member("segment_type", allocator_.is_small(*blocks.front()) ? "small" : "large");
    out_.value("segment_pool_id");
    out_.pair(0, 0);
    out_.member("is_expandable", options_.expandable_segments);
    out_.value("frames");
    out_.begin_list();
    out_.end_list();
    out_.value("blocks");
    out_.begin_list();
    for (const Block* block : blocks) write_block(*block);
    out_.end_list();
    out_.end_dict();
  }

  void write_block(const Block& block) {
    const bool waits = block.state == State::waiting;
    out_.begin_dict();
    out_.member("address", static_cast<std::int64_t>(block.address));
    out_.member("size", block.size);
    out_.member("requested_size", block.state == State::free ? 0 : log_.storages[block.owner].bytes);
    out_.member("state", block.state == State::free ? "inactive" : waits ? "active_pending_free" : "active_allocated");
    out_.value("frames");
    if (block.state == State::free) {
      out_.begin_list();
      out_.end_list();
    } else {
      const std::uint32_t birth = log_.storages[block.owner].alloc_event;
      std::size_t phase = 0;
      while (phase < log_.phases.size() && log_.phases[phase].first_event <= birth) ++phase;
      write_frames(log_.events[birth], phase);
    }
    out_.end_dict();
  }

  void write_settings() {
    out_.value("allocator_settings");
    out_.begin_dict();
    out_.member("PYTORCH_CUDA_ALLOC_CONF", options_.expandable_segments ? "expandable_segments:True" : "");
    out_.member("max_split_size", std::int64_t{-1});
    out_.member("garbage_collection_threshold", 0.0);
    out_.member("expandable_segments", options_.expandable_segments);
    out_.member("pinned_num_register_threads", std::int64_t{1});
    out_.member("release_lock_on_cudamalloc", false);
    out_.member("pinned_use_cuda_host_register", false);
    out_.value("roundup_power2_divisions");
    out_.begin_dict();
    out_.end_dict();
    out_.member("graph_capture_record_stream_reuse", false);
    out_.end_dict();
  }

  const Log& log_;
  AllocatorOptions options_;
  CachingAllocator allocator_;
  std::vector<Block*> blocks_;  // of each storage that is alive
  std::vector<Waiting> waiting_;
  std::map<std::tuple<ModuleId, OpId, std::size_t>, std::uint32_t> frames_;
  std::size_t segment_events_ = 0;
  std::size_t phase_ = 0;
  std::uint32_t event_ = 0;
  PickleWriter out_;
};

}  // namespace

std::string memory_snapshot(const Log& log, const AllocatorOptions& options) { return Snapshot(log, options).write(); }

}  // namespace oometer
