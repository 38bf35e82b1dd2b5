#include "models/resnet/timm_resnet.h"

#include <utility>

#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

constexpr TimmResNetConfig kNetworks[] = {{"resnet18", true, {2, 2, 2, 2}},
                                          {"resnet34", true, {3, 4, 6, 3}},
                                          {"resnet50", false, {3, 4, 6, 3}},
                                          {"resnet101", false, {3, 4, 23, 3}},
                                          {"resnet152", false, {3, 8, 36, 3}}};

Tensor relu_in_place(const Tensor& x) { return activation_of_result(Op::relu, Op::threshold_backward, x, true); }

}  // namespace

ResNetConfig TimmResNetConfig::sizes(std::int64_t num_channels) const {
  ResNetConfig c;
  c.num_channels = num_channels;
  c.is_basic = is_basic;
  for (std::size_t i = 0; i < 4; ++i) {
    c.depths[i] = depths[i];
    c.hidden_sizes[i] = channels(i + 1);
  }
  return c;
}

const TimmResNetConfig* find_timm_resnet(std::string_view name) {
  for (const TimmResNetConfig& one : kNetworks)
    if (name == one.name) return &one;
  return nullptr;
}

TimmResNetBlock::TimmResNetBlock(const Builder& builder, const TimmResNetConfig& c, std::int64_t inplanes,
                                 std::int64_t planes, std::int64_t stride, std::int64_t first_dilation,
                                 std::int64_t dilation, bool downsamples, const char* frozen)
    : module(builder.module) {
  const std::int64_t out = planes * c.expansion();
  // The names first, as they are registered; what downsamples is made before the block is.
  std::vector<Builder> conv_names, norm_names;
  static constexpr const char* kConvs[] = {"conv1", "conv2", "conv3"};
  static constexpr const char* kNorms[] = {"bn1", "bn2", "bn3"};
  const std::size_t count = c.is_basic ? 2 : 3;
  for (std::size_t i = 0; i < count; ++i) {
    conv_names.push_back(builder.child(kConvs[i], "Conv2d"));
    norm_names.push_back(builder.child(kNorms[i], frozen));
  }
  if (downsamples) {
    const Builder sequential = builder.child("downsample", "Sequential");
    downsample_module = sequential.module;
    downsample.emplace(sequential.child("", "Conv2d", 0), inplanes, out,
                       AnyConv2d::Options{.stride = stride, .bias = false});
    downsample_norm = ResNetNorm(sequential.child("", frozen, 1), out, frozen);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_3x3 = c.is_basic || i == 1;
    const std::int64_t to = i + 1 == count ? out : planes;
    const bool strides = c.is_basic ? i == 0 : i == 1;
    const std::int64_t dilated = strides ? first_dilation : dilation;
    convs.emplace_back(
        conv_names[i], i == 0 ? inplanes : planes, to,
        AnyConv2d::Options{
            .kernel = is_3x3 ? 3 : 1, .stride = strides ? stride : 1, .padding = is_3x3 ? dilated : 0, .bias = false});
    if (is_3x3) convs.back().options.dilation = {dilated, dilated};
    norms.emplace_back(norm_names[i], to, frozen);
  }
}

Tensor TimmResNetBlock::operator()(const Tensor& argument) const {
  Context& context = argument.context();
  ModuleCall call(context, module);
  Tensor shortcut = call.argument(argument);
  Tensor x = shortcut;
  for (std::size_t i = 0; i < convs.size(); ++i) {
    x = convs[i](x);
    x = norms[i](x);
    if (i + 1 < convs.size()) x = relu_in_place(x);
  }
  if (downsample) {
    ModuleCall projection(context, downsample_module);
    const Tensor projected = (*downsample)(projection.argument(shortcut));
    shortcut = projection.result(downsample_norm(projected));
  }
  x = add_in_place(x, shortcut);
  return call.result(relu_in_place(x));
}

TimmResNet::TimmResNet(const Builder& builder, const TimmResNetConfig& c, std::int64_t num_channels,
                       std::int64_t output_stride, const char* frozen)
    : conv1(builder.child("conv1", "Conv2d"), num_channels, 64,
            {.kernel = 7, .stride = 2, .padding = 3, .bias = false}),
      bn1(builder.child("bn1", frozen), 64, frozen) {
  static constexpr const char* kLayers[] = {"layer1", "layer2", "layer3", "layer4"};
  std::int64_t inplanes = 64, net_stride = 4, dilation = 1, prev_dilation = 1;
  for (std::size_t i = 0; i < 4; ++i) {
    const Builder layer = builder.child(kLayers[i], "Sequential");
    layer_modules.push_back(layer.module);
    const std::int64_t planes = std::int64_t{64} << i;
    std::int64_t stride = i == 0 ? 1 : 2;
    if (net_stride >= output_stride) {
      dilation *= stride;
      stride = 1;
    } else {
      net_stride *= stride;
    }
    std::vector<TimmResNetBlock> blocks;
    blocks.reserve(static_cast<std::size_t>(c.depths[i]));
    for (std::int32_t j = 0; j < c.depths[i]; ++j) {
      const bool downsamples = j == 0 && (stride != 1 || inplanes != planes * c.expansion());
      blocks.emplace_back(layer.child("", c.is_basic ? "BasicBlock" : "Bottleneck", j), c, inplanes, planes,
                          j == 0 ? stride : 1, prev_dilation, dilation, downsamples, frozen);
      prev_dilation = dilation;
      inplanes = planes * c.expansion();
    }
    layers.push_back(std::move(blocks));
  }
}

void TimmResNet::freeze() {
  bn1.freeze();
  for (auto& layer : layers)
    for (TimmResNetBlock& block : layer) {
      for (ResNetNorm& norm : block.norms) norm.freeze();
      if (block.downsample) block.downsample_norm.freeze();
    }
}

TensorList TimmResNet::operator()(const Tensor& pixel_values) const {
  check_pixels(pixel_values, conv1.weight);
  Tensor x = conv1(pixel_values);
  x = bn1(x);
  x = relu_in_place(x);
  const auto pooled = [](std::int64_t side) { return (side - 1) / 2 + 1; };  // kernel 3, stride 2, padding 1
  x = max_pool(x, {x.size(0), x.size(1), pooled(x.size(2)), pooled(x.size(3))});
  TensorList out;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    ModuleCall call(x.context(), layer_modules[i]);
    Tensor input = call.argument(x);
    for (const TimmResNetBlock& block : layers[i]) input = block(input);
    x = call.result(input);
    out.push_back(x);
  }
  return out;
}

}  // namespace oometer
