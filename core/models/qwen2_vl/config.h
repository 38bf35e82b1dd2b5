#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/data.h"
#include "models/kit/grids.h"
#include "models/llama/config.h"

namespace oometer {

/// What a generation's classes are called; the second one's tower attends within windows.
struct QwenVLClassNames {
  LlamaClassNames text;  ///< `causal_lm` is the whole model
  const char *model, *tower, *patch_embed, *rotary_embedding, *block, *norm, *attention, *mlp, *merger;
  bool has_windows;
  bool projects_apart = false;  ///< the tower's attention has query, key and value in layers of their own
};
extern const QwenVLClassNames kQwen2VLClassNames, kQwen25VLClassNames;

/// transformers 5.23, models/qwen2_5_vl/configuration_qwen2_5_vl.py, class Qwen2_5_VLVisionConfig, and
/// models/qwen2_vl/configuration_qwen2_vl.py, class Qwen2VLVisionConfig: the fields that decide memory.
struct QwenVisionConfig {
  std::int64_t depth = 32;
  std::int64_t hidden_size = 3584;  ///< Qwen2-VL: embed_dim
  std::int64_t intermediate_size = 3420;
  std::int64_t num_heads = 16;
  std::int64_t num_key_value_heads = 0;  ///< EXAONE 4.5's; 0: as many as num_heads
  std::int64_t in_channels = 3;
  std::int64_t patch_size = 14;  ///< pixels
  std::int64_t spatial_merge_size = 2;
  std::int64_t temporal_patch_size = 2;                            ///< frames
  std::int64_t window_size = 112;                                  ///< pixels
  std::int64_t out_hidden_size = 3584;                             ///< Qwen2-VL: hidden_size
  std::vector<std::int64_t> fullatt_block_indexes{7, 15, 23, 31};  ///< the other blocks attend within windows
  Activation hidden_act = Activation::silu;

  std::int64_t head_dim() const { return hidden_size / num_heads; }
  WindowRule windows() const {
    return {std::max<std::int64_t>(window_size / spatial_merge_size / patch_size, 1), spatial_merge_size};
  }
  /// Patches that are one token of the language model.
  std::int64_t merge_unit() const { return spatial_merge_size * spatial_merge_size; }
  /// Elements of a patch.
  std::int64_t patch_elements() const { return in_channels * temporal_patch_size * patch_size * patch_size; }

  bool operator==(const QwenVisionConfig&) const = default;
};

/// class Qwen2_5_VLConfig and class Qwen2VLConfig of the same files.
struct QwenVLConfig {
  const QwenVLClassNames* names = &kQwen25VLClassNames;
  QwenVisionConfig vision;
  LlamaConfig text;
  bool tie_word_embeddings = false;

  bool operator==(const QwenVLConfig&) const = default;
};

/// Of a tower: the fields of its config. Of a language model: the same, by the defaults of its class, of which
/// `usual_window_layers` do not slide.
QwenVisionConfig read_qwen_vision(ConfigReader& reader, bool has_windows);
LlamaConfig read_qwen_vl_text(ConfigReader& reader, const LlamaConfig& defaults, std::int64_t usual_window_layers);
/// With its text_config, or flat as the published ones are.
QwenVLConfig read_qwen_vl_config(ConfigReader& reader, const QwenVLClassNames& names);

/// What a job's `data` says of images, by the rule of the published models' processors.
void read_grid(ConfigReader& reader, const QwenVLConfig& config, DataConfig& data);

}  // namespace oometer
