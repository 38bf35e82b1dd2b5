#include "models/kit/norms.h"

#include <utility>

#include "models/llama/llama.h"
#include "ops/ops.h"

namespace oometer {

Norm::Norm(const Builder& builder_in, Forward its_forward, const Shape& sizes, bool with_bias)
    : forward(its_forward), module(builder_in.module) {
  Builder builder = builder_in;
  builder.in_norm = its_forward == torch_layer_norm || its_forward == layer_norm_one_plus ||
                    is_named_norm(builder.context->log.modules[module].name);
  weight = builder.parameter("weight", sizes);
  if (with_bias) bias = builder.parameter("bias", sizes);
}

namespace {

/// x * rsqrt(mean(x²) + eps), in float32.
Tensor normalized(const Tensor& hidden_in) {
  const Tensor hidden_states = to(hidden_in, DType::float32);
  Tensor scale = pow(hidden_states, 2);
  scale = mean(scale, -1, true);
  scale = add_scalar(scale);
  scale = rsqrt(scale);
  return mul(hidden_states, scale);
}

}  // namespace

Tensor rms_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor hidden_in = call.argument(argument);
  Tensor hidden_states = to(hidden_in, DType::float32);
  Tensor variance = pow(hidden_states, 2);
  variance = mean(variance, -1, true);
  Tensor scale = add_scalar(variance);
  scale = rsqrt(scale);
  hidden_states = mul(hidden_states, scale);
  scale.reset();
  const Tensor cast = to(hidden_states, hidden_in.dtype());
  return call.result(mul(norm.weight, cast));
}

namespace {

Tensor rms_norm_in_float32(const Norm& norm, const Tensor& argument, bool casts_weight) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor hidden_in = call.argument(argument);
  Tensor variance;  // of the two names the last to go
  Tensor hidden_states = to(hidden_in, DType::float32);
  variance = pow(hidden_states, 2);
  variance = mean(variance, -1, true);
  Tensor scale = add_scalar(variance);
  scale = rsqrt(scale);
  {
    Tensor scaled = mul(hidden_states, scale);
    scale.reset();  // before the states that were
    hidden_states = std::move(scaled);
  }
  Tensor weight = casts_weight ? to(norm.weight, DType::float32) : norm.weight;
  const Tensor weighted = mul(weight, hidden_states);
  weight.reset();
  return call.result(to(weighted, hidden_in.dtype()));
}

}  // namespace

Tensor rms_norm_float32(const Norm& norm, const Tensor& argument) { return rms_norm_in_float32(norm, argument, false); }

Tensor rms_norm_cast_weight(const Norm& norm, const Tensor& argument) {
  return rms_norm_in_float32(norm, argument, true);
}

Tensor rms_norm_one_plus(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor x = call.argument(argument);
  Tensor output = normalized(x);
  Tensor factor = to(norm.weight, DType::float32);
  factor = add_scalar(factor);
  output = mul(output, factor);
  factor.reset();
  return call.result(to(output, x.dtype()));
}

Tensor rms_norm_by_pow(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor hidden_states = call.argument(argument);
  Tensor normed_output;
  {
    Tensor mean_squared;  // of the two names the last to go
    const Tensor in_float32 = to(hidden_states, DType::float32);
    mean_squared = pow(in_float32, 2);
    mean_squared = mean(mean_squared, -1, true);
    mean_squared = add_scalar(mean_squared);
    const Tensor scale = pow(mean_squared, -0.5);
    normed_output = mul(in_float32, scale);
  }
  if (norm.weight) {
    Tensor weight = to(norm.weight, DType::float32);
    Tensor weighted = mul(normed_output, weight);
    weight.reset();  // before the output that was
    normed_output = std::move(weighted);
  }
  return call.result(to(normed_output, hidden_states.dtype()));
}

Tensor l2_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor x = call.argument(argument);
  Tensor normed;
  {
    const Tensor as_float = to(x, DType::float32);
    Tensor scale = pow(as_float, 2);
    scale = mean(scale, -1, true);
    scale = add_scalar(scale);
    scale = rsqrt(scale);
    normed = mul(as_float, scale);
  }
  return call.result(to(normed, x.dtype()));
}

Tensor cohere_layer_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor hidden_in = call.argument(argument);
  Tensor hidden_states = to(hidden_in, DType::float32);
  const Tensor average = mean(hidden_states, -1, true);
  Tensor variance = sub(hidden_states, average);
  variance = pow(variance, 2);
  variance = mean(variance, -1, true);
  {
    const Tensor centred = sub(hidden_states, average);
    Tensor scale = add_scalar(variance);
    scale = rsqrt(scale);
    hidden_states = mul(centred, scale);
  }
  {
    const Tensor weight = to(norm.weight, DType::float32);
    hidden_states = mul(weight, hidden_states);
  }
  return call.result(to(hidden_states, hidden_in.dtype()));
}

Tensor layer_norm_one_plus(const Norm& norm, const Tensor& argument) {
  Context& context = argument.context();
  ModuleCall call(context, norm.module);
  Tensor input = call.argument(argument), weight = add_scalar(norm.weight), bias = norm.bias;
  if (context.autocast.enabled) {  // _cast_if_autocast_enabled
    const DType lower = context.autocast.dtype;
    input = to(input, lower);
    const Tensor cast = to(weight, lower);
    bias = to(bias, lower);
    weight = cast;
  }
  const Scoped<bool> without_autocast(context.autocast.enabled, false);
  return call.result(layer_norm(input, weight, bias));
}

Tensor liger_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  return call.result(liger_rms_norm(call.argument(argument), norm.weight));
}

Tensor liger_norm_apart(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  return call.result(liger_rms_norm(call.argument(argument), norm.weight, false));
}

Tensor torch_layer_norm(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  return call.result(layer_norm(call.argument(argument), norm.weight, norm.bias));
}

}  // namespace oometer
