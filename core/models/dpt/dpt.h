#pragma once

#include "models/dinov2/dinov2.h"
#include "models/kit/dpt_neck.h"
#include "models/vit/vit.h"

/// transformers 5.23, models/dpt/modeling_dpt.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kDpt{"DPTModel",
                                    "DPTViTEmbeddings",
                                    "DPTViTPatchEmbeddings",
                                    "DPTViTLayer",
                                    "DPTViTAttention",
                                    "DPTViTIntermediate",
                                    "dpt",
                                    false};
inline constexpr DptNeckNames kDptNeck{"DPTNeck",
                                       "DPTReassembleStage",
                                       "DPTReassembleLayer",
                                       "DPTFeatureFusionStage",
                                       "DPTFeatureFusionLayer",
                                       "DPTPreActResidualLayer"};

/// class DPTConfig (models/dpt/configuration_dpt.py), with a ViT of its own in front, or DINOv2.
struct DptConfig : VitConfig {
  enum class Head : std::uint8_t { none, depth, segmentation };

  Head head = Head::none;
  DptNeckConfig neck;
  bool has_backbone = false;
  Dinov2BackboneConfig backbone;
  std::vector<std::int64_t> backbone_out_indices{2, 5, 8, 11};
  std::int64_t head_in_index = -1;
  bool add_projection = false;
  double semantic_classifier_dropout = 0.1;

  /// What reads the image.
  const VitConfig& vit() const { return has_backbone ? static_cast<const VitConfig&>(backbone) : *this; }
  /// Of the neck's images, the one that the heads read.
  std::size_t head_index() const {
    return static_cast<std::size_t>(head_in_index < 0 ? head_in_index + static_cast<std::int64_t>(neck.stages())
                                                      : head_in_index);
  }
  bool operator==(const DptConfig&) const = default;
};

std::unique_ptr<Model> build_dpt(Context& context, const DptConfig& config, const DataConfig& data,
                                 const ModelOptions& options);

}  // namespace oometer
