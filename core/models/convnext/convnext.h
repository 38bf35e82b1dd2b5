#pragma once

#include <vector>

#include "models/kit/backbone.h"
#include "models/vit/vit.h"

/// transformers 5.23, models/convnext/modeling_convnext.py and models/convnextv2/modeling_convnextv2.py. Names and
/// order of steps are those files'.
namespace oometer {

/// What the classes of the two versions are called.
struct ConvNextClassNames {
  const char *model, *embeddings, *encoder, *stage, *layer, *layer_norm, *grn, *drop_path;
  const char* base;  ///< base_model_prefix
};
inline constexpr ConvNextClassNames kConvNext{"ConvNextModel",
                                              "ConvNextEmbeddings",
                                              "ConvNextEncoder",
                                              "ConvNextStage",
                                              "ConvNextLayer",
                                              "ConvNextLayerNorm",
                                              "",
                                              "ConvNextDropPath",
                                              "convnext"};
inline constexpr ConvNextClassNames kConvNextV2{"ConvNextV2Model", "ConvNextV2Embeddings", "ConvNextV2Encoder",
                                                "ConvNextV2Stage", "ConvNextV2Layer",      "ConvNextV2LayerNorm",
                                                "ConvNextV2GRN",   "ConvNextV2DropPath",   "convnextv2"};

/// class ConvNextConfig (models/convnext/configuration_convnext.py), and ConvNextV2Config.
struct ConvNextConfig : VitConfig {
  const ConvNextClassNames* classes = &kConvNext;
  bool is_v2 = false;                                                             ///< GRN in place of a layer scale
  std::vector<std::int64_t> hidden_sizes{96, 192, 384, 768}, depths{3, 3, 9, 3};  ///< of each stage
  double layer_scale_init_value = 1e-6;
  double drop_path_rate = 0;

  std::int64_t layers() const {
    std::int64_t sum = 0;
    for (const std::int64_t depth : depths) sum += depth;
    return sum;
  }
  /// Pixels each way that become one in the last stage.
  std::int64_t smallest_image() const { return patch_size << (depths.size() - 1); }
  bool operator==(const ConvNextConfig&) const = default;
};

/// What the config of a backbone says too.
void read_convnext_sizes(ConfigReader& reader, const ModelClass& of, ConvNextConfig& config);
double largest_tensor_of_convnext(const ConvNextConfig& config, const DataConfig& data);
/// ConvNextBackbone, ConvNextV2Backbone
std::unique_ptr<const ImageBackbone> build_convnext_backbone(const Builder& builder, const ConvNextConfig& config,
                                                             const std::vector<std::size_t>& features);
std::unique_ptr<Model> build_convnext(Context& context, const ConvNextConfig& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
