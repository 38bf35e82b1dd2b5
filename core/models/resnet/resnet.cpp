#include "models/resnet/resnet.h"

#include <utility>

#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

Builder norm_of(const Builder& parent, const char* frozen) {
  return parent.child("normalization", frozen ? frozen : "BatchNorm2d");
}

}  // namespace

ResNetNorm::ResNetNorm(const Builder& own, std::int64_t channels, const char* frozen) : module(own.module) {
  if (!frozen) {
    norm.emplace(own, channels);
    return;
  }
  const ModuleScope scope(*own.context, module);
  for (int i = 0; i < 2; ++i)
    replaced.push_back(empty(*own.context, Op::parameter, {channels}, own.dtype, Role::parameter));
  for (int i = 0; i < 2; ++i) replaced.push_back(empty(*own.context, Op::buffer, {channels}, own.dtype, Role::buffer));
  replaced.push_back(empty(*own.context, Op::buffer, {}, DType::int64, Role::buffer));
  builder = own;
}

void ResNetNorm::freeze() {
  const Shape channels = replaced[0].sizes();
  for (Tensor* buffer : {&weight, &bias, &running_mean, &running_var})
    *buffer = builder.buffer(channels, builder.dtype);
  replaced.clear();
}

Tensor ResNetNorm::operator()(const Tensor& argument) const {
  if (norm) return (*norm)(argument);
  // DetrFrozenBatchNorm2d.forward
  ModuleCall call(argument.context(), module);
  const Tensor x = call.argument(argument);
  const Shape sizes{1, weight.size(0), 1, 1};
  const Tensor own_weight = reshape(weight, sizes), mean = reshape(running_mean, sizes);
  const Tensor scale = [&] {
    Tensor root = add_scalar(reshape(running_var, sizes));
    root = rsqrt(root);
    return mul(own_weight, root);
  }();
  const Tensor own_bias = [&] {
    const Tensor shift = mul(mean, scale);
    return sub(reshape(bias, sizes), shift);
  }();
  const Tensor scaled = mul(x, scale);
  return call.result(add(scaled, own_bias));
}

ResNetConvLayer::ResNetConvLayer(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels,
                                 std::int64_t kernel_size, std::int64_t stride, std::optional<Activation> its,
                                 const char* frozen)
    : convolution(builder.child("convolution", "Conv2d"), in_channels, out_channels,
                  {.kernel = kernel_size, .stride = stride, .padding = kernel_size / 2, .bias = false}),
      normalization(norm_of(builder, frozen), out_channels, frozen),
      activation(its),
      module(builder.module) {}

Tensor ResNetConvLayer::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = convolution(call.argument(argument));
  hidden_states = normalization(hidden_states);
  if (activation) hidden_states = activate(*activation, hidden_states);
  return call.result(hidden_states);
}

std::vector<ResNetConvLayer> make_resnet_layers(const Builder& sequence, const char* type, const ResNetConfig& c,
                                                std::int64_t in_channels, std::int64_t out_channels,
                                                std::int64_t stride, const char* frozen) {
  std::vector<ResNetConvLayer> layers;
  layers.reserve(3);
  const auto add_layer = [&](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t its_stride,
                             bool activates) {
    const auto i = static_cast<std::int32_t>(layers.size());
    // The layers' own activation is the class's default, whatever the config's.
    layers.emplace_back(sequence.child("", type, i), in, out, kernel, its_stride,
                        activates ? std::optional(Activation::relu) : std::nullopt, frozen);
  };
  if (c.is_basic) {
    add_layer(in_channels, out_channels, 3, stride, true);
    add_layer(out_channels, out_channels, 3, 1, false);
    return layers;
  }
  const std::int64_t reduced = out_channels / 4;
  add_layer(in_channels, reduced, 1, c.downsample_in_bottleneck ? stride : 1, true);
  add_layer(reduced, reduced, 3, c.downsample_in_bottleneck ? 1 : stride, true);
  add_layer(reduced, out_channels, 1, 1, false);
  return layers;
}

ResNetLayer::ResNetLayer(const Builder& builder, const ResNetConfig& c, std::int64_t in_channels,
                         std::int64_t out_channels, std::int64_t stride, const char* frozen)
    : has_shortcut(in_channels != out_channels || stride != 1), activation(c.hidden_act), module(builder.module) {
  const Builder its = builder.child("shortcut", has_shortcut ? "ResNetShortCut" : "Identity");
  shortcut_module = its.module;
  if (has_shortcut) {
    shortcut = AnyConv2d(its.child("convolution", "Conv2d"), in_channels, out_channels,
                         {.kernel = 1, .stride = stride, .bias = false});
    shortcut_norm = ResNetNorm(norm_of(its, frozen), out_channels, frozen);
  }
  const Builder layer = builder.child("layer", "Sequential");
  layer_module = layer.module;
  layers = make_resnet_layers(layer, "ResNetConvLayer", c, in_channels, out_channels, stride, frozen);
}

Tensor ResNetLayer::operator()(const Tensor& argument) const {
  Context& context = argument.context();
  ModuleCall call(context, module);
  Tensor residual = call.argument(argument);
  Tensor hidden_state = [&] {
    ModuleCall sequential(context, layer_module);
    Tensor input = sequential.argument(residual);
    for (const ResNetConvLayer& layer : layers) input = layer(input);
    return sequential.result(input);
  }();
  if (has_shortcut) {
    ModuleCall projection(context, shortcut_module);
    const Tensor projected = shortcut(projection.argument(residual));
    residual = projection.result(shortcut_norm(projected));
  }
  hidden_state = add_in_place(hidden_state, residual);
  hidden_state = activate(activation, hidden_state);
  return call.result(hidden_state);
}

ResNetStage::ResNetStage(const Builder& builder, const ResNetConfig& c, std::size_t stage, const char* frozen)
    : module(builder.module) {
  const std::int64_t in = stage == 0 ? c.embedding_size : c.hidden_sizes[stage - 1], out = c.hidden_sizes[stage];
  const Builder sequential = builder.child("layers", "Sequential");
  layers.reserve(static_cast<std::size_t>(c.depths[stage]));
  for (std::int32_t i = 0; i < c.depths[stage]; ++i)
    layers.emplace_back(sequential.child("", c.is_basic ? "ResNetBasicLayer" : "ResNetBottleNeckLayer", i), c,
                        i == 0 ? in : out, out, i == 0 && (stage > 0 || c.downsample_in_first_stage) ? 2 : 1, frozen);
}

Tensor ResNetStage::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_state = call.argument(argument);
  for (const ResNetLayer& layer : layers) hidden_state = layer(hidden_state);
  return call.result(hidden_state);
}

ResNetBody::ResNetBody(const Builder& builder, const ResNetConfig& c, const char* frozen) {
  const Builder embeddings = builder.child("embedder", "ResNetEmbeddings");
  embedder_module = embeddings.module;
  embedder.emplace(embeddings.child("embedder", "ResNetConvLayer"), c.num_channels, c.embedding_size, 7, 2,
                   c.hidden_act, frozen);
  pooler = embeddings.child("pooler", "MaxPool2d").module;
  const Builder its = builder.child("encoder", "ResNetEncoder");
  encoder = its.module;
  stages.reserve(c.depths.size());
  for (std::size_t i = 0; i < c.depths.size(); ++i)
    stages.emplace_back(its.child("stages", "ResNetStage", static_cast<std::int32_t>(i)), c, i, frozen);
}

void ResNetBody::freeze(std::vector<Parameter>& parameters) {
  embedder->normalization.freeze();
  for (ResNetStage& stage : stages)
    for (ResNetLayer& layer : stage.layers) {
      if (layer.has_shortcut) layer.shortcut_norm.freeze();
      for (ResNetConvLayer& one : layer.layers) one.normalization.freeze();
    }
  for (const Parameter& parameter : parameters) parameter.tensor->leaf_requires_grad = false;
}

TensorList ResNetBody::operator()(const Tensor& argument, bool output_hidden_states) const {
  Context& context = argument.context();
  check_pixels(argument, embedder->convolution.weight);
  const Tensor embedding_output = [&] {
    ModuleCall call(context, embedder_module);
    Tensor embedding = (*embedder)(call.argument(argument));
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
  for (const ResNetStage& stage : stages) {
    if (output_hidden_states) hidden_states.push_back(hidden_state);
    hidden_state = stage(hidden_state);
  }
  hidden_states.push_back(call.result(hidden_state));
  return hidden_states;
}

namespace {

class ResNet : public PooledImageModel {
 public:
  ResNet(Context& context, const ResNetConfig& c, const DataConfig& data, const ModelOptions& options)
      : PooledImageModel(context, c, data, options) {
    const Builder model = c.classifies ? root_.child("resnet", "ResNetModel") : root_;
    model_ = model.module;
    body_.emplace(model, c);
    pooler_ = model.child("pooler", "AdaptiveAvgPool2d").module;
    if (!c.classifies) return;
    const Builder classifier = root_.child("classifier", "Sequential", Modality::none);
    classifier.child("", "Flatten", 0);
    classifier_ = Linear(classifier.child("", "Linear", 1), c.hidden_size, c.num_labels, true);
    head_ = classifier.module;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (!config_.classifies) return PooledImageModel::forward(inputs);
    Tensor pooled_output;
    const Tensor last_hidden_state = model_forward(inputs.pixel_values, pooled_output);
    ModuleCall call(context_, head_);
    const Tensor argument = call.argument(pooled_output);
    const Tensor flat = reshape(argument, {argument.size(0), argument.size(1)});
    return classified(call.result(classifier_(flat)), inputs);
  }

 private:
  // ResNetModel.forward
  Tensor model_forward(const Tensor& argument, Tensor& pooled_output) const override {
    ModuleCall call(context_, model_);
    const TensorList outputs = (*body_)(call.argument(argument), false);
    {
      ModuleCall pooling(context_, pooler_);
      pooled_output = call.result(pooling.result(mean_of_images(pooling.argument(outputs[0]))));
    }
    return call.result(outputs[0]);
  }

  std::optional<ResNetBody> body_;
  ModuleId model_ = 0, pooler_ = 0, head_ = 0;
};

class ResNetBackbone : public ImageBackbone {
 public:
  ResNetBackbone(const Builder& builder, const ResNetConfig& c, const std::vector<std::size_t>& features)
      : body_(builder, c), features_(features), module_(builder.module) {}

  TensorList operator()(const Tensor& argument) const override {
    ModuleCall call(argument.context(), module_);
    const TensorList hidden_states = body_(call.argument(argument), true);
    TensorList feature_maps;
    for (const std::size_t i : features_) feature_maps.push_back(call.result(hidden_states[i]));
    return feature_maps;
  }

 private:
  ResNetBody body_;
  std::vector<std::size_t> features_;
  ModuleId module_;
};

}  // namespace

std::unique_ptr<const ImageBackbone> build_resnet_backbone(const Builder& builder, const ResNetConfig& config,
                                                           const std::vector<std::size_t>& features) {
  return std::make_unique<ResNetBackbone>(builder, config, features);
}

std::unique_ptr<Model> build_resnet(Context& context, const ResNetConfig& config, const DataConfig& data,
                                    const ModelOptions& options) {
  return std::make_unique<ResNet>(context, config, data, options);
}

}  // namespace oometer
