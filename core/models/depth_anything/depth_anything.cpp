#include "models/depth_anything/depth_anything.h"

#include <memory>

#include "ops/ops.h"
#include "ops/upsample.h"

namespace oometer {

namespace {

struct DepthAnythingHead {
  DepthAnythingHead(const Builder& builder, const DepthAnythingConfig& c)
      : patch_size(c.patch_size), is_metric(c.is_metric), module(builder.module) {
    const std::int64_t features = c.neck.fusion_hidden_size;
    conv1 = convolution3x3(builder.child("conv1", "Conv2d"), features, features / 2);
    conv2 = convolution3x3(builder.child("conv2", "Conv2d"), features / 2, c.head_hidden_size);
    conv3 = AnyConv2d(builder.child("conv3", "Conv2d"), c.head_hidden_size, 1, {});
  }

  Tensor operator()(const Tensor& argument, std::int64_t rows, std::int64_t columns) const {
    ModuleCall call(argument.context(), module);
    Tensor predicted_depth = conv1(call.argument(argument));
    predicted_depth = upsample_bilinear2d(predicted_depth, rows * patch_size, columns * patch_size);
    predicted_depth = conv2(predicted_depth);
    predicted_depth = relu(predicted_depth);
    predicted_depth = conv3(predicted_depth);
    {
      const Tensor activated = is_metric ? sigmoid(predicted_depth) : relu(predicted_depth);
      predicted_depth = mul_scalar(activated);
    }
    predicted_depth =
        reshape(predicted_depth, {predicted_depth.size(0), predicted_depth.size(2), predicted_depth.size(3)});
    return call.result(predicted_depth);
  }

  AnyConv2d conv1, conv2, conv3;
  std::int64_t patch_size;
  bool is_metric;
  ModuleId module;
};

class DepthAnything : public ImageModel {
 public:
  DepthAnything(Context& context, const DepthAnythingConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c.backbone, data, options),
        config_(c),
        backbone_(build_dinov2_backbone(root_.child("backbone", "Dinov2Backbone"), c.backbone, options)),
        neck_(root_.child("neck", c.neck.names->neck), c.neck),
        head_(root_.child("head", "DepthAnythingDepthEstimationHead"), c) {}

  ModelOutputs forward(const ModelInputs& inputs) override {
    const TensorList feature_maps = (*backbone_)(inputs.pixel_values, nullptr);
    const std::int64_t rows = inputs.pixel_values.size(2) / config_.patch_size,
                       columns = inputs.pixel_values.size(3) / config_.patch_size;
    const TensorList hidden_states = neck_(feature_maps, rows, columns);
    return {{}, {}, {head_(hidden_states[config_.head_index()], rows, columns)}};
  }

 private:
  DepthAnythingConfig config_;
  std::unique_ptr<const Dinov2Backbone> backbone_;
  DptNeck neck_;
  DepthAnythingHead head_;
};

}  // namespace

std::unique_ptr<Model> build_depth_anything(Context& context, const DepthAnythingConfig& config, const DataConfig& data,
                                            const ModelOptions& options) {
  return std::make_unique<DepthAnything>(context, config, data, options);
}

}  // namespace oometer
