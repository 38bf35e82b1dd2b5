#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/repeat/block_pass.h"

namespace oometer {

/// What a block did in a range of the log, to be written again and again at its end: each event's storage is known by
/// whose it is, so that writing needs no decisions.
class RangeCopier {
 public:
  /// A block's own: what an event of it may be about, beside what is created in the range.
  struct Storages {
    StorageId begin_of_forward;  ///< the first that its forward created
    StorageId incoming;
    StorageId incoming_in_forward;
  };

  /// None if the range is about more than the block itself. `forward`: the block's, in which the range lies or which is
  /// over.
  static std::optional<RangeCopier> of(Context& context, const LogRange& range, const LogRange& forward,
                                       const Storages& from, const MovedModules& itself);

  /// Writes it for another block, whose modules are `by` further. Where it was written.
  LogRange write(const Storages& to, ModuleId by);

  /// Whether two blocks did the same with the same storages; events and storages themselves are compared elsewhere.
  bool is_about_same(const RangeCopier& other, const Log& log) const;

  const LogRange& range() const { return range_; }

 private:
  enum class Owner : std::uint8_t { created, created_in_forward, incoming, incoming_in_forward };
  struct EventStep {
    Owner owner;
    bool moves;  ///< the module is one of the block's
  };
  struct StorageStep {
    bool moves;
    bool is_freed;  ///< in the range itself
  };

  RangeCopier(Context& context, const LogRange& range, const Storages& from)
      : context_(&context), range_(range), from_(from) {}

  /// The first of an owner's storages.
  StorageId origin(Owner owner) const;

  Context* context_;
  LogRange range_;
  Storages from_;
  std::vector<EventStep> events_;
  std::vector<StorageStep> storages_;
  std::vector<std::uint32_t> frees_;  ///< the events that free what is not created in the range
  std::int64_t change_ = 0;           ///< of the bytes alive
};

}  // namespace oometer
