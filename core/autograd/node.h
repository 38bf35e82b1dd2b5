#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

/// The graph that a forward leaves behind. After torch/csrc/autograd (PyTorch 2.15): function.h, saved_variable.cpp.
namespace oometer {

class Backward;
struct Node;
void retain(CheckpointFrame* frame);
void release(CheckpointFrame* frame);

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
  T& operator[](unsigned i) { return i < N ? inline_[i] : more_[i - N]; }
  const T& operator[](unsigned i) const { return i < N ? inline_[i] : more_[i - N]; }
  unsigned size() const { return size_; }
  void push_back(T value) {
    if (size_ < N)
      inline_[size_] = std::move(value);
    else
      more_.push_back(std::move(value));
    ++size_;
  }
  void resize(unsigned size) {
    if (size > N) more_.resize(size - N);
    size_ = size;
  }
  void clear() {
    for (unsigned i = 0; i < size_ && i < N; ++i) inline_[i] = T();
    more_.clear();
    size_ = 0;
  }

 private:
  T inline_[N];
  std::vector<T> more_;
  unsigned size_ = 0;
};

/// A tensor held for backward (SavedVariable): the tensor itself, or, inside a non-reentrant checkpoint, a promise that
/// the block's recomputation makes good.
struct SavedVariable {
  Tensor tensor;
  Handle<CheckpointFrame> frame;
  std::uint32_t index = 0;
};

/// One recorded operator. `function` is what its backward allocates; `sizes`, `integers` are what it remembers besides
/// tensors.
struct Node {
  std::uint32_t references = 0;
  Op op = Op::none;
  std::uint8_t outputs = 1;  ///< of the forward operator: gradients that come in
  std::uint8_t saved_count = 0;
  ModuleId module = 0;
  std::uint64_t sequence_number = 0;
  Context* context = nullptr;
  BackwardFunction function = nullptr;

  static constexpr int kMaxSaved = 8;
  SavedVariable saved[kMaxSaved];
  SmallVector<Edge, 3> edges;
  Shape sizes;  ///< usually the forward input's, for the gradient's own
  Shape strides;
  std::int64_t integers[3] = {0, 0, 0};
  DType dtype = DType::float32;
  TensorImpl* variable = nullptr;         ///< AccumulateGrad: its leaf (owned reference)
  std::function<void(Backward&)> custom;  ///< a Python autograd.Function's backward

  // What forward outputs look like: the engine reduces and casts gradients to the *inputs'* metadata, which it finds
  // here in the next node (input_metadata).
  SmallVector<Shape, 1> output_sizes;
  SmallVector<DType, 1> output_dtypes;

  // The engine's state while a backward runs.
  int dependencies = 0;
  bool seen = false;
  SmallVector<Tensor, 1> gradients;
};

inline void retain(Node* node) { ++node->references; }

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
  /// Holds a result for backward: only its storage, or graph and tensor would hold each other.
  void save_output(const Tensor& tensor);
  /// Leaves a slot empty, so that the slots after it keep their places.
  void skip();

  /// Ties a result to the node.
  Tensor output(Tensor tensor);

 private:
  void start(Op op, BackwardFunction function, Context& context);
  void add_edge(const Tensor& input);
  Handle<Node> node_;
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
  const Tensor& saved(unsigned i) const { return node.saved[i].tensor; }
  /// Whether input i's gradient is wanted.
  bool wants(unsigned i) const { return static_cast<bool>(node.edges[i].function); }
  /// The shape and type that input i had: its gradient's.
  const Shape& input_sizes(unsigned i) const {
    const Edge& edge = node.edges[i];
    return edge.function->variable ? edge.function->variable->sizes : edge.function->output_sizes[edge.input_nr];
  }
  DType input_dtype(unsigned i) const {
    const Edge& edge = node.edges[i];
    return edge.function->variable ? edge.function->variable->dtype : edge.function->output_dtypes[edge.input_nr];
  }
  void give(unsigned i, Tensor gradient) { results[i] = std::move(gradient); }

  SmallVector<Tensor, 3> results;
  mutable SmallVector<Tensor, 1> grads;
};

namespace autograd {

/// The node that gradients of this tensor go to: its grad_fn, or a leaf's AccumulateGrad (made on first use).
Edge gradient_edge(const Tensor& tensor);

/// Tensor.backward(): runs the graph from `root`, in the engine's order. `gradient` null: ones_like(root).
void backward(const Tensor& root, Tensor gradient = {});

}  // namespace autograd

}  // namespace oometer
