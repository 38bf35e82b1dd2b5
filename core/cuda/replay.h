#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cuda/caching_allocator.h"
#include "trace/log.h"

namespace oometer {

/// torch.OutOfMemoryError: what was asked, what there was.
struct OutOfMemory {
  std::uint32_t event = 0;       ///< of the log; the replay ends here
  std::int64_t requested = 0;    ///< what the tensor needs
  std::int64_t segment = 0;      ///< what the device was asked for: "Tried to allocate ..."
  std::int64_t device_free = 0;  ///< what the device had left, after the cached segments went back
  MemoryStats in_use;            ///< at that moment
};

/// How a log fares on a device.
struct Outcome {
  std::int64_t peak_reserved = 0;  ///< of the whole log, `init` included
  int retries = 0;                 ///< cached segments had to go back before the device could give more
  std::optional<OutOfMemory> out_of_memory;
};

/// The life of a log in the caching allocator.
struct Replay : Outcome {
  struct Reserved {
    std::uint32_t event;
    std::int64_t bytes;  ///< from this event on
  };

  /// The highest moment of a run of kRun events; allocated -1 where nothing was allocated in it.
  struct High {
    std::uint32_t event;
    std::int64_t allocated;
  };
  static constexpr std::uint32_t kRun = 16;

  MemoryStats peak;                       ///< of the iterations (of the whole log, if it marks none)
  std::uint32_t peak_event = kNever;      ///< after it, peak.allocated is reached for the first time
  std::vector<MemoryStats> phases;        ///< peaks while each of Log::phases lasts
  std::vector<std::int64_t> block_bytes;  ///< of each storage: rounded, with the slack of a block that was not split
  std::vector<Reserved> reserved;         ///< each change
  std::vector<High> highs;                ///< of events [0, kRun), [kRun, 2 kRun) ...
  std::int64_t watched_bytes = std::numeric_limits<std::int64_t>::max();
  /// How the log fares on a device of `watched_bytes`, where that is another story: it was played there too, from the
  /// first alloc that such a device refuses. Not with expandable segments.
  std::optional<Outcome> within_watched;
};

Replay replay(const Log& log, const AllocatorOptions& options,
              std::int64_t watched_bytes = std::numeric_limits<std::int64_t>::max());

/// What happens on a device that gives `options.usable_bytes`. Without a limit, nothing is asked of the device that a
/// limit above the peak of what was reserved would refuse: so where `unlimited` stays below, it is the answer.
Outcome replay_within(const Log& log, const AllocatorOptions& options, const Replay& unlimited);

/// The smallest limit, bytes to 16 MiB, within which a log runs that is known to run within `enough`: PyTorch frees its
/// cache before it gives up.
std::int64_t least_limit(const Log& log, AllocatorOptions options, const Replay& unlimited, std::int64_t enough);

}  // namespace oometer
