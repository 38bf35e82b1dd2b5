#include "autograd/checkpoint.h"

#include "autograd/engine.h"
#include "tensor/save_on_cpu.h"

namespace oometer {

void CheckpointFrame::pack(Node& node, unsigned slot, const Tensor& tensor) {
  if (!recomputing) {
    node.hooks = Handle<SavedTensorHooks>(this);
    node.promised = static_cast<std::uint16_t>(node.promised | 1U << slot);
    node.packed[slot] = packed++;
    return;
  }
  // _recomputation_hook: the frame keeps the tensor, for nodes that are still there, and so does this inner graph,
  // which is never run. A hook is given what is no view (SavedVariable::set_hooks_and_pack_data).
  const Tensor kept = tensor.requires_grad() || tensor->base ? detach(tensor) : tensor;
  node.saved[slot] = kept;
  const bool is_forgotten = recomputed_count < forgotten.size() && forgotten[recomputed_count];
  tensors.push_back(is_forgotten ? Tensor() : kept);
  if (++recomputed_count == packed) context->stopped = context->behaviours.checkpoint_early_stop;
}

Tensor CheckpointFrame::unpack(const Node& node, unsigned slot) {
  if (!recomputed) {
    recomputing = true;
    tensors.reserve(packed);
    {
      const Scoped<bool> grad(context->grad_mode, true);
      const Scoped<bool> flag(context->recomputing, true);
      const Scoped<SavedTensorHooks*> hooks(context->saved_tensor_hooks, this);
      const ModuleScope scope(*context, module);
      const Tensor input = input_saver        ? detach(input_saver->hooks->unpack(*input_saver, 0))
                           : argument_on_host ? unpack_from_cpu(argument)
                                              : argument;  // unpack_hook's `args`
      if (input_saver || argument_on_host) input->leaf_requires_grad = argument_requires_grad;
      const AutocastRegion region(*context, autocast);
      function(input);
      // Everything that the region's code still held has gone by now, as when _StopRecomputationError unwinds its
      // frames.
    }
    context->stopped = false;
    recomputing = false;
    recomputed = true;
  }
  return std::move(tensors[node.packed[slot]]);
}

void CheckpointFrame::forget(const Node& node) {
  if (recomputed) return;
  forgotten.resize(packed, false);
  for (unsigned slot = 0; node.promised >> slot != 0; ++slot)
    if (node.promised >> slot & 1U) forgotten[node.packed[slot]] = true;
}

namespace {

// CheckpointFunction.forward: the region runs without a graph; its inputs are what is saved.
Tensor reentrant(const Tensor& argument, std::function<Tensor(const Tensor&)> function, bool positional,
                 const TensorList& nested, const std::shared_ptr<Tensor>& second) {
  const Tensor second_argument = second ? *second : Tensor();
  Record record(Op::none, nullptr, {&argument, &second_argument});
  Context& context = argument.context();
  Tensor result;
  {
    const NoGrad no_grad(context);
    result = function(argument);
  }
  if (!record) return result;
  record.save(argument);
  if (second) record.save(second_argument);
  auto recompute = [function = std::move(function), positional, nested, second, module = context.module,
                    autocast = context.autocast.enabled](Backward& b) mutable {
    Tensor detached = detach(b.saved(0));
    detached->leaf_requires_grad = b.wants(0);
    if (second) {
      *second = detach(b.saved(1));
      (*second)->leaf_requires_grad = b.wants(1);
    }
    Tensor output;
    {
      const Scoped<bool> grad(b.context.grad_mode, true);
      const Scoped<bool> flag(b.context.recomputing, true);
      const ModuleScope scope(b.context, module);
      const AutocastRegion region(b.context, autocast);
      output = function(detached);
    }
    if (!output.requires_grad())
      b.context.refusal = Error{"inconsistent", "/training/no_grad",
                                "found modules whose output is that of a reentrant checkpoint, at which PyTorch fails "
                                "with \"none of output has requires_grad=True, this checkpoint() is not necessary\"; "
                                "expected activation_checkpointing \"non-reentrant\""};
    autograd::backward(output, b.grad());
    if (b.wants(0)) b.give(0, detached->grad);
    if (second && b.wants(1)) b.give(1, (*second)->grad);
    if (second) second->reset();
    // Saved tensors go with the backward's end; a closure goes with the node.
    if (positional) function = nullptr;
  };
  record->custom = std::make_unique<std::function<void(Backward&)>>(std::move(recompute));
  return record.output(std::move(result));
}

}  // namespace

Tensor checkpoint(CheckpointMode mode, const Tensor& argument, std::function<Tensor(const Tensor&)> function,
                  bool positional, const TensorList& nested, const std::shared_ptr<Tensor>& second) {
  if (mode == CheckpointMode::reentrant) return reentrant(argument, std::move(function), positional, nested, second);
  Context& context = argument.context();
  // Without a graph the region is just run: _NoopSaveInputs leaves no grad_fn.
  if (mode == CheckpointMode::none || !context.grad_mode) return function(argument);

  const Handle<CheckpointFrame> frame(new CheckpointFrame);
  frame->context = &context;
  frame->argument_on_host = context.saves_on != SavesOn::device && !context.saved_tensor_hooks;
  frame->argument_requires_grad = argument.requires_grad();
  if (SavedTensorHooks* const around = context.saved_tensor_hooks) {
    frame->input_saver = Handle<Node>(context.nodes().make());
    frame->input_saver->context = &context;
    around->pack(*frame->input_saver, 0, argument);
  } else {
    frame->argument = frame->argument_on_host ? pack_to_cpu(argument) : argument;
  }
  frame->module = context.module;
  frame->autocast = context.autocast.enabled;
  frame->function = std::move(function);
  if (StorageRecord* record = context.record(argument); record && !frame->argument_on_host) record->saved = true;
  const Scoped<SavedTensorHooks*> hooks(context.saved_tensor_hooks, frame.get());
  return frame->function(argument);
}

}  // namespace oometer
