#pragma once

#include <vector>

#include "models/kit/backbone.h"
#include "models/vit/vit.h"

/// transformers 5.23, models/swin/modeling_swin.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kSwin{
    "SwinModel", "SwinEmbeddings", "SwinPatchEmbeddings", "SwinLayer", "SwinAttention", "SwinMLP", "swin", true};

/// class SwinConfig (models/swin/configuration_swin.py). `hidden_size`, as there: channels behind the last stage.
struct SwinConfig : VitConfig {
  std::int64_t embed_dim = 96;
  std::vector<std::int64_t> depths{2, 2, 6, 2}, num_heads{3, 6, 12, 24};  ///< of each stage
  std::int64_t window_size = 7;                                           ///< patches each way
  double mlp_ratio = 4;
  double drop_path_rate = 0.1;
  bool use_absolute_embeddings = false;

  /// Patches each way in a stage, and channels of each.
  std::int64_t side(std::size_t stage) const { return (image_size / patch_size) >> stage; }
  std::int64_t dim(std::size_t stage) const { return embed_dim << stage; }
  bool operator==(const SwinConfig&) const = default;
};

/// Patches, normed; positions.
struct SwinEmbeddings {
  SwinEmbeddings() = default;
  SwinEmbeddings(const Builder& builder, const SwinConfig& config);
  Tensor operator()(const Tensor& pixel_values) const;
  Tensor embed_patches(const Tensor& pixel_values) const;

  Conv2d projection;
  Tensor position_embeddings;  ///< null: the config has none
  LayerNorm norm;
  double dropout_prob = 0;
  ModuleId module = 0, patch_embeddings = 0;
};

/// Patches of an image, or of what a stage has left of them: `input_dimensions`.
struct PatchGrid {
  std::int64_t height, width;

  std::int64_t patches() const { return checked_product(height, width); }
  /// Of the next stage, which merges neighbours; the last of an odd number is alone.
  PatchGrid merged() const { return {(height + 1) / 2, (width + 1) / 2}; }
  /// What its windows cover.
  PatchGrid in_windows(std::int64_t window) const {
    return {(height + window - 1) / window * window, (width + window - 1) / window * window};
  }
  bool operator==(const PatchGrid&) const = default;
};

/// SwinPatchMerging: each four neighbours' channels, one after another; [batch, tokens / 4, 4 * channels].
Tensor merge_patches(const Tensor& hidden_states, PatchGrid grid);
/// window_partition, and window_reverse: the two inner ones of six dimensions, exchanged.
Tensor window_partition(const Tensor& input_feature, std::int64_t window);
Tensor window_reverse(const Tensor& windows, std::int64_t window, PatchGrid grid);
/// torch.roll by rows and columns; x itself where the windows are not shifted.
Tensor cyclic_shift(const Tensor& x, std::int64_t shift);
/// SwinLayer.get_attn_mask: [windows, tokens, tokens], null where they are not shifted.
Tensor window_mask(const Tensor& hidden_states, PatchGrid grid, std::int64_t window, std::int64_t shift);

/// The fields that the configs of Swin and its kin have.
void read_swin_sizes(ConfigReader& reader, const ModelClass& of, SwinConfig& config);
double largest_tensor_of_swin(const SwinConfig& config, const DataConfig& data);

/// Of a SwinBackbone, which takes images of any size.
double largest_tensor_of_swin(const SwinConfig& config, std::int64_t images, std::int64_t height, std::int64_t width);
/// SwinBackbone
std::unique_ptr<const ImageBackbone> build_swin_backbone(const Builder& builder, const SwinConfig& config,
                                                         const std::vector<std::size_t>& features,
                                                         const ModelOptions& options);
std::unique_ptr<Model> build_swin(Context& context, const SwinConfig& config, const DataConfig& data,
                                  const ModelOptions& options);

}  // namespace oometer
