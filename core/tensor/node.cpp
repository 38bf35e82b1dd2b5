#include "tensor/node.h"

#include <algorithm>
#include <limits>

#include "tensor/kernel.h"
#include "tensor/save_on_cpu.h"

namespace oometer {

namespace {

bool any_requires_grad(std::initializer_list<const Tensor*> inputs) {
  for (const Tensor* input : inputs)
    if (*input && input->requires_grad()) return true;
  return false;
}

}  // namespace

Edge autograd::gradient_edge(const Tensor& tensor) {
  if (tensor->grad_fn) return {Handle<Node>(tensor->grad_fn), tensor->output_nr};
  if (!tensor->accumulator) {
    Context& context = tensor.context();
    Node* node = context.nodes().make();
    node->context = &context;
    node->op = Op::accumulate_grad;
    node->sequence_number = std::numeric_limits<std::uint64_t>::max();  // accumulate_grad.cpp: it runs first
    node->variable = tensor.get();
    retain(tensor.get());
    if (const StorageRecord* record = context.record(tensor)) node->module = record->module;
    tensor->accumulator = node;
  }
  return {Handle<Node>(tensor->accumulator), 0};
}

Record::Record(Op op, BackwardFunction function, std::initializer_list<const Tensor*> inputs)
    : op_(op), read_(read_of_inputs(op, inputs)) {
  Context& context = (*inputs.begin())->context();
  if (!context.grad_mode || !any_requires_grad(inputs)) return;
  start(op, function, context);
  for (const Tensor* input : inputs) add_edge(*input);
}

Record::Record(Op op, BackwardFunction function, const std::vector<Tensor>& inputs)
    : op_(op), read_(read_of_inputs(op, inputs)) {
  Context& context = inputs.front().context();
  bool wanted = false;
  for (const Tensor& input : inputs) wanted = wanted || input.requires_grad();
  if (!context.grad_mode || !wanted) return;
  start(op, function, context);
  for (const Tensor& input : inputs) add_edge(input);
}

void Record::start(Op op, BackwardFunction function, Context& context) {
  node_ = Handle<Node>(context.nodes().make());
  node_->context = &context;
  node_->op = op;
  node_->function = function;
  node_->module = context.module;
  node_->stream = context.stream;
  node_->sequence_number = context.sequence_number++;
  node_->outputs = 0;
}

void Record::add_edge(const Tensor& input) {
  node_->edges.push_back(input && input.requires_grad() ? autograd::gradient_edge(input) : Edge{});
}

void Record::save(const Tensor& tensor) {
  if (node_) save(tensor, node_->saved_count);
}

void Record::save(const Tensor& tensor, unsigned slot) {
  if (!node_) return;
  node_->saved_count = static_cast<std::uint8_t>(std::max<unsigned>(node_->saved_count, slot + 1));
  Context& context = *node_->context;
  if (context.stopped) return;
  if (context.saves_on != SavesOn::device && !context.saved_tensor_hooks) {
    node_->saved[slot] = pack_to_cpu(tensor);
    node_->on_host = static_cast<std::uint16_t>(node_->on_host | 1U << slot);
    return;
  }
  if (StorageRecord* record = context.record(tensor)) record->saved = true;
  if (SavedTensorHooks* hooks = context.saved_tensor_hooks) return hooks->pack(*node_.get(), slot, tensor);
  node_->saved[slot] = tensor;
}

void Record::save_output(const Tensor& tensor) {
  if (node_) save(detach(tensor));
}

void Record::save_output(const Tensor& tensor, unsigned slot) {
  if (node_) save(detach(tensor), slot);
}

void Record::skip() {
  if (node_) ++node_->saved_count;
}

Tensor Record::output(Tensor tensor) {
  if (read_ != kNotTold) reads(op_, tensor, read_);
  if (!node_) return tensor;
  tensor->grad_fn = node_.get();
  retain(node_.get());
  tensor->output_nr = node_->outputs++;
  node_->metadata.push_back({tensor.sizes(), tensor.dtype()});
  return tensor;
}

Tensor hook_gradient(const Tensor& tensor, ModuleId module, bool is_result) {
  const BackwardFunction run = [](Backward& b) {
    const auto of = static_cast<ModuleId>(b.node.integers[0]);
    b.node.integers[1] != 0 ? b.context.modules->before_backward(of) : b.context.modules->after_backward(of);
    b.give(0, std::move(b.grads[0]));
  };
  if (!tensor.context().modules->hears(module)) return tensor;
  Record record(Op::none, run, {&tensor});
  if (!record) return tensor;
  record->integers[0] = module;
  record->integers[1] = is_result;
  return record.output(detach(tensor));
}

}  // namespace oometer
