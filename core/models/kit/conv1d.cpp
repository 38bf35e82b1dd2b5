#include "models/kit/conv1d.h"

namespace oometer {

Conv1d::Conv1d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, const Options& o)
    : options{.stride = {1}, .padding = {o.padding}, .dilation = {1}, .output_padding = {0}, .groups = o.groups},
      module(builder.module) {
  weight = builder.parameter("weight", {out_channels, in_channels / o.groups, o.kernel});
  if (o.bias) bias = builder.parameter("bias", {out_channels});
}

Tensor Conv1d::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(convolution(call.argument(x), weight, bias, options));
}

BatchNorm1d::BatchNorm1d(const Builder& builder, std::int64_t channels) : module(builder.module) {
  weight = builder.parameter("weight", {channels});
  bias = builder.parameter("bias", {channels});
  for (int i = 0; i < 2; ++i) builder.buffer({channels}, builder.dtype);  // running_mean, running_var
  builder.buffer({}, DType::int64);                                       // num_batches_tracked
}

Tensor BatchNorm1d::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(batch_norm(call.argument(x), weight, bias, x.context().training));
}

}  // namespace oometer
