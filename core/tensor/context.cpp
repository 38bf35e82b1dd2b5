#include "tensor/context.h"

#include "tensor/node.h"

namespace oometer {

struct Context::Graph {
  Pool<Node> nodes;
  std::vector<Node*> dying;  ///< a graph is as deep as the model: nodes go one after another, not by recursion
  bool draining = false;
};

Context::Context(const Behaviours& behaviours_, const Device& device_)
    : behaviours(behaviours_),
      device(device_),
      graph_(std::make_unique<Graph>()),
      gradient_listeners_(*this),
      block_listeners_(*this),
      module_listeners_(*this) {
  constexpr const char* kOpNames[] = {
#define OOMETER_OP_NAME(name) #name,
      OOMETER_OPS(OOMETER_OP_NAME)
#undef OOMETER_OP_NAME
  };
  log.ops.assign(std::begin(kOpNames), std::end(kOpNames));
  // Far more than most runs need. What is not touched costs nothing; but a C library that has seen a block of this size
  // go keeps as much memory for the next run instead of giving it back to the system (glibc: mallopt(3),
  // M_TRIM_THRESHOLD), and fetching it again page by page took longer than the run itself.
  log.events.reserve(1 << 18);
  log.storages.reserve(1 << 15);
  log.dims.reserve(1 << 15);
  log.modules.reserve(1 << 10);
  log.work.works.reserve(1 << 13);
  log.work.repeats.reserve(1 << 11);
}

Context::~Context() {
  autocast.weights.clear();
  cublas_workspaces.clear();
  cublaslt_workspaces.clear();
}

Pool<Node>& Context::nodes() { return graph_->nodes; }

ModuleId Context::add_root(const char* type, Modality modality) {
  const ModuleId root = add_module(static_cast<ModuleId>(log.modules.size()), "", -1, type, modality);
  choose_listeners();
  return root;
}

ModuleId Context::add_module(ModuleId parent, const char* name, std::int32_t index, const char* type,
                             Modality modality) {
  log.modules.push_back({parent, name, index, type, modality});
  const auto added = static_cast<ModuleId>(log.modules.size() - 1);
  if (construction) construction->module_reached(added);
  return added;
}

void Context::begin_phase(PhaseName name, int iteration) {
  log.phases.push_back({static_cast<std::uint32_t>(log.events.size()), name, iteration, log.work.mark()});
}

void Context::listen(ModuleId root, GradientListener& listener) {
  gradient_listeners_.add(root, listener);
  choose_listeners();
}

void Context::listen(ModuleId root, BlockListener& listener) {
  block_listeners_.add(root, listener);
  choose_listeners();
}

void Context::listen(ModuleId root, ModuleListener& listener) {
  module_listeners_.add(root, listener);
  choose_listeners();
}

void Context::forget(const GradientListener& listener) {
  gradient_listeners_.remove(listener);
  choose_listeners();
}

void Context::forget(const BlockListener& listener) {
  block_listeners_.remove(listener);
  choose_listeners();
}

void Context::forget(const ModuleListener& listener) {
  module_listeners_.remove(listener);
  choose_listeners();
}

/// Where one model has one listener, it is called without a search.
void Context::choose_listeners() {
  const auto choose = [](auto*& told, auto& listeners) {
    told = listeners.empty() ? nullptr : &listeners;
    if (auto* only = listeners.only()) told = only;
  };
  choose(gradients, gradient_listeners_);
  choose(blocks, block_listeners_);
  choose(modules, module_listeners_);
}

void Context::allocate_storage(StorageImpl& storage, Op op, std::int64_t bytes, DType dtype, const Shape& shape,
                               Role role) {
  storage.bytes = bytes;
  if (bytes == 0 || stopped) return;
  if (bytes >= kSizeLimit || allocated_ >= kSizeLimit) {
    log.overflow = true;
    return;
  }
  storage.id = static_cast<StorageId>(log.storages.size());
  log.storages.push_back({.bytes = bytes,
                          .alloc_event = static_cast<std::uint32_t>(log.events.size()),
                          .module = module,
                          .shape = static_cast<std::uint32_t>(log.dims.size()),
                          .ndim = shape.count,
                          .dtype = dtype,
                          .role = role,
                          .recomputed = recomputing});
  for (std::int64_t dim : shape) log.dims.push_back(dim);
  log.events.push_back({storage.id, module, static_cast<OpId>(op), EventKind::alloc, stream});
  change_allocated(rounded(bytes));
}

Storage Context::resume(StorageId id) {
  StorageImpl* storage = storages.make();
  storage->context = this;
  storage->bytes = log.storages[id].bytes;
  storage->id = id;
  return Storage(storage);
}

void Context::free_storage(StorageImpl& storage) {
  if (storage.id == kNever || finished_) return;
  log.storages[storage.id].free_event = static_cast<std::uint32_t>(log.events.size());
  log.events.push_back({storage.id, module, 0, EventKind::free, stream});
  change_allocated(-rounded(storage.bytes));
  storage.id = kNever;
}

void Context::drop(StorageImpl* storage) {
  // What a recomputation's frames held when it had all that backward needs: left behind by it, with what it saved.
  if (storage->id != kNever && !finished_ && stopped && log.storages[storage->id].recomputed)
    log.storages[storage->id].saved = true;
  free_storage(*storage);
  storages.drop(storage);
}

void Context::drop(Node* node) {
  Graph& graph = *graph_;
  graph.dying.push_back(node);
  if (graph.draining) return;
  graph.draining = true;
  while (!graph.dying.empty()) {
    Node* next = graph.dying.back();
    graph.dying.pop_back();
    if (next->hooks) next->hooks->forget(*next);
    if (TensorImpl* variable = std::exchange(next->variable, nullptr)) {
      variable->accumulator = nullptr;
      release(variable);
    }
    graph.nodes.drop(next);
  }
  graph.draining = false;
}

void Context::record_stream(const Tensor& tensor, std::uint8_t stream_) {
  if (tensor->storage->id != kNever)
    log.events.push_back({tensor->storage->id, module, 0, EventKind::record_stream, stream_});
}

void Context::empty_cache() { log.events.push_back({kNever, module, 0, EventKind::empty_cache, stream}); }

StorageRecord* Context::record(const Tensor& tensor) {
  return tensor->storage->id == kNever ? nullptr : &log.storages[tensor->storage->id];
}

void Context::set_role(const Tensor& tensor, Role role, ModuleId owner) {
  if (StorageRecord* found = record(tensor)) {
    found->role = role;
    found->module = owner;
  }
}

void Context::share(const Tensor& tensor, ModuleId owner, std::int64_t elements) {
  StorageRecord* shared = record(tensor);
  if (!shared || elements <= 0) return;
  shared->shared = true;
  log.shares.push_back({tensor->storage->id, owner, elements});
}

void Context::share_like(const Storage& storage, const Tensor& like) {
  const StorageRecord* shared = record(like);
  if (storage->id == kNever || !shared || !shared->shared) return;
  log.storages[storage->id].shared = true;
  std::size_t i = 0;
  while (log.shares[i].storage != like->storage->id) ++i;
  for (const std::size_t count = log.shares.size(); i < count; ++i) {
    const Share part = log.shares[i];
    if (part.storage != like->storage->id) break;
    log.shares.push_back({storage->id, part.module, part.elements});
  }
}

void release(Node* node) {
  if (--node->references == 0) node->context->drop(node);
}

}  // namespace oometer
