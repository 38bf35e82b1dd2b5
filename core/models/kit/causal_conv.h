#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "config/activation.h"
#include "nn/module.h"

/// Convolutions over the tokens that came before, a channel each (transformers 5.23, causal_conv1d_fn and kin).
namespace oometer {

/// hidden_states * attention_mask[:, :, None]; themselves where there is no padding (apply_mask_to_padding_states).
Tensor apply_mask_to_padding_states(const Tensor& hidden_states, const Tensor& attention_mask);

/// nn.Conv1d with a group a channel and padding on both sides, of which forward takes the first tokens.
struct CausalConv {
  CausalConv() = default;
  CausalConv(const Builder& builder, std::int64_t channels, std::int64_t kernel, bool has_bias);

  /// causal_conv1d_fn(x, weight.squeeze(1), bias, activation), by the package of that name where it is installed
  /// (Kernels): x [b, channels, s].
  Tensor operator()(const Tensor& x, std::optional<Activation> activation) const;
  /// The same of a layer's new tokens, where generation has a cache (Context::past_key_values): behind those before,
  /// which it keeps (Cache.update_conv_state, causal_conv1d_update).
  Tensor operator()(Tensor x, std::optional<Activation> activation, std::size_t layer) const;

  Tensor weight, bias;

 private:
  Tensor update(const Tensor& x, const Tensor& conv_state, std::optional<Activation> activation) const;
};

}  // namespace oometer
