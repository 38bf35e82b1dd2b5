#include "models/upernet/upernet.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ops/images.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

namespace oometer {

std::vector<std::int64_t> UperNetConfig::channels() const {
  std::vector<std::int64_t> result;
  for (const std::size_t i : features) {
    const std::size_t stage = std::max<std::size_t>(i, 1) - 1;
    switch (backbone) {
      case UperNetBackbone::resnet:
        result.push_back(i == 0 ? resnet.embedding_size : resnet.hidden_sizes[stage]);
        break;
      case UperNetBackbone::swin:
        result.push_back(swin.dim(stage));
        break;
      case UperNetBackbone::convnext:
        result.push_back(convnext.hidden_sizes[stage]);
        break;
    }
  }
  return result;
}

namespace {

struct UperNetConvModule {
  /// Its place among the modules, which those of two lists take in another order than they are made in.
  struct Place {
    explicit Place(const Builder& builder)
        : own(builder.module),
          conv(builder.child("conv", "Conv2d")),
          batch_norm(builder.child("batch_norm", "BatchNorm2d")),
          activation(builder.child("activation", "ReLU").module) {}

    ModuleId own;
    Builder conv, batch_norm;
    ModuleId activation;
  };

  UperNetConvModule(const Place& place, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size)
      : conv(place.conv, in_channels, out_channels, {.kernel = kernel_size, .padding = kernel_size / 2, .bias = false}),
        batch_norm(place.batch_norm, out_channels),
        activation(place.activation),
        module(place.own) {}
  UperNetConvModule(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels,
                    std::int64_t kernel_size)
      : UperNetConvModule(Place(builder), in_channels, out_channels, kernel_size) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor output = conv(call.argument(argument));
    output = batch_norm(output);
    {
      ModuleCall its(argument.context(), activation);
      output = its.result(relu(its.argument(output)));
    }
    return call.result(output);
  }

  AnyConv2d conv;
  BatchNorm2d batch_norm;
  ModuleId activation, module;
};

struct UperNetPyramidPoolingBlock {
  UperNetPyramidPoolingBlock(const Builder& builder, std::int64_t scale, std::int64_t in_channels,
                             std::int64_t channels)
      : pool_scale(scale),
        pool(builder.child("", "AdaptiveAvgPool2d", 0).module),
        conv(builder.child("", "UperNetConvModule", 1), in_channels, channels, 1),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_state = call.argument(argument);
    {
      ModuleCall its(argument.context(), pool);
      hidden_state = its.result(adaptive_avg_pool(its.argument(hidden_state), pool_scale));
    }
    Context& context = argument.context();
    if (context.training && pool_scale == 1 && hidden_state.size(0) == 1)
      context.refusal =
          Error{"inconsistent", "/data/micro_batch_size",
                "an image alone is one value a channel for the norm behind a pool of one, which it refuses "
                "in training (a ValueError): expected at least 2"};
    hidden_state = conv(hidden_state);
    return call.result(hidden_state);
  }

  std::int64_t pool_scale;
  ModuleId pool;
  UperNetConvModule conv;
  ModuleId module;
};

/// F.interpolate(..., mode="bilinear") to the size of another map.
Tensor as_large_as(const Tensor& x, const Tensor& other) {
  return upsample_bilinear2d(x, other.size(2), other.size(3));
}

struct UperNetHead {
  UperNetHead(const Builder& builder, const UperNetConfig& c, const std::vector<std::int64_t>& in_channels)
      : classifier(builder.child("classifier", "Conv2d"), c.hidden_size, c.num_labels, {}), module(builder.module) {
    const Builder psp = builder.child("psp_modules", "UperNetPyramidPoolingModule");
    psp_module = psp.module;
    blocks.reserve(c.pool_scales.size());
    for (const std::int64_t scale : c.pool_scales)
      blocks.emplace_back(psp.child("", "UperNetPyramidPoolingBlock", static_cast<std::int32_t>(blocks.size())), scale,
                          in_channels.back(), c.hidden_size);
    const auto scales = static_cast<std::int64_t>(c.pool_scales.size()),
               levels = static_cast<std::int64_t>(in_channels.size());
    bottleneck.emplace(builder.child("bottleneck", "UperNetConvModule"), in_channels.back() + scales * c.hidden_size,
                       c.hidden_size, 3);
    const std::size_t count = in_channels.size() - 1;
    lateral_convs.reserve(count);
    fpn_convs.reserve(count);
    std::vector<UperNetConvModule::Place> places;
    for (const char* list : {"lateral_convs", "fpn_convs"})
      for (std::size_t i = 0; i < count; ++i)
        places.emplace_back(builder.child(list, "UperNetConvModule", static_cast<std::int32_t>(i)));
    const UperNetConvModule::Place fpn_place(builder.child("fpn_bottleneck", "UperNetConvModule"));
    for (std::size_t i = 0; i < count; ++i) {
      lateral_convs.emplace_back(places[i], in_channels[i], c.hidden_size, 1);
      fpn_convs.emplace_back(places[count + i], c.hidden_size, c.hidden_size, 3);
    }
    fpn_bottleneck.emplace(fpn_place, levels * c.hidden_size, c.hidden_size, 3);
  }

  Tensor operator()(const TensorList& encoder_hidden_states) const {
    Context& context = encoder_hidden_states[0].context();
    ModuleCall call(context, module);
    TensorList laterals;
    for (std::size_t i = 0; i < lateral_convs.size(); ++i)
      laterals.push_back(lateral_convs[i](encoder_hidden_states[i]));
    laterals.push_back(psp_forward(encoder_hidden_states[encoder_hidden_states.size() - 1]));
    for (std::size_t i = laterals.size() - 1; i > 0; --i) {
      const Tensor upsampled = as_large_as(laterals[i], laterals[i - 1]);
      laterals[i - 1] = add(laterals[i - 1], upsampled);
    }
    Tensor output = [&] {
      std::vector<Tensor> fpn_outs;
      for (std::size_t i = 0; i < fpn_convs.size(); ++i) fpn_outs.push_back(fpn_convs[i](laterals[i]));
      fpn_outs.push_back(laterals[laterals.size() - 1]);
      for (std::size_t i = fpn_outs.size() - 1; i > 0; --i) fpn_outs[i] = as_large_as(fpn_outs[i], fpn_outs[0]);
      return cat(fpn_outs, 1);
    }();
    const Tensor fpn_outs = std::move(output);
    output = (*fpn_bottleneck)(fpn_outs);
    output = classifier(output);
    return call.result(output);
  }

  Tensor psp_forward(const Tensor& x) const {
    Tensor psp_outs;
    {
      std::vector<Tensor> parts{x};
      {
        ModuleCall call(x.context(), psp_module);
        const Tensor argument = call.argument(x);
        Tensor ppm_out, upsampled_ppm_out;
        for (const UperNetPyramidPoolingBlock& ppm : blocks) {
          ppm_out = ppm(argument);
          upsampled_ppm_out = as_large_as(ppm_out, argument);
          parts.push_back(call.result(upsampled_ppm_out));
        }
      }
      psp_outs = cat(parts, 1);
    }
    return (*bottleneck)(psp_outs);
  }

  AnyConv2d classifier;
  std::vector<UperNetPyramidPoolingBlock> blocks;
  std::optional<UperNetConvModule> bottleneck, fpn_bottleneck;
  std::vector<UperNetConvModule> lateral_convs, fpn_convs;
  ModuleId module, psp_module = 0;
};

struct UperNetFCNHead {
  UperNetFCNHead(const Builder& builder, const UperNetConfig& c, std::int64_t its_in_channels)
      : module(builder.module) {
    const std::int64_t in_channels = c.auxiliary_in_channels > 0 ? c.auxiliary_in_channels : its_in_channels;
    const Builder sequential = builder.child("convs", c.auxiliary_num_convs == 0 ? "Identity" : "Sequential");
    sequential_module = sequential.module;
    // There is always one, and the Identity leaves it out.
    for (std::int64_t i = 0; i < c.auxiliary_num_convs; ++i)
      convs.emplace_back(sequential.child("", "UperNetConvModule", static_cast<std::int32_t>(i)),
                         i == 0 ? in_channels : c.auxiliary_channels, c.auxiliary_channels, 3);
    if (c.auxiliary_concat_input)
      conv_cat.emplace(builder.child("conv_cat", "UperNetConvModule"), in_channels + c.auxiliary_channels,
                       c.auxiliary_channels, 3);
    classifier = AnyConv2d(builder.child("classifier", "Conv2d"), c.auxiliary_channels, c.num_labels, {});
  }

  Tensor operator()(const Tensor& hidden_states) const {
    Context& context = hidden_states.context();
    ModuleCall call(context, module);
    Tensor output = [&] {
      ModuleCall sequence(context, sequential_module);
      Tensor input = sequence.argument(hidden_states);
      for (const UperNetConvModule& conv : convs) input = conv(input);
      return sequence.result(input);
    }();
    if (conv_cat) {
      const Tensor both = cat({hidden_states, output}, 1);
      output = (*conv_cat)(both);
    }
    output = classifier(output);
    return call.result(output);
  }

  std::vector<UperNetConvModule> convs;
  std::optional<UperNetConvModule> conv_cat;
  AnyConv2d classifier;
  ModuleId module, sequential_module = 0;
};

std::unique_ptr<const ImageBackbone> build_backbone(const Builder& root, const UperNetConfig& c,
                                                    const ModelOptions& options) {
  switch (c.backbone) {
    case UperNetBackbone::swin:
      return build_swin_backbone(root.child("backbone", "SwinBackbone"), c.swin, c.features, options);
    case UperNetBackbone::convnext:
      return build_convnext_backbone(root.child("backbone", c.convnext.class_name), c.convnext, c.features);
    case UperNetBackbone::resnet:
      break;
  }
  return build_resnet_backbone(root.child("backbone", "ResNetBackbone"), c.resnet, c.features);
}

class UperNet : public ImageModel {
 public:
  UperNet(Context& context, const UperNetConfig& c, const DataConfig& data, const ModelOptions& options)
      : ImageModel(context, c, data, options), backbone_(build_backbone(root_, c, options)) {
    loss_type = LossType::cross_entropy;
    const std::vector<std::int64_t> channels = c.channels();
    decode_head_.emplace(root_.child("decode_head", "UperNetHead"), c, channels);
    if (c.use_auxiliary_head)
      auxiliary_head_.emplace(root_.child("auxiliary_head", "UperNetFCNHead"), c, channels[kAuxiliaryMap]);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = ImageModel::make_inputs(with_labels);
    if (with_labels)
      batch.labels = empty(context_, Op::input, {data_.images(), data_.image_height, data_.image_width}, DType::int64,
                           Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const TensorList features = (*backbone_)(inputs.pixel_values);
    Tensor logits = (*decode_head_)(features);
    logits = as_large_as(logits, inputs.pixel_values);
    Tensor auxiliary_logits;
    if (auxiliary_head_) {
      auxiliary_logits = (*auxiliary_head_)(features[kAuxiliaryMap]);
      auxiliary_logits = as_large_as(auxiliary_logits, inputs.pixel_values);
    }
    ModelOutputs outputs;
    if (inputs.labels) {
      outputs.loss = (*loss_function)(logits, inputs.labels);
      if (auxiliary_logits) {
        const Tensor auxiliary_loss = (*loss_function)(auxiliary_logits, inputs.labels);
        const Tensor weighted = mul_scalar(auxiliary_loss);
        outputs.loss = add_in_place(outputs.loss, weighted);
      }
    }
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

 private:
  static constexpr std::size_t kAuxiliaryMap = 2;  ///< in_index

  std::unique_ptr<const ImageBackbone> backbone_;
  std::optional<UperNetHead> decode_head_;
  std::optional<UperNetFCNHead> auxiliary_head_;
};

}  // namespace

std::unique_ptr<Model> build_upernet(Context& context, const UperNetConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<UperNet>(context, config, data, options);
}

}  // namespace oometer
