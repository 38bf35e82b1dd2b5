#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/activation.h"
#include "models/kit/batch_norm2d.h"
#include "models/kit/conv2d.h"
#include "nn/module.h"
#include "tensor/tensor_list.h"

/// What follows a backbone in DPT and Depth Anything: its layers' tokens become images, from coarse to fine, which are
/// fused (transformers 5.23, models/dpt/modeling_dpt.py, models/depth_anything/modeling_depth_anything.py).
namespace oometer {

class ConfigReader;

struct DptNeckNames {
  const char *neck, *reassemble_stage, *reassemble_layer, *fusion_stage, *fusion_layer, *residual_layer;
};

struct DptNeckConfig {
  enum class Readout : std::uint8_t { ignore, add, project };

  const DptNeckNames* names = nullptr;
  Readout readout = Readout::ignore;     ///< what becomes of the [CLS] token
  bool follows_sizes = false;            ///< an image is stretched to the next one's size, else to twice its own
  bool batch_norm = false, bias = true;  ///< of the residual units
  std::int64_t hidden_size = 0;          ///< the tokens'
  std::int64_t fusion_hidden_size = 256;
  std::vector<std::int64_t> neck_hidden_sizes;
  std::vector<double> reassemble_factors;
  Activation hidden_act = Activation::gelu;

  std::size_t stages() const { return neck_hidden_sizes.size(); }
  std::int64_t convolutions() const;
  /// Pixels each way of what a stage makes of so many patches.
  std::int64_t side(std::size_t stage, std::int64_t patches) const;
  bool operator==(const DptNeckConfig&) const = default;
};

/// The fields that both configs have; `config` holds their defaults.
void read_dpt_neck(ConfigReader& reader, DptNeckConfig& config);
/// Bytes of about the largest tensor that it makes of so many images of rows x columns patches.
double largest_tensor_of_neck(const DptNeckConfig& config, std::int64_t images, std::int64_t rows,
                              std::int64_t columns);

/// nn.Conv2d(in, out, kernel_size=3, padding=1)
AnyConv2d convolution3x3(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, bool bias = true);

struct DptResidualLayer {
  DptResidualLayer(const Builder& builder, const DptNeckConfig& config);
  Tensor operator()(const Tensor& hidden_state) const;

  AnyConv2d convolution1, convolution2;
  std::optional<BatchNorm2d> batch_norm1, batch_norm2;
  ModuleId module;
};

struct DptFusionLayer {
  DptFusionLayer(const Builder& builder, const DptNeckConfig& config);
  /// `residual` may be null. `size`: of the result; none: twice the image's.
  Tensor operator()(const Tensor& hidden_state, const Tensor& residual,
                    const std::optional<std::pair<std::int64_t, std::int64_t>>& size) const;

  AnyConv2d projection;
  DptResidualLayer residual_layer1, residual_layer2;
  ModuleId module;
};

struct DptReassembleLayer {
  DptReassembleLayer(const Builder& builder, const DptNeckConfig& config, std::size_t stage);
  Tensor operator()(const Tensor& hidden_state) const;

  AnyConv2d projection;
  std::optional<AnyConv2d> resize;
  ModuleId module;
};

struct DptNeck {
  DptNeck() = default;
  DptNeck(const Builder& builder, const DptNeckConfig& config);
  /// Of each stage's tokens, of so many rows and columns of patches behind a [CLS] token; the finest image is the last.
  TensorList operator()(const TensorList& hidden_states, std::int64_t rows, std::int64_t columns) const;

 private:
  TensorList reassembled(const TensorList& hidden_states, std::int64_t rows, std::int64_t columns) const;
  TensorList fused(const TensorList& features) const;

  DptNeckConfig config_;
  std::vector<DptReassembleLayer> reassemble_layers_;
  struct Projection {
    ModuleId sequential;
    Linear linear;
  };
  std::vector<Projection> readout_projects_;
  std::vector<AnyConv2d> convs_;
  std::vector<DptFusionLayer> fusion_layers_;
  ModuleId module_ = 0, reassemble_stage_ = 0, fusion_stage_ = 0;
};

}  // namespace oometer
