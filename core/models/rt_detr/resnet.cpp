#include "models/rt_detr/resnet.h"

#include <utility>

#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

RTDetrResNetLayer::RTDetrResNetLayer(const Builder& builder, const ResNetConfig& c, std::int64_t in_channels,
                                     std::int64_t out_channels, std::int64_t stride, bool is_first, const char* frozen)
    : activation(c.hidden_act), module(builder.module) {
  has_shortcut = c.is_basic ? is_first : in_channels != out_channels || stride != 1;
  averages = c.is_basic ? in_channels != out_channels : stride == 2;
  Builder its = builder;
  if (averages) {
    its = builder.child("shortcut", "Sequential");
    outer = its.module;
    pool = its.child("", "AvgPool2d", 0).module;
    its = its.child("", "RTDetrResNetShortCut", 1);
  } else {
    its = builder.child("shortcut", has_shortcut ? "RTDetrResNetShortCut" : "Identity");
  }
  inner = its.module;
  if (has_shortcut) {
    shortcut = AnyConv2d(its.child("convolution", "Conv2d"), in_channels, out_channels,
                         {.kernel = 1, .stride = averages ? 1 : stride, .bias = false});
    shortcut_norm = ResNetNorm(its.child("normalization", frozen ? frozen : "BatchNorm2d"), out_channels, frozen);
  }
  const Builder layer = builder.child("layer", "Sequential");
  layer_module = layer.module;
  layers = make_resnet_layers(layer, "RTDetrResNetConvLayer", c, in_channels, out_channels, stride, frozen);
}

Tensor RTDetrResNetLayer::operator()(const Tensor& argument) const {
  Context& context = argument.context();
  ModuleCall call(context, module);
  Tensor residual = call.argument(argument);
  Tensor hidden_state = [&] {
    ModuleCall sequence(context, layer_module);
    Tensor input = sequence.argument(residual);
    for (const ResNetConvLayer& layer : layers) input = layer(input);
    return sequence.result(input);
  }();
  const auto projected = [&](const Tensor& x) {
    ModuleCall projection(context, inner);
    const Tensor convolved = shortcut(projection.argument(x));
    return projection.result(shortcut_norm(convolved));
  };
  if (averages) {
    ModuleCall sequence(context, outer);
    Tensor input = sequence.argument(residual);
    {
      ModuleCall pooling(context, pool);
      const Tensor x = pooling.argument(input);
      input = pooling.result(avg_pool(x, {x.size(0), x.size(1), (x.size(2) + 1) / 2, (x.size(3) + 1) / 2}));
    }
    residual = sequence.result(projected(input));
  } else if (has_shortcut) {
    residual = projected(residual);
  }
  hidden_state = add_in_place(hidden_state, residual);
  hidden_state = activate(activation, hidden_state);
  return call.result(hidden_state);
}

RTDetrResNetStage::RTDetrResNetStage(const Builder& builder, const ResNetConfig& c, std::size_t stage,
                                     const char* frozen)
    : module(builder.module) {
  const std::int64_t in = stage == 0 ? c.embedding_size : c.hidden_sizes[stage - 1], out = c.hidden_sizes[stage];
  const Builder sequence = builder.child("layers", "Sequential");
  layers.reserve(static_cast<std::size_t>(c.depths[stage]));
  for (std::int32_t i = 0; i < c.depths[stage]; ++i)
    layers.emplace_back(sequence.child("", c.is_basic ? "RTDetrResNetBasicLayer" : "RTDetrResNetBottleNeckLayer", i), c,
                        i == 0 ? in : out, out, i == 0 && (stage > 0 || c.downsample_in_first_stage) ? 2 : 1, i == 0,
                        frozen);
}

Tensor RTDetrResNetStage::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_state = call.argument(argument);
  for (const RTDetrResNetLayer& layer : layers) hidden_state = layer(hidden_state);
  return call.result(hidden_state);
}

RTDetrResNet::RTDetrResNet(const Builder& builder, const ResNetConfig& c, const char* frozen) : module(builder.module) {
  const Builder embeddings = builder.child("embedder", "RTDetrResNetEmbeddings"),
                its = embeddings.child("embedder", "Sequential");
  embedder_module = embeddings.module;
  sequential = its.module;
  const std::int64_t half = c.embedding_size / 2;
  const auto add_layer = [&](std::int32_t i, std::int64_t in, std::int64_t out, std::int64_t stride) {
    embedder.emplace_back(its.child("", "RTDetrResNetConvLayer", i), in, out, 3, stride, c.hidden_act, frozen);
  };
  embedder.reserve(3);
  add_layer(0, c.num_channels, half, 2);
  add_layer(1, half, half, 1);
  add_layer(2, half, c.embedding_size, 1);
  pooler = embeddings.child("pooler", "MaxPool2d").module;
  const Builder encoder_builder = builder.child("encoder", "RTDetrResNetEncoder");
  encoder = encoder_builder.module;
  stages.reserve(c.depths.size());
  for (std::size_t i = 0; i < c.depths.size(); ++i)
    stages.emplace_back(encoder_builder.child("stages", "RTDetrResNetStage", static_cast<std::int32_t>(i)), c, i,
                        frozen);
}

void RTDetrResNet::freeze_norms() {
  for (ResNetConvLayer& layer : embedder) layer.normalization.freeze();
  for (RTDetrResNetStage& stage : stages)
    for (RTDetrResNetLayer& layer : stage.layers) {
      if (layer.has_shortcut) layer.shortcut_norm.freeze();
      for (ResNetConvLayer& one : layer.layers) one.normalization.freeze();
    }
}

TensorList RTDetrResNet::operator()(const Tensor& argument) const {
  Context& context = argument.context();
  ModuleCall own(context, module);
  const Tensor pixel_values = own.argument(argument);
  check_pixels(pixel_values, embedder[0].convolution.weight);
  const Tensor embedding_output = [&] {
    ModuleCall call(context, embedder_module);
    Tensor embedding = [&] {
      ModuleCall sequence(context, sequential);
      Tensor input = sequence.argument(call.argument(pixel_values));
      for (const ResNetConvLayer& layer : embedder) input = layer(input);
      return sequence.result(input);
    }();
    {
      ModuleCall pooling(context, pooler);
      const Tensor x = pooling.argument(embedding);
      const auto pooled = [](std::int64_t side) { return (side - 1) / 2 + 1; };  // kernel 3, stride 2, padding 1
      embedding = pooling.result(max_pool(x, {x.size(0), x.size(1), pooled(x.size(2)), pooled(x.size(3))}));
    }
    return call.result(embedding);
  }();
  ModuleCall call(context, encoder);
  Tensor hidden_state = call.argument(embedding_output);
  TensorList hidden_states;
  for (const RTDetrResNetStage& stage : stages) {
    hidden_states.push_back(hidden_state);
    hidden_state = stage(hidden_state);
  }
  hidden_states.push_back(own.result(call.result(hidden_state)));
  return hidden_states;
}

}  // namespace oometer
