#pragma once

#include <cstdint>
#include <vector>

#include "nn/repeat/block_pass.h"

namespace oometer {

/// A range of the log, written again and again at its end: each time the same steps further, so that writing needs no
/// decisions.
class RangeCopier {
 public:
  /// How far the next block's storages and modules are from this one's.
  struct Steps {
    StorageId forward, backward;  ///< of storages created before `begin_of_backward`, and later (modulo 2^32)
    StorageId begin_of_backward;
    MovedModules moved;
  };

  RangeCopier(Context& context, const LogRange& range, const Steps& steps);

  /// Whether the range was at the end of the log. The steps from another are right once, and others from there on.
  bool was_at_end() const { return was_at_end_; }

  /// Where it was written.
  LogRange write();

 private:
  struct EventStep {
    StorageId storage;
    ModuleId module;
  };
  struct StorageStep {
    ModuleId module;
    bool is_freed;  ///< in the range itself
  };

  Context& context_;
  LogRange latest_;
  bool was_at_end_;
  std::vector<EventStep> events_;      ///< of each event
  std::vector<StorageStep> storages_;  ///< of each storage created
  std::vector<std::uint32_t> frees_;   ///< the events that free others
  std::int64_t change_ = 0;            ///< of the bytes alive
};

}  // namespace oometer
