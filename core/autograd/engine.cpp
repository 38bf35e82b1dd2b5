#include "autograd/engine.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ops/ops.h"
#include "tensor/node.h"
#include "tensor/save_on_cpu.h"

/// The backward engine, after torch/csrc/autograd/engine.cpp, input_buffer.cpp and functions/accumulate_grad.h
/// (PyTorch 2.15): nodes run in order of their sequence number, newest first, as soon as all their gradients are in.
namespace oometer::autograd {

namespace {

/// utils::obeys_layout_contract: equal strides, those of single elements apart; of leaves with gaps, contiguous.
bool same_layout(const Tensor& gradient, const Tensor& leaf) {
  if (!leaf.is_non_overlapping_and_dense()) return gradient.is_contiguous();
  for (int i = 0; i < leaf.ndim(); ++i)
    if (leaf.size(i) != 1 && gradient.strides()[i] != leaf.strides()[i]) return false;
  return true;
}

/// AccumulateGrad::apply, functions/accumulate_grad.h.
void accumulate_grad(Backward& b) {
  TensorImpl& variable = *b.node.variable;
  const Tensor& gradient = b.grad();
  if (!gradient) return;
  Context& context = b.context;
  const Tensor leaf(b.node.variable);
  if (!variable.grad) {
    // Stolen if nobody else holds it (its storage may be shared with a view's base: only the tensor counts), and laid
    // out as the variable is; otherwise cloned into the variable's layout.
    const bool stolen = gradient->references == 1 && same_layout(gradient, leaf);
    variable.grad = stolen ? detach(gradient) : copy_to_layout(Op::clone, gradient, leaf);
  } else {
    add_(variable.grad, gradient);
  }
  if (StorageRecord* owner = context.record(leaf); owner && owner->role == Role::parameter)
    context.set_role(variable.grad, Role::gradient, owner->module);
  if (context.gradients) {
    if (context.gradients->is_post_accumulate()) b.grads[0].reset();
    context.gradients->gradient_ready(leaf);
  }
}

/// can_accumulate_inplace, input_buffer.cpp: a gradient that nobody else holds takes the next one in.
bool can_accumulate_in_place(const Context& context, const Tensor& gradient) {
  return !context.behaviours.dispatch_mode && gradient->references == 1 && gradient->storage->references == 1 &&
         gradient.is_non_overlapping_and_dense();
}

/// Generated code unpacks and releases its saved tensors by name, results after inputs: "mat2" and "other" before
/// "self", "attn_bias" and "key" before "query", "logsumexp" before "output".
using SlotOrder = std::array<std::uint8_t, Node::kMaxSaved>;
const SlotOrder& unpacked_slots(Op op) {
  static constexpr SlotOrder kInOrder{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  static constexpr SlotOrder kProduct{1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  static constexpr SlotOrder kAttention{1, 0, 2, 4, 3, 5, 6, 7, 8, 9, 10};
  static constexpr SlotOrder kBiasedAttention{7, 1, 0, 2, 4, 3, 5, 6, 8, 9, 10};
  switch (op) {
    case Op::mm:
    case Op::bmm:
    case Op::mul:
    case Op::div:
      return kProduct;
    case Op::efficient_attention:
      return kBiasedAttention;
    case Op::flash_attention:
    case Op::cudnn_attention:
      return kAttention;
    default:
      return kInOrder;
  }
}

struct Ready {
  Node* node;
  std::uint64_t priority;
  std::uint32_t order;  ///< equal priorities (AccumulateGrads) go in the order in which they became ready
};

bool runs_later(const Ready& a, const Ready& b) {
  return a.priority != b.priority ? a.priority < b.priority : a.order > b.order;
}

class Engine {
 public:
  Engine(Context& context, bool retains) : context_(context), retains_(retains) {}

  void run(const Edge& root, Tensor gradient) {
    const Scoped<GraphTask*> scope(context_.graph_task, &graph_task_);
    count_dependencies(root.function.get());
    receive(root, std::move(gradient));
    push(root.function);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), runs_later);
      const Handle<Node> node(heap_.back().node);
      heap_.pop_back();
      release(node.get());  // the heap's own reference
      graph_task_.node = node.get();
      evaluate(*node);
    }
    for (const auto& callback : graph_task_.final_callbacks) callback();
  }

 private:
  void count_dependencies(Node* root) {
    std::vector<Node*> stack{root};
    root->seen = true;
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (unsigned i = 0; i < node->edges.size(); ++i) {
        Node* next = node->edges[i].function.get();
        if (!next) continue;
        ++next->dependencies;
        if (!next->seen) {
          next->seen = true;
          stack.push_back(next);
        }
      }
    }
  }

  void push(const Handle<Node>& node) {
    retain(node.get());
    heap_.push_back({node.get(), node->sequence_number, pushed_++});
    std::push_heap(heap_.begin(), heap_.end(), runs_later);
  }

  /// InputBuffer::add.
  void receive(const Edge& edge, Tensor gradient) {
    if (!gradient) return;
    Node& node = *edge.function;
    if (node.gradients.size() <= edge.input_nr)
      node.gradients.resize(std::max<unsigned>(node.outputs, edge.input_nr + 1));
    Tensor& held = node.gradients[edge.input_nr];
    if (!held)
      held = std::move(gradient);
    else if (can_accumulate_in_place(context_, held))
      add_(held, gradient);
    else {
      const Scoped<std::uint8_t> stream(context_.stream, node.stream);
      held = add(held, gradient);
    }
  }

  /// validate_outputs: a gradient takes its tensor's shape and type.
  static void validate(Node& node, Backward& call) {
    for (unsigned i = 0; i < node.edges.size(); ++i) {
      Tensor& gradient = call.results[i];
      if (!call.wants(i) || !gradient) continue;
      const Shape& sizes = call.input_sizes(i);
      const TensorImpl* const leaf = call.node.edges[i].function->variable;
      const DType dtype = leaf && leaf->takes_any_grad ? gradient.dtype() : call.input_dtype(i);
      if (!(gradient.sizes() == sizes)) gradient = sum_to(gradient, sizes);
      if (gradient.dtype() != dtype) gradient = to(gradient, dtype);
    }
  }

  void evaluate(Node& node) {
    Backward call(context_, node);
    call.results.resize(node.edges.size());
    {
      const Scoped<ModuleId> scope(context_.module, node.module);
      const Scoped<std::uint8_t> stream(context_.stream, node.stream);
      // The generated backward unpacks all that was saved first; in a checkpointed block that runs the block again.
      const SlotOrder& slots = unpacked_slots(node.op);
      if (node.promised != 0)
        for (const unsigned i : slots)
          if (node.promised >> i & 1U) node.saved[i] = node.hooks->unpack(node, i);
      if (node.on_host != 0)
        for (const unsigned i : slots)
          if (node.on_host >> i & 1U) node.saved[i] = unpack_from_cpu(node.saved[i]);
      call.grads = std::move(node.gradients);
      node.gradients = {};
      if (call.grads.size() < node.outputs) call.grads.resize(node.outputs);
      // any_variable_defined: a wrapper that hands on the gradients of all outputs (DDP's sink) has none for most.
      bool any_defined = false;
      for (unsigned i = 0; i < call.grads.size(); ++i) any_defined = any_defined || call.grads[i];
      if (any_defined && node.custom)
        (*node.custom)(call);
      else if (any_defined)
        node.variable ? accumulate_grad(call) : node.function(call);
      // What was unpacked are locals of the backward function; what was held as it is goes with release_variables.
      const unsigned unpacked = node.promised | node.on_host;
      for (unsigned i = 0; unpacked >> i != 0; ++i)
        if (unpacked >> i & 1U) node.saved[i].reset();
      validate(node, call);
      if (node.post_hooks) {
        for (const auto& hook : *node.post_hooks) hook();
        node.post_hooks.reset();
      }
      call.grads.clear();
      if (!retains_) {
        for (const unsigned i : slots) node.saved[i].reset();
        node.hooks.reset();
      }
    }
    node.seen = false;
    const Scoped<ModuleId> scope(context_.module, node.module);
    for (unsigned i = 0; i < node.edges.size(); ++i) {
      const Edge& edge = node.edges[i];
      if (!edge.function) continue;
      receive(edge, std::move(call.results[i]));
      if (--edge.function->dependencies == 0) push(edge.function);
    }
  }

  Context& context_;
  bool retains_;
  GraphTask graph_task_;
  std::vector<Ready> heap_;
  std::uint32_t pushed_ = 0;
};

}  // namespace

void backward(const Tensor& root, Tensor gradient, bool retain_graph) {
  Context& context = root.context();
  if (!root.requires_grad()) return;
  const Scoped<bool> in_backward(context.in_backward, true);
  const NoGrad no_grad(context);
  if (!gradient) gradient = empty(context, Op::ones_like, root.sizes(), root.dtype());
  Engine(context, retain_graph)
      .run(gradient_edge(root), gradient);  // Tensor.backward holds its gradient until it returns
}

}  // namespace oometer::autograd
