#pragma once

#include "models/got_ocr2/sam.h"
#include "models/model.h"

/// transformers 5.23, models/sam/modeling_sam.py. Names and order of steps are that file's.
namespace oometer {

/// class SamConfig (models/sam/configuration_sam.py), whose tower is `vision`.
struct SamModelConfig {
  SamConfig vision;
  std::int64_t num_pos_feats = 128;
  // prompt_encoder_config
  std::int64_t mask_input_channels = 16, num_point_embeddings = 4;
  // mask_decoder_config
  Activation hidden_act = Activation::relu;
  std::int64_t hidden_size = 256, mlp_dim = 2048, num_hidden_layers = 2, num_attention_heads = 8;
  std::int64_t attention_downsample_rate = 2, num_multimask_outputs = 3, iou_head_depth = 3, iou_head_hidden_dim = 256;

  std::int64_t mask_tokens() const { return num_multimask_outputs + 1; }
  bool operator==(const SamModelConfig&) const = default;
};

/// SamModel, called with a box an image and without multimask_output.
std::unique_ptr<Model> build_sam(Context& context, const SamModelConfig& config, const DataConfig& data,
                                 const ModelOptions& options);

}  // namespace oometer
