#include "cuda/replay.h"

#include <algorithm>
#include <cstddef>
#include <memory>

namespace oometer {

namespace {

void raise(MemoryStats& peak, const MemoryStats& stats) {
  peak.allocated = std::max(peak.allocated, stats.allocated);
  peak.reserved = std::max(peak.reserved, stats.reserved);
}

class Replayer {
 public:
  Replayer(const Log& log, const AllocatorOptions& options, std::int64_t watched_bytes)
      : log_(log), options_(options), allocator_(options), blocks_(new CachingAllocator::Block*[log.storages.size()]) {
    result_.watched_bytes = watched_bytes;
    keep_records();
  }

  /// From an event on, which asks for `refused`: a device of `usable_bytes` does not give it at once.
  Replayer(const Replayer& unlimited, std::int64_t usable_bytes, const CachingAllocator::Block* refused)
      : log_(unlimited.log_),
        options_{usable_bytes, false, unlimited.options_.newest_of_equals},
        allocator_(unlimited.allocator_, usable_bytes, refused),
        blocks_(new CachingAllocator::Block*[log_.storages.size()]) {
    // Of the storages that are alive: nothing asks for others.
    allocator_.for_each_block([this](CachingAllocator::Block& block) {
      if (block.state == CachingAllocator::State::allocated) blocks_[block.owner] = &block;
    });
    reserved_ = allocator_.stats().reserved;
    keep_records();
  }

  Outcome run_from(std::uint32_t event) {
    play(event, static_cast<std::uint32_t>(log_.events.size()));
    const bool at_once = result_.out_of_memory && result_.out_of_memory->event == event;  // its own retry was counted
    result_.retries = allocator_.retries() + !at_once;
    return std::move(result_);
  }

  Replay run() {
    const auto end = static_cast<std::uint32_t>(log_.events.size());
    const std::size_t phases = log_.phases.size();
    std::size_t first_iteration = 0;
    while (first_iteration < phases && log_.phases[first_iteration].iteration == 0) ++first_iteration;
    if (first_iteration == phases) first_iteration = 0;

    // Events before the first mark (all of them, if there is none) are no phase.
    MemoryStats peak = play(0, phases > 0 ? log_.phases[0].first_event : end);
    result_.peak_event = phase_peak_event_;
    result_.peak = peak;
    for (std::size_t i = 0; i < phases && !result_.out_of_memory; ++i) {
      peak = play(log_.phases[i].first_event, i + 1 < phases ? log_.phases[i + 1].first_event : end);
      result_.phases.push_back(peak);
      if (i == first_iteration) result_.peak = {};
      if (i < first_iteration) continue;
      if (peak.allocated > result_.peak.allocated) result_.peak_event = phase_peak_event_;
      raise(result_.peak, peak);
    }
    result_.phases.resize(phases);
    result_.retries = allocator_.retries();
    return std::move(result_);
  }

 private:
  void keep_records() {
    result_.block_bytes.resize(log_.storages.size());
    result_.highs.resize((log_.events.size() + Replay::kRun - 1) / Replay::kRun, {0, -1});
  }

  /// Plays events [begin, end); the peaks meanwhile, what was in use before it included.
  MemoryStats play(std::uint32_t begin, std::uint32_t end) {
    MemoryStats peak = allocator_.stats();
    phase_peak_event_ = begin - 1;  // before the first event: kNever
    phase_peak_reserved_ = peak.reserved;
    for (std::uint32_t i = begin; i < end && !result_.out_of_memory;) {
      Replay::High& highest = result_.highs[i / Replay::kRun];
      const Replay::High high = play_run(i, end);
      if (high.allocated > highest.allocated) highest = high;
      if (high.allocated <= peak.allocated) continue;
      peak.allocated = high.allocated;
      phase_peak_event_ = high.event;
    }
    peak.reserved = phase_peak_reserved_;
    return peak;
  }

  /// Plays the rest of a run, from event i on; its highest moment.
  Replay::High play_run(std::uint32_t& i, std::uint32_t phase_end) {
    const Event* const events = log_.events.data();
    const StorageRecord* const storages = log_.storages.data();
    const std::uint32_t end = std::min(phase_end, (i / Replay::kRun + 1) * Replay::kRun);
    Replay::High high{i, -1};
    // Whether an alloc makes a new peak cannot be predicted: what is stored is chosen, without a branch.
    const auto note = [&](std::uint32_t event, std::int64_t allocated) {
      high.event = allocated > high.allocated ? event : high.event;
      high.allocated = std::max(high.allocated, allocated);
    };
    for (; i < end; ++i) {
      const Event event = events[i];
      if (event.kind == EventKind::free) {
        if (CachingAllocator::Block* block = blocks_[event.storage]) allocator_.free(block);
      } else if (event.kind == EventKind::alloc) {
        const std::int64_t bytes = storages[event.storage].bytes;
        if (bytes == 0) {  // never reaches the allocator
          blocks_[event.storage] = nullptr;
          continue;
        }
        if (i + 1 < phase_end && events[i + 1].storage == event.storage && events[i + 1].kind == EventKind::free) {
          // A workspace, mostly.
          if (const std::int64_t size = allocator_.transient_block(bytes, event.stream)) {
            result_.block_bytes[event.storage] = size;
            note(i, allocator_.stats().allocated + size);
            ++i;
            continue;
          }
        }
        CachingAllocator::Block* block = allocator_.malloc(bytes, event.stream, event.storage);
        if (block == nullptr) {
          if (allocator_.stats().reserved != reserved_) note_reserved(i);
          fail(i, bytes);
          break;
        }
        if (allocator_.stats().reserved != reserved_) note_growth(i, block);
        blocks_[event.storage] = block;
        result_.block_bytes[event.storage] = block->size;
        note(i, allocator_.stats().allocated);
      } else if (event.kind == EventKind::empty_cache) {
        allocator_.empty_cache();
        if (allocator_.stats().reserved != reserved_) note_reserved(i);
      } else if (CachingAllocator::Block* block = blocks_[event.storage]) {
        allocator_.record_stream(block, event.stream);
      }
    }
    return high;
  }

  void note_reserved(std::uint32_t event) {
    reserved_ = allocator_.stats().reserved;
    result_.reserved.push_back({event, reserved_});
    result_.peak_reserved = std::max(result_.peak_reserved, reserved_);
    phase_peak_reserved_ = std::max(phase_peak_reserved_, reserved_);
  }

  /// `block` was given, after more had been asked of the device.
  void note_growth(std::uint32_t event, const CachingAllocator::Block* block) {
    const std::int64_t before = result_.peak_reserved;
    note_reserved(event);
    if (reserved_ <= result_.watched_bytes || result_.within_watched || options_.expandable_segments) return;
    result_.within_watched = Replayer(*this, result_.watched_bytes, block).run_from(event);
    result_.within_watched->peak_reserved = std::max(result_.within_watched->peak_reserved, before);
  }

  void fail(std::uint32_t event, std::int64_t bytes) {
    const MemoryStats& stats = allocator_.stats();
    const std::int64_t segment = CachingAllocator::segment_size(CachingAllocator::round_size(bytes));
    result_.out_of_memory = {event, bytes, segment, options_.usable_bytes - stats.reserved, stats};
  }

  const Log& log_;
  AllocatorOptions options_;
  CachingAllocator allocator_;
  std::unique_ptr<CachingAllocator::Block*[]> blocks_;  // of each storage that has been born
  std::int64_t reserved_ = 0;
  std::uint32_t phase_peak_event_ = kNever;
  std::int64_t phase_peak_reserved_ = 0;
  Replay result_;
};

}  // namespace

Replay replay(const Log& log, const AllocatorOptions& options, std::int64_t watched_bytes) {
  return Replayer(log, options, watched_bytes).run();
}

Outcome replay_within(const Log& log, const AllocatorOptions& options, const Replay& unlimited) {
  if (unlimited.peak_reserved <= options.usable_bytes && !unlimited.out_of_memory) return unlimited;
  if (unlimited.within_watched && unlimited.watched_bytes == options.usable_bytes) return *unlimited.within_watched;
  return replay(log, options);
}

std::int64_t least_limit(const Log& log, AllocatorOptions options, const Replay& unlimited, std::int64_t enough) {
  constexpr std::int64_t kStep = 16 << 20;
  std::int64_t too_little = unlimited.peak.allocated - 1;
  while (enough - too_little > kStep) {
    options.usable_bytes = too_little + (enough - too_little) / 2;
    (replay(log, options).out_of_memory ? too_little : enough) = options.usable_bytes;
  }
  return enough;
}

}  // namespace oometer
