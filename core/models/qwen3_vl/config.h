#pragma once

#include <cstdint>
#include <vector>

#include "models/kit/text_config.h"

namespace oometer {

class ConfigReader;
struct DecoderParts;
struct ModelOptions;

/// What a class is called, and its language model. Qwen3.5's classes have the same tower, without a deepstack
/// (models/qwen3_5/modeling_qwen3_5.py, models/qwen3_5_moe/modeling_qwen3_5_moe.py).
struct Qwen3VLClass {
  const char *model_type, *class_name;
  const char *model, *tower, *patch_embed, *rotary_embedding, *block, *attention, *mlp, *merger;
  bool has_deepstack;
  TextConfig (*read_text)(ConfigReader& reader);
  DecoderParts (*make_parts)(const TextConfig& config, const ModelOptions& options);
  /// The mergers are a norm and a list of layers, and those of the deepstack are made first
  /// (Qwen3OmniMoeVisionPatchMerger).
  bool merges_by_list = false;
};
extern const Qwen3VLClass kQwen3VL, kQwen3VLMoe, kQwen35, kQwen35Moe;

/// What the classes of experts are called.
struct Qwen3VLMoeNames {
  const char *sparse_block, *experts, *router;
};
/// The decoder of Qwen3-VL's language model, whose experts are called so.
DecoderParts make_qwen3_vl_parts(const TextConfig& config, const ModelOptions& options, const Qwen3VLMoeNames& names);
/// The text's fields. `head_dim`: what it is where the config does not say; 0: it follows from hidden_size.
TextConfig read_qwen3_vl_sizes(ConfigReader& reader, const TextConfig& defaults, std::int64_t head_dim);

/// transformers 5.23, models/qwen3_vl/configuration_qwen3_vl.py, class Qwen3VLVisionConfig: the fields that decide
/// memory.
struct Qwen3VisionConfig {
  std::int64_t depth = 27;
  std::int64_t hidden_size = 1152;
  std::int64_t intermediate_size = 4304;
  std::int64_t num_heads = 16;
  std::int64_t in_channels = 3;
  std::int64_t patch_size = 16;  ///< pixels
  std::int64_t spatial_merge_size = 2;
  std::int64_t temporal_patch_size = 2;  ///< frames
  std::int64_t out_hidden_size = 3584;
  std::int64_t num_position_embeddings = 2304;
  std::vector<std::int64_t> deepstack_visual_indexes{8, 16, 24};  ///< blocks whose output the first layers get, too
  Activation hidden_act = Activation::gelu_tanh;

  std::int64_t merge_unit() const { return spatial_merge_size * spatial_merge_size; }
  /// Elements of a patch.
  std::int64_t patch_elements() const { return in_channels * temporal_patch_size * patch_size * patch_size; }

  bool operator==(const Qwen3VisionConfig&) const = default;
};

/// class Qwen3VLConfig, and Qwen3VLMoeConfig of models/qwen3_vl_moe.
struct Qwen3VLConfig {
  const Qwen3VLClass* of = &kQwen3VL;
  Qwen3VisionConfig vision;
  TextConfig text;
  bool tie_word_embeddings = false;

  bool operator==(const Qwen3VLConfig&) const = default;
};

/// The fields of a tower's config.
Qwen3VisionConfig read_qwen3_vision(ConfigReader& reader, bool has_deepstack);
Qwen3VLConfig read_qwen3_vl_config(ConfigReader& reader, const Qwen3VLClass& of);

}  // namespace oometer
