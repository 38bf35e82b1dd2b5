#pragma once

#include <optional>
#include <vector>

#include "models/kit/backbone.h"
#include "models/kit/batch_norm2d.h"
#include "models/kit/conv2d.h"
#include "models/vit/vit.h"
#include "tensor/tensor_list.h"

/// transformers 5.23, models/resnet/modeling_resnet.py. Names and order of steps are that file's.
namespace oometer {

/// class ResNetConfig (models/resnet/configuration_resnet.py). `hidden_size`: of the last stage.
struct ResNetConfig : VitConfig {
  std::int64_t embedding_size = 64;
  std::vector<std::int64_t> hidden_sizes{256, 512, 1024, 2048}, depths{3, 4, 6, 3};  ///< of each stage
  bool is_basic = false;                                                             ///< layer_type
  bool downsample_in_first_stage = false, downsample_in_bottleneck = false;

  /// nn.Conv2d modules of stem and stages.
  std::int64_t convolutions() const;
  bool operator==(const ResNetConfig&) const = default;
};

/// The fields of such a config that a backbone has too.
void read_resnet_sizes(ConfigReader& reader, ResNetConfig& config);
double largest_tensor_of_resnet(const ResNetConfig& config, std::int64_t images, std::int64_t height,
                                std::int64_t width);

/// nn.BatchNorm2d, or what replace_batch_norm of DETR and its kin puts in its place: `frozen` is the name of that
/// class.
struct ResNetNorm {
  ResNetNorm() = default;
  ResNetNorm(const Builder& own, std::int64_t channels, const char* frozen);
  /// replace_batch_norm, of this one: when the whole backbone is there.
  void freeze();
  Tensor operator()(const Tensor& x) const;

  std::optional<BatchNorm2d> norm;                 ///< none: it is frozen
  Builder builder;                                 ///< of a frozen one
  TensorList replaced;                             ///< what the nn.BatchNorm2d has, while it is there
  Tensor weight, bias, running_mean, running_var;  ///< buffers
  ModuleId module = 0;
};

struct ResNetConvLayer {
  ResNetConvLayer(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                  std::int64_t stride, std::optional<Activation> activation, const char* frozen);
  Tensor operator()(const Tensor& hidden_states) const;

  AnyConv2d convolution;
  ResNetNorm normalization;
  std::optional<Activation> activation;
  ModuleId module;
};

/// The `layer` of a bottleneck, or of a basic block: convolutions of the class `type`.
std::vector<ResNetConvLayer> make_resnet_layers(const Builder& sequence, const char* type, const ResNetConfig& config,
                                                std::int64_t in_channels, std::int64_t out_channels,
                                                std::int64_t stride, const char* frozen);

/// ResNetBottleNeckLayer, or ResNetBasicLayer.
struct ResNetLayer {
  ResNetLayer(const Builder& builder, const ResNetConfig& config, std::int64_t in_channels, std::int64_t out_channels,
              std::int64_t stride, const char* frozen);
  Tensor operator()(const Tensor& hidden_state) const;

  AnyConv2d shortcut;
  ResNetNorm shortcut_norm;
  bool has_shortcut = false;
  std::vector<ResNetConvLayer> layers;
  Activation activation;
  ModuleId module, shortcut_module = 0, layer_module = 0;
};

struct ResNetStage {
  ResNetStage(const Builder& builder, const ResNetConfig& config, std::size_t stage, const char* frozen);
  Tensor operator()(const Tensor& input) const;

  std::vector<ResNetLayer> layers;
  ModuleId module;
};

/// ResNetEmbeddings and ResNetEncoder: what ResNetModel and ResNetBackbone have. `frozen`: null, or the class of norms.
struct ResNetBody {
  ResNetBody(const Builder& builder, const ResNetConfig& config, const char* frozen = nullptr);
  /// replace_batch_norm, and then no parameter trains.
  void freeze(std::vector<Parameter>& parameters);
  /// What the stem gives, and each stage behind it (`hidden_states`); or the last one's alone.
  TensorList operator()(const Tensor& pixel_values, bool output_hidden_states) const;

  std::optional<ResNetConvLayer> embedder;
  std::vector<ResNetStage> stages;
  ModuleId embedder_module, pooler, encoder;
};

/// ResNetBackbone
std::unique_ptr<const ImageBackbone> build_resnet_backbone(const Builder& builder, const ResNetConfig& config,
                                                           const std::vector<std::size_t>& features);
std::unique_ptr<Model> build_resnet(Context& context, const ResNetConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
