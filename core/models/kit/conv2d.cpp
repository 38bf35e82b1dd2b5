#include "models/kit/conv2d.h"

namespace oometer {

AnyConv2d::AnyConv2d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, const Options& o)
    : options{.stride = {o.stride, o.stride},
              .padding = {o.padding, o.padding},
              .dilation = {1, 1},
              .output_padding = {0, 0},
              .groups = o.groups},
      module(builder.module) {
  weight = builder.parameter("weight", {out_channels, in_channels / o.groups, o.kernel, o.kernel});
  if (o.bias) bias = builder.parameter("bias", {out_channels});
}

Tensor AnyConv2d::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(convolution(call.argument(x), weight, bias, options));
}

}  // namespace oometer
