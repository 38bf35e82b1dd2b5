#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

/// The graph that a forward leaves behind. After torch/csrc/autograd (PyTorch 2.15): function.h, saved_variable.cpp.
namespace oometer {

class Backward;
struct Node;

using BackwardFunction = void (*)(Backward&);

/// Where an output's gradient goes: into which node, as which of its gradients.
struct Edge {
  Handle<Node> function;  ///< null: no gradient is wanted there
  std::uint32_t input_nr = 0;
};

/// A few elements in place, more on the heap: nearly every node has at most three edges.
template <class T, unsigned N>
class SmallVector {
 public:
  T& operator[](unsigned i) { return i < N ? inline_[i] : (*more_)[i - N]; }
  const T& operator[](unsigned i) const { return i < N ? inline_[i] : (*more_)[i - N]; }
  unsigned size() const { return size_; }
  void push_back(T value) {
    const unsigned last = size_;
    resize(last + 1);
    (*this)[last] = std::move(value);
  }
  void resize(unsigned size) {
    if (size > N) {
      if (!more_) more_ = std::make_unique<std::vector<T>>();
      more_->resize(size - N);
    }
    size_ = size;
  }
  /// Lets all elements go, the first one first.
  void clear() {
    for (unsigned i = 0; i < size_ && i < N; ++i) inline_[i] = T();
    // One by one: in which order a vector destroys its elements, standard libraries do not agree.
    if (more_)
      for (T& element : *more_) element = T();
    more_.reset();
    size_ = 0;
  }

 private:
  T inline_[N];
  std::unique_ptr<std::vector<T>> more_;
  unsigned size_ = 0;
};

/// How an output looked: the engine reduces and casts its gradient to that (input_metadata).
struct OutputMetadata {
  Shape sizes;
  DType dtype = DType::float32;
};

/// torch.autograd.graph.saved_tensors_hooks: while it is Context::saved_tensor_hooks, nodes hand it what they save.
/// Counted by those that it keeps something for.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// `node` saves a tensor: if it is to come back from here, the slot is `promised`, and the node's `hooks` are these.
  virtual void pack(Node& node, unsigned slot, const Tensor& tensor) = 0;
  /// What was promised, for the node's backward.
  virtual Tensor unpack(const Node& node, unsigned slot) = 0;
  /// A node that was promised something dies.
  virtual void forget(const Node& node) = 0;

  std::uint32_t references = 0;
};

inline void retain(SavedTensorHooks* hooks) { ++hooks->references; }
inline void release(SavedTensorHooks* hooks) {
  if (--hooks->references == 0) delete hooks;
}

/// One recorded operator. `function` is what its backward allocates; `sizes`, `integers`, `dtype` are what it remembers
/// besides tensors. There are thousands at once, so what few nodes need is behind a pointer.
struct Node {
  std::uint32_t references = 0;
  Op op = Op::none;
  std::uint16_t outputs = 1;  ///< of the forward operator: gradients that come in
  std::uint8_t saved_count = 0;
  std::uint8_t stream = kDefaultStream;  ///< of its forward: its backward runs there too
  ModuleId module = 0;
  DType dtype = DType::float32;
  bool seen = false;           ///< the engine's, while a backward runs
  std::uint16_t on_host = 0;   ///< a bit a slot: its tensor lies in host memory (save_on_cpu)
  std::uint16_t promised = 0;  ///< a bit a slot: its tensor comes back from `hooks`
  std::uint64_t sequence_number = 0;
  Context* context = nullptr;
  BackwardFunction function = nullptr;

  /// Tensors held for backward (SavedVariable), or, where hooks have taken them, what those know each by: inside a
  /// non-reentrant checkpoint the number of what its forward packed.
  static constexpr int kMaxSaved = 11;
  Tensor saved[kMaxSaved];
  Handle<SavedTensorHooks> hooks;
  std::uint32_t packed[kMaxSaved];

  SmallVector<Edge, 3> edges;
  Shape sizes;  ///< usually the forward input's, for the gradient's own
  std::int64_t integers[2] = {0, 0};
  TensorImpl* variable = nullptr;                                  ///< AccumulateGrad: its leaf (owned reference)
  std::unique_ptr<std::function<void(Backward&)>> custom;          ///< a Python autograd.Function's backward
  std::unique_ptr<std::vector<std::function<void()>>> post_hooks;  ///< register_hook: when its gradients are made
  SmallVector<OutputMetadata, 1> metadata;                         ///< of each output

  int dependencies = 0;              ///< the engine's: gradients that are still to come
  SmallVector<Tensor, 1> gradients;  ///< the engine's: those that are in
};

inline void retain(Node* node) { ++node->references; }

/// One run of the engine (torch/csrc/autograd/graph_task.h).
struct GraphTask {
  Node* node = nullptr;                                ///< that runs now (_current_autograd_node)
  std::vector<std::function<void()>> final_callbacks;  ///< queue_callback: when all nodes have run
};

/// Records one operator while it runs: makes the node if any input wants a gradient (and grad mode is on), saves what
/// backward needs, ties the outputs. Saves come before the outputs are allocated, as in PyTorch's generated code,
/// except those of outputs.
class Record {
 public:
  Record(Op op, BackwardFunction function, std::initializer_list<const Tensor*> inputs);
  /// For any number of inputs (cat).
  Record(Op op, BackwardFunction function, const std::vector<Tensor>& inputs);

  /// Some input wants a gradient.
  explicit operator bool() const { return static_cast<bool>(node_); }
  /// input i wants a gradient.
  bool wants(unsigned i) const { return node_ && node_->edges[i].function; }
  Node* operator->() const { return node_.get(); }

  /// Holds an input (or any other tensor) for backward.
  void save(const Tensor& tensor);
  /// The same where another order than that of the slots is the generated code's, which goes by name, inputs first:
  /// hooks see it.
  void save(const Tensor& tensor, unsigned slot);
  /// Holds a result for backward: only its storage, or graph and tensor would hold each other.
  void save_output(const Tensor& tensor);
  void save_output(const Tensor& tensor, unsigned slot);
  /// Leaves a slot empty, so that the slots after it keep their places.
  void skip();

  /// Ties a result to the node. The kernel that made it has read the inputs.
  Tensor output(Tensor tensor);

 private:
  void start(Op op, BackwardFunction function, Context& context);
  void add_edge(const Tensor& input);
  Handle<Node> node_;
  Op op_;
  std::int64_t read_;  ///< bytes of the inputs; negative: its kernels are told elsewhere
};

/// What a node's backward sees and gives.
class Backward {
 public:
  Backward(Context& context_, Node& node_) : context(context_), node(node_) {}

  Context& context;
  Node& node;

  /// The incoming gradient of output i; null where nothing flowed.
  const Tensor& grad(unsigned i = 0) const { return grads[i]; }
  /// A saved tensor.
  const Tensor& saved(unsigned i) const { return node.saved[i]; }
  /// Whether input i's gradient is wanted.
  bool wants(unsigned i) const { return static_cast<bool>(node.edges[i].function); }
  /// The shape and type that input i had: its gradient's.
  const Shape& input_sizes(unsigned i) const {
    const Edge& edge = node.edges[i];
    return edge.function->variable ? edge.function->variable->sizes : edge.function->metadata[edge.input_nr].sizes;
  }
  DType input_dtype(unsigned i) const {
    const Edge& edge = node.edges[i];
    if (const TensorImpl* leaf = edge.function->variable) return leaf->grad_dtype.value_or(leaf->dtype);
    return edge.function->metadata[edge.input_nr].dtype;
  }
  void give(unsigned i, Tensor gradient) { results[i] = std::move(gradient); }

  SmallVector<Tensor, 3> results;
  mutable SmallVector<Tensor, 1> grads;
};

namespace autograd {

/// The node that gradients of this tensor go to: its grad_fn, or a leaf's AccumulateGrad (made on first use).
Edge gradient_edge(const Tensor& tensor);

}  // namespace autograd

}  // namespace oometer
