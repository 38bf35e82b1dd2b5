#pragma once

#include "nn/module.h"
#include "ops/liger.h"
#include "tensor/shape.h"

/// Norms of language models that are not Llama's.
namespace oometer {

/// A norm's parameters, and what its class does with them.
struct Norm {
  using Forward = Tensor (*)(const Norm& norm, const Tensor& hidden_states);

  Norm() = default;
  /// `sizes`: of the weight.
  Norm(const Builder& builder, Forward its_forward, const Shape& sizes, bool with_bias = false);
  /// One without parameters.
  Norm(const Builder& builder, Forward its_forward) : forward(its_forward), module(builder.module) {}
  Tensor operator()(const Tensor& hidden_states) const { return forward(*this, hidden_states); }
  explicit operator bool() const { return forward != nullptr; }

  Tensor weight, bias;
  Forward forward = nullptr;
  ModuleId module = 0;
};

/// LlamaRMSNorm.forward: the weight is multiplied in the model's type.
Tensor rms_norm(const Norm& norm, const Tensor& hidden_states);
/// Olmo2RMSNorm.forward: it is multiplied in float32, before the cast.
Tensor rms_norm_float32(const Norm& norm, const Tensor& hidden_states);
/// HeliumRMSNorm.forward: the same, with a copy of the weight in float32.
Tensor rms_norm_cast_weight(const Norm& norm, const Tensor& hidden_states);
/// GemmaRMSNorm.forward: the weight is stored without the one that it is more.
Tensor rms_norm_one_plus(const Norm& norm, const Tensor& hidden_states);
/// Gemma4RMSNorm.forward: mean ** -0.5 in place of rsqrt, the weight in float32; there may be none.
Tensor rms_norm_by_pow(const Norm& norm, const Tensor& hidden_states);
/// Llama4TextL2Norm.forward, NanoChatRMSNorm.forward: there is no weight.
Tensor l2_norm(const Norm& norm, const Tensor& hidden_states);
/// CohereLayerNorm.forward: mean and variance operator by operator, in float32.
Tensor cohere_layer_norm(const Norm& norm, const Tensor& hidden_states);
/// NemotronLayerNorm1P.forward: nn.LayerNorm with a weight that is stored without the one that it is more.
Tensor layer_norm_one_plus(const Norm& norm, const Tensor& hidden_states);
/// LigerRMSNorm: the gradient of its input is written over that of its output. `_apart`: in_place=False.
Tensor liger_norm(const Norm& norm, const Tensor& hidden_states);
Tensor liger_norm_apart(const Norm& norm, const Tensor& hidden_states);
/// What is in a norm's place where Liger's kernels may be.
inline Norm::Forward norm_of(const LigerConfig& liger, Norm::Forward its_own, Norm::Forward patched = liger_norm) {
  return liger.rms_norm ? patched : its_own;
}
/// nn.LayerNorm.
Tensor torch_layer_norm(const Norm& norm, const Tensor& hidden_states);

}  // namespace oometer
