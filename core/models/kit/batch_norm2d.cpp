#include "models/kit/batch_norm2d.h"

#include "ops/vision.h"

namespace oometer {

BatchNorm2d::BatchNorm2d(const Builder& builder, std::int64_t channels) : module(builder.module) {
  weight = builder.parameter("weight", {channels});
  bias = builder.parameter("bias", {channels});
  for (int i = 0; i < 2; ++i) builder.buffer({channels}, builder.dtype);  // running_mean, running_var
  builder.buffer({}, DType::int64);                                       // num_batches_tracked
}

Tensor BatchNorm2d::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(batch_norm(call.argument(x), weight, bias, x.context().training));
}

}  // namespace oometer
