#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "result.h"
#include "runtime/behaviours.h"
#include "runtime/expert_load.h"
#include "tensor/listeners.h"
#include "tensor/pool.h"
#include "tensor/tensor.h"
#include "trace/log.h"

namespace oometer {

class HiddenStates;
class KvCache;
class SavedTensorHooks;
struct GraphTask;

/// The device that operators ask about: some of their scratch memory depends on it.
struct Device {
  int major = 8, minor = 0;  ///< compute capability
  int sm_count = 108;        ///< multiprocessors
};

/// cudaDeviceProp.maxThreadsPerMultiProcessor (CUDA C programming guide, "Technical specifications per compute
/// capability"): 1024 on Turing, 1536 on consumer Ampere, Ada and consumer Blackwell, else 2048.
constexpr std::int64_t max_threads_per_sm(const Device& device) {
  if (device.major == 7 && device.minor == 5) return 1024;
  if ((device.major == 8 && device.minor != 0) || device.major == 12) return 1536;
  return 2048;
}

/// torch.autocast's state: see train/precision for when it is entered.
struct Autocast {
  bool enabled = false;
  DType dtype = DType::bfloat16;
  int depth = 0;                ///< the cache is dropped when the outermost region is left
  std::vector<Tensor> weights;  ///< whose copies are in the cache
};

/// Where autograd's saved tensors go: `with torch.autograd.graph.save_on_cpu(pin_memory=...)`.
enum class SavesOn : std::uint8_t { device, pageable, pinned };

/// Everything one simulated process has: its log, its objects, and PyTorch's thread-local state. No globals: several
/// simulations may run side by side. Must outlive every Tensor made in it.
class Context {
 public:
  Context(const Behaviours& behaviours, const Device& device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Log log;
  const Behaviours behaviours;
  const Device device;

  // torch's thread-local state
  bool grad_mode = true;
  bool in_backward =
      false;  ///< the autograd engine runs (on a GPU: in the device's own thread, with its own cuBLAS handle)
  bool recomputing = false;            ///< inside a checkpointed block's second forward
  bool stopped = false;                ///< a recomputation has all it needs: nothing more is allocated until it is left
  bool adapters_disabled = false;      ///< peft's disable_adapter(): wrapped layers run as their base layers
  bool training = true;                ///< model.train(), or model.eval(): dropout does nothing
  KvCache* past_key_values = nullptr;  ///< what attention layers are called with; none: no cache is used
  HiddenStates* hidden_states =
      nullptr;  ///< where transformers collects what output_hidden_states asks for; none: nobody
  SavedTensorHooks* saved_tensor_hooks = nullptr;  ///< the innermost ones: a non-reentrant checkpoint's, or others
  GraphTask* graph_task = nullptr;                 ///< of the innermost backward that runs
  Autocast autocast;
  SavesOn saves_on = SavesOn::device;
  std::int64_t saved_on_host = 0;       ///< bytes that this forward has put into host memory
  std::int64_t most_saved_on_host = 0;  ///< of all forwards
  std::uint8_t stream = kDefaultStream;
  ModuleId module = 0;
  std::vector<char> modules_without_grad;  ///< by id: whose forward runs under torch.no_grad(); empty: no module's
  std::uint64_t sequence_number = 0;
  // Whom to tell; null: nobody. Of several listeners one that tells each of its own model (listen).
  GradientListener* gradients = nullptr;
  BlockListener* blocks = nullptr;
  ModuleListener* modules = nullptr;
  ConstructionListener* construction = nullptr;  ///< of the model that is being built
  /// F.linear is DeepSpeed's LinearFunctionForZeroStage3 (zero.Init, `memory_efficient_linear`).
  bool zero_3_linear = false;
  /// Experts run in a loop of Python, over tokens that are spread so; null: their products are grouped.
  const ExpertLoad* expert_loop = nullptr;

  std::optional<Error> refusal;  ///< why PyTorch would have stopped, if it would
  bool repeats = true;           ///< what was proved to happen again is written, not executed: Repetition, RepeatingRun
  bool repetition_failed = false;  ///< it was not the same after all: the run has to be executed in full

  bool is_without_grad(ModuleId of) const { return of < modules_without_grad.size() && modules_without_grad[of]; }

  /// Bytes alive, each storage rounded up to the allocator's 512: what torch.cuda.memory_allocated() says to a
  /// framework that asks (unsplit slack of large blocks is not in it).
  std::int64_t allocated_bytes() const { return allocated_; }

  /// A model; what is added below it are its modules.
  ModuleId add_root(const char* type, Modality modality);
  ModuleId add_module(ModuleId parent, const char* name, std::int32_t index, const char* type, Modality modality);
  void begin_phase(PhaseName name, int iteration);

  /// A listener hears of the model with that root from now on, after those that do already, until it is forgotten.
  void listen(ModuleId root, GradientListener& listener);
  void listen(ModuleId root, BlockListener& listener);
  void listen(ModuleId root, ModuleListener& listener);
  void forget(const GradientListener& listener);
  void forget(const BlockListener& listener);
  void forget(const ModuleListener& listener);

  Storage allocate(Op op, std::int64_t bytes, DType dtype, const Shape& shape, Role role) {
    StorageImpl* storage = storages.make();
    storage->context = this;
    allocate_storage(*storage, op, bytes, dtype, shape, role);
    return Storage(storage);
  }
  /// `storage.resize_()` to nothing, while its tensors stay, and back to new memory.
  void free_storage(StorageImpl& storage);
  void allocate_storage(StorageImpl& storage, Op op, std::int64_t bytes, DType dtype, const Shape& shape, Role role);
  /// A handle to a storage that the log has alive, written there by other means than `allocate`.
  Storage resume(StorageId id);
  /// By how much the bytes alive have changed by what was written so; each storage rounded as `rounded` does.
  void change_allocated(std::int64_t bytes) {
    allocated_ += bytes;
    if (allocated_ >= kSizeLimit) log.overflow = true;
  }
  static std::int64_t rounded(std::int64_t bytes) {
    constexpr std::int64_t kRounding = 512;  // kMinBlockSize, c10/core/AllocatorConfig.h (2.15)
    return (bytes + kRounding - 1) & ~(kRounding - 1);
  }
  void record_stream(const Tensor& tensor, std::uint8_t stream);
  void empty_cache();
  /// A kernel has run, or a collective: its module, its stream and whether it recomputes are filled in here.
  void work(Work work) {
    work.module = module;
    work.stream = stream;
    work.recomputed = recomputing;
    log.work.works.push_back(work);
  }
  void work(Work work, const WorkProduct& product) {
    work.product = static_cast<std::uint32_t>(log.work.products.size());
    log.work.products.push_back(product);
    this->work(work);
  }
  /// The log ends here: what is torn down after it (the model, the optimizer) is not part of the run.
  void finish() { stopped = finished_ = true; }
  bool is_finished() const { return finished_; }
  StorageRecord* record(const Tensor& tensor);
  void set_role(const Tensor& tensor, Role role, ModuleId owner);
  /// `elements` of a flat buffer are that module's.
  void share(const Tensor& tensor, ModuleId module, std::int64_t elements);
  /// `storage` is shared out as `like` is.
  void share_like(const Storage& storage, const Tensor& like);

  // object pools
  Pool<TensorImpl> tensors;
  Pool<StorageImpl> storages;
  Pool<Node>& nodes();

  /// Persistent cuBLAS workspaces of torch <= 2.14, one a handle and stream: [forward, backward thread][stream].
  std::vector<Storage> cublas_workspaces;
  /// The same of cuBLASLt (torch 2.7 - 2.12).
  std::vector<Storage> cublaslt_workspaces;

  /// What fla's tensor_cache keeps of the last cu_seqlens, each with what was made of it: prepare_chunk_indices in
  /// ops/linear_attention.cpp.
  std::vector<std::vector<Tensor>> fla_tensor_cache;

  void drop(StorageImpl* storage);
  void drop(Node* node);

 private:
  struct Graph;
  void choose_listeners();

  std::unique_ptr<Graph> graph_;
  GradientListeners gradient_listeners_;
  BlockListeners block_listeners_;
  ModuleListeners module_listeners_;
  std::int64_t allocated_ = 0;
  bool finished_ = false;
};

/// Restores a variable when the scope is left: `with torch.no_grad():` and its kin.
template <class T>
class Scoped {
 public:
  Scoped(T& variable, T value) : variable_(variable), old_(variable) { variable = value; }
  ~Scoped() { variable_ = old_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  T old_;
};

struct NoGrad : Scoped<bool> {
  explicit NoGrad(Context& context) : Scoped(context.grad_mode, false) {}
};

/// `with torch.autocast("cuda", dtype):`. Leaving the outermost region drops the cached weights.
class AutocastRegion {
 public:
  explicit AutocastRegion(Context& context, bool enabled)
      : autocast_(context.autocast), outer_(autocast_.enabled), entered_(enabled) {
    if (!entered_) return;
    autocast_.enabled = true;
    ++autocast_.depth;
  }
  ~AutocastRegion() {
    if (!entered_) return;
    autocast_.enabled = outer_;
    if (--autocast_.depth > 0) return;
    for (Tensor& weight : autocast_.weights) weight->autocast_copy.reset();
    autocast_.weights.clear();
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  Autocast& autocast_;
  bool outer_, entered_;
};

/// Code of a module's forward runs under its id, so that every event knows where it comes from, and without gradients
/// if the module's forward is under torch.no_grad().
class ModuleScope {
 public:
  ModuleScope(Context& context, ModuleId module)
      : module_(context.module, module),
        grad_mode_(context.grad_mode, context.grad_mode && !context.is_without_grad(module)) {}

 private:
  Scoped<ModuleId> module_;
  Scoped<bool> grad_mode_;
};

/// `tensor` as a module's result or argument is handed on: its gradient tells Context::modules that the module's
/// backward begins, or is over.
Tensor hook_gradient(const Tensor& tensor, ModuleId module, bool is_result);

/// A module's `__call__`: its forward runs under its id, between its hooks. Of what it is called with, the tensors that
/// come by position go through `argument`, those by name through `keyword`; each that it returns goes through `result`,
/// when its forward is done. The root's hooks are the strategy's (TrainingStrategy::before_forward).
class ModuleCall {
 public:
  ModuleCall(Context& context, ModuleId module)
      : listener_(hears(context, module) ? context.modules : nullptr),
        module_(module),
        scope_(context, module == kNever ? context.module : module) {
    if (listener_) listener_->before_forward(module_);
  }
  Tensor argument(const Tensor& tensor) const { return listener_ ? hook_gradient(tensor, module_, false) : tensor; }
  Tensor keyword(const Tensor& tensor) const {
    return listener_ && listener_->hears_keywords(module_) ? hook_gradient(tensor, module_, false) : tensor;
  }
  Tensor result(Tensor tensor) {
    if (!listener_) return tensor;
    if (!done_) listener_->after_forward(module_);
    done_ = true;
    return hook_gradient(tensor, module_, true);
  }

 private:
  static bool hears(const Context& context, ModuleId module) {
    if (!context.modules || (module != kNever && context.log.is_root(module))) return false;
    return context.modules->hears(module);
  }

  ModuleListener* listener_;
  ModuleId module_;
  ModuleScope scope_;
  bool done_ = false;
};

}  // namespace oometer
