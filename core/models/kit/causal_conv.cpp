#include "models/kit/causal_conv.h"

#include <utility>

#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/causal_conv1d.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Tensor apply_mask_to_padding_states(const Tensor& hidden_states, const Tensor& attention_mask) {
  if (!attention_mask) return hidden_states;
  const Tensor masked = mul(hidden_states, unsqueeze(attention_mask, 2));
  return to(masked, hidden_states.dtype());
}

CausalConv::CausalConv(const Builder& builder, std::int64_t channels, std::int64_t kernel, bool has_bias)
    : weight(builder.parameter("weight", {channels, 1, kernel})) {
  if (has_bias) bias = builder.parameter("bias", {channels});
}

Tensor CausalConv::operator()(const Tensor& x, std::optional<Activation> activation) const {
  const std::int64_t channels = x.size(1), length = x.size(2), kernel = weight.size(2);
  const Tensor squeezed = view(weight, {channels, kernel});
  if (has(x.context().behaviours.kernels, Kernels::causal_conv1d)) return causal_conv1d_fn(x, squeezed, bias);
  Tensor out;
  {
    const Tensor input = to(x, weight.dtype()), filters = unsqueeze(squeezed, 1);
    out = convolution(
        input, filters, bias,
        {.stride = {1}, .padding = {kernel - 1}, .dilation = {1}, .output_padding = {0}, .groups = channels});
  }
  out = slice(out, 2, 0, length);
  if (activation) out = activate(*activation, out);
  return to(out, x.dtype());
}

Tensor CausalConv::operator()(Tensor x, std::optional<Activation> activation, std::size_t layer) const {
  Context& context = x.context();
  if (context.modules) context.modules->read(weight);  // the module that has it is not called
  if (!context.past_key_values) return (*this)(x, activation);
  Tensor& conv_state = context.past_key_values->linear_states(layer).conv;
  if (conv_state) return update(x, conv_state, activation);
  const std::int64_t length = x.size(2), kernel = weight.size(2);
  conv_state = empty(context, Op::zeros, {x.size(0), x.size(1), kernel}, x.dtype(), Role::kv_cache);
  if (length < kernel) x = pad(x, 2, kernel - length);
  copy_in_place(conv_state, slice(x, 2, x.size(2) - kernel, kernel));
  const Tensor out = (*this)(x, activation);
  return slice(out, 2, out.size(2) - length, length);
}

Tensor CausalConv::update(const Tensor& x, const Tensor& conv_state, std::optional<Activation> activation) const {
  if (has(x.context().behaviours.kernels, Kernels::causal_conv1d)) return causal_conv1d_update(x, conv_state);
  const std::int64_t channels = x.size(1), length = x.size(2), kernel = weight.size(2);
  const Tensor squeezed = view(weight, {channels, kernel}), hidden_states_new = cat({conv_state, x}, -1);
  copy_in_place(conv_state, slice(hidden_states_new, 2, length, kernel));
  Tensor out = convolution(hidden_states_new, unsqueeze(squeezed, 1), bias,
                           {.stride = {1}, .padding = {0}, .dilation = {1}, .output_padding = {0}, .groups = channels});
  out = slice(out, 2, out.size(2) - length, length);
  if (activation) out = activate(*activation, out);
  return to(out, x.dtype());
}

}  // namespace oometer
