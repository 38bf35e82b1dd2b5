#include "models/kit/dpt_neck.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/sizes.h"
#include "nn/activation.h"
#include "ops/ops.h"
#include "ops/upsample.h"
#include "ops/vision.h"

namespace oometer {

namespace {

constexpr std::size_t kMostStages = 16;

/// nn.Conv2d(channels, channels, kernel_size=3, stride=stride, padding=1), or nn.ConvTranspose2d whose kernel does not
/// overlap.
AnyConv2d resizing(const Builder& stage, std::int64_t channels, double factor) {
  if (factor < 1)
    return {stage.child("resize", "Conv2d"),
            channels,
            channels,
            {.kernel = 3, .stride = static_cast<std::int64_t>(1 / factor), .padding = 1}};
  const auto kernel = static_cast<std::int64_t>(factor);
  AnyConv2d conv(stage.child("resize", "ConvTranspose2d"), channels, channels, {.kernel = kernel, .stride = kernel});
  conv.options.transposed = true;
  return conv;
}

}  // namespace

std::int64_t DptNeckConfig::convolutions() const {
  std::int64_t count = 0;
  for (const double factor : reassemble_factors) count += 1 + (factor == 1 ? 0 : 1);
  // The first fusion layer has nothing to add to.
  return count + static_cast<std::int64_t>(stages()) * 6 - 2;
}

std::int64_t DptNeckConfig::side(std::size_t stage, std::int64_t patches) const {
  const double factor = reassemble_factors[stage];
  if (factor >= 1) return checked_product(patches, static_cast<std::int64_t>(factor));
  return (patches - 1) / static_cast<std::int64_t>(1 / factor) + 1;
}

void read_dpt_neck(ConfigReader& reader, DptNeckConfig& c) {
  if (const auto given = reader.integers("neck_hidden_sizes", {1, 1 << 16}); !given.empty())
    c.neck_hidden_sizes = given;
  c.fusion_hidden_size = reader.integer("fusion_hidden_size", c.fusion_hidden_size, {2, 1 << 16});
  if (const nlohmann::json* given = reader.find("reassemble_factors"); given && !given->is_null()) {
    c.reassemble_factors.clear();
    if (given->is_array())
      for (const auto& one : *given) c.reassemble_factors.push_back(one.is_number() ? one.get<double>() : 0);
  }
  if (!reader.ok()) return;
  const bool are_factors = std::all_of(c.reassemble_factors.begin(), c.reassemble_factors.end(), [](double factor) {
    return (factor >= 1 && factor <= 64 && factor == std::floor(factor)) || (factor > 1. / 64 && factor < 1);
  });
  if (!are_factors || c.reassemble_factors.empty())
    return reader.fail_found("reassemble_factors", "inconsistent",
                             "expected whole numbers of 1 or more, and fractions between 0 and 1");
  if (c.stages() > kMostStages)
    return reader.fail_found("neck_hidden_sizes", "not-modelled", "expected at most " + std::to_string(kMostStages));
  if (c.reassemble_factors.size() != c.stages())
    reader.fail_found("reassemble_factors", "inconsistent",
                      "expected as many as neck_hidden_sizes has, " + std::to_string(c.stages()));
}

double largest_tensor_of_neck(const DptNeckConfig& c, std::int64_t images, std::int64_t rows, std::int64_t columns) {
  double largest = 0;
  std::int64_t fused_rows = 0, fused_columns = 0;
  for (std::size_t i = c.stages(); i-- > 0;) {
    const std::int64_t height = c.side(i, rows), width = c.side(i, columns);
    if (fused_rows == 0) fused_rows = height, fused_columns = width;
    const bool follows = c.follows_sizes && i > 0;
    fused_rows = follows ? c.side(i - 1, rows) : 2 * fused_rows;
    fused_columns = follows ? c.side(i - 1, columns) : 2 * fused_columns;
    const std::int64_t widest = std::max(c.neck_hidden_sizes[i], c.fusion_hidden_size);
    largest = std::max({largest, bytes_of({images, widest, height, width, 9}),
                        bytes_of({images, c.fusion_hidden_size, fused_rows, fused_columns, 9}),
                        bytes_of({widest, widest, 64}), bytes_of({widest, c.hidden_size})});
  }
  return std::max(largest, bytes_of({c.hidden_size, c.hidden_size, 2}));
}

AnyConv2d convolution3x3(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, bool bias) {
  return {builder, in_channels, out_channels, {.kernel = 3, .padding = 1, .bias = bias}};
}

DptResidualLayer::DptResidualLayer(const Builder& builder, const DptNeckConfig& c) : module(builder.module) {
  const std::int64_t channels = c.fusion_hidden_size;
  convolution1 = convolution3x3(builder.child("convolution1", "Conv2d"), channels, channels, c.bias);
  convolution2 = convolution3x3(builder.child("convolution2", "Conv2d"), channels, channels, c.bias);
  if (!c.batch_norm) return;
  batch_norm1.emplace(builder.child("batch_norm1", "BatchNorm2d"), channels);
  batch_norm2.emplace(builder.child("batch_norm2", "BatchNorm2d"), channels);
}

Tensor DptResidualLayer::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor residual = call.argument(argument);
  Tensor hidden_state = relu(residual);
  hidden_state = convolution1(hidden_state);
  if (batch_norm1) hidden_state = (*batch_norm1)(hidden_state);
  hidden_state = relu(hidden_state);
  hidden_state = convolution2(hidden_state);
  if (batch_norm2) hidden_state = (*batch_norm2)(hidden_state);
  return call.result(add(hidden_state, residual));
}

DptFusionLayer::DptFusionLayer(const Builder& builder, const DptNeckConfig& c)
    : projection(builder.child("projection", "Conv2d"), c.fusion_hidden_size, c.fusion_hidden_size, {}),
      residual_layer1(builder.child("residual_layer1", c.names->residual_layer), c),
      residual_layer2(builder.child("residual_layer2", c.names->residual_layer), c),
      module(builder.module) {}

Tensor DptFusionLayer::operator()(const Tensor& argument, const Tensor& residual_argument,
                                  const std::optional<std::pair<std::int64_t, std::int64_t>>& size) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_state = call.argument(argument);
  Tensor residual;
  if (residual_argument) {
    residual = call.argument(residual_argument);
    if (hidden_state.sizes() != residual.sizes())
      residual = upsample_bilinear2d(residual, hidden_state.size(2), hidden_state.size(3));
    const Tensor its = residual_layer1(residual);
    hidden_state = add(hidden_state, its);
  }
  hidden_state = residual_layer2(hidden_state);
  hidden_state = upsample_bilinear2d(hidden_state, size ? size->first : 2 * hidden_state.size(2),
                                     size ? size->second : 2 * hidden_state.size(3));
  return call.result(projection(hidden_state));
}

DptReassembleLayer::DptReassembleLayer(const Builder& builder, const DptNeckConfig& c, std::size_t stage)
    : projection(builder.child("projection", "Conv2d"), c.hidden_size, c.neck_hidden_sizes[stage], {}),
      module(builder.module) {
  if (const double factor = c.reassemble_factors[stage]; factor != 1)
    resize = resizing(builder, c.neck_hidden_sizes[stage], factor);
}

Tensor DptReassembleLayer::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_state = projection(call.argument(argument));
  if (resize) hidden_state = (*resize)(hidden_state);
  return call.result(hidden_state);
}

DptNeck::DptNeck(const Builder& builder, const DptNeckConfig& c) : config_(c), module_(builder.module) {
  const Builder reassemble = builder.child("reassemble_stage", c.names->reassemble_stage);
  reassemble_stage_ = reassemble.module;
  const auto index = [](std::size_t i) { return static_cast<std::int32_t>(i); };
  for (std::size_t i = 0; i < c.stages(); ++i)
    reassemble_layers_.emplace_back(reassemble.child("layers", c.names->reassemble_layer, index(i)), c, i);
  if (c.readout == DptNeckConfig::Readout::project)
    for (std::size_t i = 0; i < c.stages(); ++i) {
      const Builder sequential = reassemble.child("readout_projects", "Sequential", index(i));
      readout_projects_.push_back(
          {sequential.module, Linear(sequential.child("0", "Linear"), 2 * c.hidden_size, c.hidden_size, true)});
    }
  for (std::size_t i = 0; i < c.stages(); ++i)
    convs_.push_back(convolution3x3(builder.child("convs", "Conv2d", index(i)), c.neck_hidden_sizes[i],
                                    c.fusion_hidden_size, false));
  const Builder fusion = builder.child("fusion_stage", c.names->fusion_stage);
  fusion_stage_ = fusion.module;
  for (std::size_t i = 0; i < c.stages(); ++i)
    fusion_layers_.emplace_back(fusion.child("layers", c.names->fusion_layer, index(i)), c);
}

TensorList DptNeck::reassembled(const TensorList& hidden_states, std::int64_t rows, std::int64_t columns) const {
  Context& context = hidden_states[0].context();
  ModuleCall call(context, reassemble_stage_);
  TensorList out;
  Tensor hidden_state, cls_token, readout;
  for (std::size_t i = 0; i < hidden_states.size(); ++i) {
    const Tensor argument = call.argument(hidden_states[i]);
    const std::int64_t tokens = argument.size(1) - 1, channels = argument.size(2);
    if (config_.readout != DptNeckConfig::Readout::ignore) cls_token = select(argument, 1, 0);
    hidden_state = slice(argument, 1, 1, tokens);
    hidden_state = reshape(hidden_state, {hidden_state.size(0), rows, columns, channels});
    hidden_state = contiguous(permute(hidden_state, {0, 3, 1, 2}));
    const Shape feature_shape = hidden_state.sizes();
    const Shape flat{feature_shape[0], channels, tokens};
    if (config_.readout == DptNeckConfig::Readout::project) {
      hidden_state = permute(reshape(hidden_state, flat), {0, 2, 1});
      readout = expand(unsqueeze(cls_token, 1), hidden_state.sizes());
      {
        ModuleCall sequential(context, readout_projects_[i].sequential);
        Tensor input = [&] {
          const Tensor joined = cat({hidden_state, readout}, -1);
          const Tensor input_of_sequential = sequential.argument(joined);
          return readout_projects_[i].linear(input_of_sequential);
        }();
        hidden_state = sequential.result(activate(config_.hidden_act, input));
      }
      hidden_state = reshape(permute(hidden_state, {0, 2, 1}), feature_shape);
    } else if (config_.readout == DptNeckConfig::Readout::add) {
      const Tensor flattened = reshape(hidden_state, flat), added = unsqueeze(cls_token, -1);
      hidden_state = add(flattened, added);
      hidden_state = reshape(hidden_state, feature_shape);
    }
    hidden_state = reassemble_layers_[i](hidden_state);
    out.push_back(hidden_state);
  }
  for (Tensor& one : out) one = call.result(one);
  return out;
}

TensorList DptNeck::fused(const TensorList& features) const {
  ModuleCall call(features[0].context(), fusion_stage_);
  const std::size_t stages = features.size();
  TensorList all;
  Tensor fused_hidden_state;
  for (std::size_t i = 0; i < stages; ++i) {
    const Tensor hidden_state = call.argument(features[stages - 1 - i]);
    std::optional<std::pair<std::int64_t, std::int64_t>> size;
    if (config_.follows_sizes && i + 1 < stages) {
      const Tensor& next = features[stages - 2 - i];
      size = {next.size(2), next.size(3)};
    }
    fused_hidden_state =
        i == 0 ? fusion_layers_[i](hidden_state, {}, size) : fusion_layers_[i](fused_hidden_state, hidden_state, size);
    all.push_back(fused_hidden_state);
  }
  for (Tensor& one : all) one = call.result(one);
  return all;
}

TensorList DptNeck::operator()(const TensorList& hidden_states, std::int64_t rows, std::int64_t columns) const {
  ModuleCall call(hidden_states[0].context(), module_);
  TensorList given;
  for (const Tensor& one : hidden_states) given.push_back(call.argument(one));
  given = reassembled(given, rows, columns);
  TensorList features;
  for (std::size_t i = 0; i < given.size(); ++i) features.push_back(convs_[i](given[i]));
  TensorList output = fused(features);
  for (Tensor& one : output) one = call.result(one);
  return output;
}

}  // namespace oometer
