#pragma once

#include <cstdint>
#include <vector>

#include "nn/repeat/block_pass.h"
#include "nn/repeat/tensor_metadata.h"

namespace oometer {

/// The hooks of GradientListener and ModuleListener.
enum class Hook : std::uint8_t { before_forward, after_forward, before_backward, after_backward, read, gradient };

/// What a block itself did, in forward or backward, while listeners (DeepSpeed) were called on the way. The listeners'
/// own doing is left out where it differs from block to block: it is done anew wherever the calls came.
struct RecordedBlock {
  /// Whose storage an event is about.
  enum class Owner : std::uint8_t {
    created,             ///< the block, here
    incoming,            ///< it came into it
    created_in_forward,  ///< the block, in its forward; this is its backward
    incoming_in_forward,
    gradient,  ///< a parameter, when it got its gradient; the block lets it go later
    parameter  ///< a parameter, when the block began to hold its memory
  };
  struct RecordedEvent {
    Event event;
    Owner owner;
    StorageId index;             ///< among those created; of `gradient` in `calls`, of `parameter` in `holds`
    bool moves = false;          ///< the event's module is one of the block's
    bool storage_moves = false;  ///< the storage's is
  };
  struct HookCall {
    bool operator==(const HookCall& other) const = default;

    Hook hook;
    bool recomputing, grad_mode;
    std::uint8_t stream;
    ModuleId module, of;               ///< where it came from; which module it was about
    std::uint32_t parameter = 0;       ///< of the block's: what was read, what got a gradient
    std::uint32_t event = 0;           ///< of the block's own: before which it came
    StorageId gradient = kNever;       ///< its index among those created (its id, while it is recorded); kNever: it was
                                       ///< there before, and was added to
    std::uint32_t metadata = 0;        ///< of that gradient, in `gradients`
    bool frees_gradient = false;       ///< the block lets the gradient's storage go itself, later
    bool changes_holds = false;        ///< some begin or have ended before it
    std::uint32_t begin = 0, end = 0;  ///< while it is recorded: the listener's own range of the log
    WorkRange work = {};               ///< and of its work
  };
  /// The block itself holds the memory that a parameter has (a view of it was saved for backward).
  struct ParameterHold {
    bool operator==(const ParameterHold& other) const = default;

    StorageId id;  ///< the memory's, while it is recorded
    std::size_t parameter;
    std::size_t from, until;  ///< calls before which this begins, and has ended
    bool outlives;            ///< the parameter got other memory meanwhile: the block lets this memory go
  };
  /// As Share, of a storage that is known by its index among those created.
  struct CreatedShare {
    StorageId index;
    ModuleId module;
    std::int64_t elements;
  };

  std::vector<StorageId> created;  ///< by the block itself
  std::vector<RecordedEvent> events;
  std::vector<HookCall> calls;
  std::vector<TensorMetadata> gradients;
  std::vector<ParameterHold> holds;  ///< in the order of `from`
  std::vector<CreatedShare> shares;
  bool frees_gradients = false;
  bool includes_listener = false;  ///< with the doing of ModuleListener, which is not called then
  std::vector<WorkRange> work;     ///< by the block itself: before each call, and behind the last
  std::int64_t change = 0;         ///< of the bytes alive, by the block itself
};

/// Whether two blocks did the same.
bool is_same(const BlockPass& pass, const RecordedBlock& a, std::size_t block_a, const RecordedBlock& b,
             std::size_t block_b);

}  // namespace oometer
