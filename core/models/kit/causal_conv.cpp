#include "models/kit/causal_conv.h"

#include "nn/activation.h"
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

}  // namespace oometer
