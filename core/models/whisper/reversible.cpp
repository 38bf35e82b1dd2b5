#include "models/whisper/reversible.h"

#include <functional>
#include <memory>
#include <utility>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tensor/node.h"

namespace oometer {

namespace {

struct ReversibleLayer {
  const WhisperLayer& layer;
  bool f_is_layer;
  const Tensor &mask, &encoder_states;

  Tensor run(bool whole, const Tensor& hidden_states) const {
    const ModuleScope scope(hidden_states.context(), layer.module);
    return whole ? layer(hidden_states, mask, encoder_states) : (*layer.rev_adapter)(hidden_states);
  }
  Tensor f(const Tensor& hidden_states) const { return run(f_is_layer, hidden_states); }
  Tensor g(const Tensor& hidden_states) const { return run(!f_is_layer, hidden_states); }

  Tensor forward(const Tensor& hidden_states) const {
    const std::int64_t width = hidden_states.size(2) / 2;
    const Tensor x1 = slice(hidden_states, 2, 0, width), x2 = slice(hidden_states, 2, width, width);
    Tensor y2, g_outputs, y1, f_outputs;  // they go in the order in which Python binds them
    f_outputs = f(x2);
    {
      const Tensor scaled = mul_scalar(x1);
      y1 = add(scaled, f_outputs);
    }
    g_outputs = g(y1);
    {
      const Tensor scaled = mul_scalar(x2);
      y2 = add(scaled, g_outputs);
    }
    return cat({y2, y1}, 2);
  }

  /// A layer's outputs and their gradients become its inputs and theirs.
  void backward_pass(Tensor& y, Tensor& dy) const {
    Context& context = y.context();
    const std::int64_t width = y.size(2) / 2;
    Tensor x1, f_outputs, x2, g_outputs;
    Tensor y2 = slice(y, 2, 0, width), y1 = slice(y, 2, width, width);
    Tensor dy2 = slice(dy, 2, 0, width), dy1 = slice(dy, 2, width, width);
    {
      const Scoped<bool> grad(context.grad_mode, true);
      const Scoped<bool> flag(context.recomputing, true);
      y1->leaf_requires_grad = true;
      g_outputs = g(y1);
    }
    autograd::backward(g_outputs, dy2, true);
    {
      const Tensor difference = sub(y2, g_outputs);
      x2 = div_scalar(difference);
    }
    y2.reset();
    add_(dy1, y1->grad);
    y1->grad.reset();
    {
      const Scoped<bool> grad(context.grad_mode, true);
      const Scoped<bool> flag(context.recomputing, true);
      x2->leaf_requires_grad = true;
      f_outputs = f(x2);
    }
    autograd::backward(f_outputs, dy1);
    {
      const Tensor difference = sub(y1, f_outputs);
      x1 = div_scalar(difference);
    }
    y1.reset();
    dy2 = mul_scalar_(dy2);
    add_(dy2, x2->grad);
    x2->grad.reset();
    dy1 = mul_scalar_(dy1);
    x2 = detach(x2);
    Tensor inputs = cat({x1, x2}, 2), gradients = cat({dy1, dy2}, 2);
    // The frame's locals go before the caller binds its names again.
    dy1.reset();
    dy2.reset();
    g_outputs.reset();
    x2.reset();
    f_outputs.reset();
    x1.reset();
    y = std::move(inputs);
    dy = std::move(gradients);
  }
};

// RevBackProp, an autograd.Function
Tensor reversible(const std::vector<WhisperLayer>& layers, bool f_is_layer, const Tensor& argument, const Tensor& mask,
                  const Tensor& encoder_states) {
  Context& context = argument.context();
  Record record(Op::none, nullptr, {&argument, &encoder_states});
  Tensor hidden_states = argument;
  {
    const NoGrad no_grad(context);
    for (const WhisperLayer& layer : layers)
      hidden_states = ReversibleLayer{layer, f_is_layer, mask, encoder_states}.forward(hidden_states);
  }
  if (!record) return hidden_states;
  record.save(detach(hidden_states));
  if (encoder_states) record.save(encoder_states);
  record->custom = std::make_unique<std::function<void(Backward&)>>([&layers, f_is_layer, mask](Backward& b) {
    const NoGrad no_grad(b.context);
    Tensor y = b.saved(0), dy = b.grad(), states;
    if (b.saved(1)) {
      states = detach(b.saved(1));
      states->leaf_requires_grad = true;
    }
    for (std::size_t i = layers.size(); i-- > 0;)
      ReversibleLayer{layers[i], f_is_layer, mask, states}.backward_pass(y, dy);
    b.give(0, std::move(dy));
    if (states && b.wants(1)) b.give(1, states->grad);
  });
  return record.output(std::move(hidden_states));
}

}  // namespace

Tensor run_reversible(const std::vector<WhisperLayer>& layers, WhisperConfig::Reversible f_arch,
                      const Tensor& hidden_states, const Tensor& mask, const Tensor& encoder_states) {
  if (hidden_states.context().grad_mode && !hidden_states.requires_grad()) hidden_states->leaf_requires_grad = true;
  Tensor both = cat({hidden_states, hidden_states}, 2);
  both = reversible(layers, f_arch == WhisperConfig::Reversible::layer, both, mask, encoder_states);
  const std::int64_t width = hidden_states.size(2);
  const TensorList halves = split(both, {width, width}, 2);
  const Tensor sum = add(halves[0], halves[1]);
  return div_scalar(sum);
}

}  // namespace oometer
