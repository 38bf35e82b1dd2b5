#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/dtype.h"
#include "trace/work.h"

/// The ordered trace of one run: what PyTorch asks of its caching allocator, event by event. Everything that oometer
/// says is a view of this log; nothing is added to a total afterwards.
namespace oometer {

using StorageId = std::uint32_t;
using ModuleId = std::uint32_t;
using OpId = std::uint16_t;

/// The root of the first model (of one that trains, with all that wraps it): loss and merging happen there, and what
/// belongs to no one module.
inline constexpr ModuleId kModel = 0;

inline constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

/// The compute stream. Side streams (DeepSpeed's reduction stream, FSDP's all-gather stream) have ids above it.
inline constexpr std::uint8_t kDefaultStream = 0;

enum class EventKind : std::uint8_t {
  alloc,          ///< a storage is created: `storage` says which
  free,           ///< its last handle went
  record_stream,  ///< Tensor.record_stream: `stream` uses the storage too; its free waits for that stream's events
  empty_cache,    ///< torch.cuda.empty_cache(): cached whole segments go back to the driver
};

/// One event. 12 bytes: a step of LLaVA-1.5 7B has some twenty thousand.
struct Event {
  StorageId storage = 0;
  ModuleId module = 0;
  OpId op = 0;
  EventKind kind = EventKind::alloc;
  std::uint8_t stream = kDefaultStream;
};

/// What a storage is for. `tensor` is an ordinary result of an operator: the report tells activations (kept for
/// backward) from temporaries by `saved` and by its life.
enum class Role : std::uint8_t {
  parameter,
  buffer,
  input,
  gradient,
  optimizer_state,
  tensor,
  workspace,  ///< inside an operator or a library: gone when the operator returns
  kv_cache,   ///< keys and values of the tokens seen
};

/// `batch`: between the steps of a trainer, where it fetches the next one's batches. `evaluation`, `saving`: a
/// trainer's.
enum class PhaseName : std::uint8_t { init, forward, backward, optimizer, batch, evaluation, saving, prefill, decode };

/// A storage's record. Bytes are what was asked for (the allocator rounds).
struct StorageRecord {
  std::int64_t bytes = 0;
  std::uint32_t alloc_event = 0;
  std::uint32_t free_event = kNever;  ///< kNever: alive at the end of the log
  ModuleId module = 0;      ///< owner: the module whose code made it, or whose parameter, gradient or state it is
  std::uint32_t shape = 0;  ///< index of its first dimension in Log::dims
  std::uint8_t ndim = 0;
  DType dtype = DType::float32;
  Role role = Role::tensor;
  bool saved = false;  ///< some autograd node held it for backward (of a parameter: not told where blocks are repeated)
  bool recomputed = false;  ///< made while a checkpointed block was run again
  bool shared = false;      ///< Log::shares has shares of it

  /// The same storage once more, `events` later.
  void move(std::uint32_t events, bool is_freed) {
    alloc_event += events;
    free_event = is_freed ? free_event + events : kNever;
  }
};

enum class Modality : std::uint8_t { none, vision, projector, language };

/// A node of a module tree, as `named_modules()` gives it. The path is the names joined by dots from the root, whose
/// own name is empty but for a second model's ("reference").
struct ModuleRecord {
  ModuleId parent = 0;      ///< comes before its children; a root's is itself
  const char* name = "";    ///< "layers", "q_proj": static text, or Log::names has it
  std::int32_t index = -1;  ///< position in a ModuleList ("layers.3"), -1 for none
  const char* type = "";    ///< class name in Hugging Face or torch.nn: "LlamaMLP"
  Modality modality = Modality::none;
};

/// Where a phase begins; it ends where the next begins.
struct PhaseMark {
  std::uint32_t first_event = 0;
  PhaseName name = PhaseName::init;
  std::int32_t iteration = 0;  ///< 0 for init, then 1, 2, ...; of inference: the turn
  WorkMark work;               ///< where its work begins
};

/// A part of a storage that holds many modules' elements (a flat buffer): to whom it belongs.
struct Share {
  StorageId storage = 0;
  ModuleId module = 0;
  std::int64_t elements = 0;
};

struct Log {
  /// Whether it is a model, not a module of one.
  bool is_root(ModuleId module) const { return modules[module].parent == module; }
  /// The model that a module is in.
  ModuleId root_of(ModuleId module) const;
  /// A model's modules are those from its root to here.
  ModuleId end_of(ModuleId root) const;

  std::vector<Event> events;
  std::vector<StorageRecord> storages;
  std::vector<std::int64_t> dims;  ///< shapes of all storages, end to end
  std::vector<ModuleRecord> modules;
  std::vector<const char*> ops;  ///< OpId -> static name ("mm", "_softmax")
  std::vector<PhaseMark> phases;
  WorkLog work;
  std::vector<Share> shares;          ///< a storage's stand together; what they leave is its record's module's
  bool overflow = false;              ///< some size did not fit 63 bits: the log is not to be believed
  std::shared_ptr<const void> names;  ///< who owns the modules' names that are not static
};

/// Writes items [first, first + count) once more at the end; where they lie now.
template <class Item>
std::span<Item> append_again(std::vector<Item>& items, std::size_t first, std::size_t count) {
  const std::size_t at = items.size();
  if (items.capacity() < at + count) items.reserve(std::max(2 * at, at + count));
  // There is room: nothing moves while it is read.
  const Item* const begin = items.data() + first;
  items.insert(items.end(), begin, begin + count);
  return std::span(items).subspan(at);
}

/// "language_model.layers.0.mlp" of a module; "" for the model itself.
std::string module_path(const Log& log, ModuleId module);
/// Whether a module's path is the dotted name or ends with it ("vision_tower", "layers.3").
bool path_ends_with(const Log& log, ModuleId module, std::string_view name);

}  // namespace oometer
