#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "models/data.h"
#include "models/kit/decoder.h"
#include "models/kit/norms.h"
#include "models/kit/videos.h"
#include "models/model.h"
#include "nn/attention.h"
#include "nn/module.h"
#include "ops/ops.h"

/// Images of any size, each a grid of patches (image_grid_thw): what Qwen2-VL's classes share with those made after
/// them (transformers 5.23, vision_utils.py, models/qwen2_vl/modeling_qwen2_vl.py).
namespace oometer {

class ConfigReader;

/// CUB's scratch memory for a scan or a selection of int32: descriptors of 8 bytes, of 32 tiles for the first tile.
inline constexpr std::int64_t kSmallScan = 1023;

/// What makes a grid of an image: the model's sizes, and the limits that the published models' processors have, in
/// pixels of the whole image.
struct GridRule {
  std::int64_t patch_size = 14, spatial_merge_size = 2, temporal_patch_size = 2;
  std::int64_t min_pixels = 0, max_pixels = 0;
  /// Limits are of all frames that make a patch together, and what is smaller than a token grows to one first; there
  /// is one frame (models/glm4v/image_processing_glm4v.py).
  bool of_all_frames = false;
  bool grows_sides = false;  ///< a side that is shorter than a token first (models/paddleocr_vl)
  VideoRule video{};         ///< of `data.video`; its max_pixels 0: no videos are modelled
};
/// Limits of smart_resize.
struct Pixels {
  double min = 0, max = 0;
};
/// smart_resize (models/qwen2_vl/image_processing_qwen2_vl.py) with Python's arithmetic, in units of `factor` pixels:
/// the limits are of so many frames together, rounded to those of whole patches.
std::pair<std::int64_t, std::int64_t> smart_resize(const std::vector<std::int64_t>& size, std::int64_t factor,
                                                   const Pixels& limits, std::int64_t frames = 1,
                                                   std::int64_t frames_of_patch = 1);
/// The first lines of glm4v's and qwen3_vl's, with Python's arithmetic.
void grow_to_token(std::vector<std::int64_t>& size, std::int64_t factor);
/// The same of paddleocr_vl's.
void grow_sides(std::vector<std::int64_t>& size, std::int64_t factor);
/// Heads of which half rotates by the row and half by the column, each half in pairs (compute_axial_rope_parameters).
void check_axial_heads(ConfigReader& reader, std::int64_t hidden_size, const char* heads_key, std::int64_t heads);
/// A job's `data.grid_thw`, or the grid that the processor makes of `image_size` and `frames`: smart_resize
/// (models/qwen2_vl/image_processing_qwen2_vl.py).
void read_grid(ConfigReader& reader, const GridRule& rule, DataConfig& data);
/// Notes in the reader that a micro-batch has more sequences of attention than can be modelled.
void check_sequences(ConfigReader& reader, std::int64_t sequences);

/// Patches that attend to one another: cu_seqlens, which holds the bounds of the sequences, and their lengths.
struct PatchSequences {
  Tensor cu_seqlens;
  std::vector<std::int64_t> lengths;
};
/// Attention within each sequence by flash-attn, over all of them together (cu_seq_lens_q, max_length_q): query, key
/// and value [1, heads, patches, head_dim].
AttentionOutputs attend_within(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value,
                               const PatchSequences& sequences);
/// get_max_seqlen, which only flash-attn asks for; transformers 5.23, utils/generic.py.
void ask_max_seqlen(const PatchSequences& sequences, AttentionKind attention);
/// get_vision_cu_seqlens: the frames of all images, or with `merges_frames` the images.
PatchSequences vision_cu_seqlens(Context& context, const DataConfig& data, bool merges_frames);
/// The frames of all images (get_vision_attention_seqlens).
PatchSequences frames_of(Context& context, const DataConfig& data, AttentionKind attention);

/// Windows of `side` by `side` units of `merge` by `merge` patches (get_vision_window_index).
struct WindowRule {
  std::int64_t side = 1, merge = 1;
};
/// Patches that attend to one another in one image.
std::vector<std::int64_t> window_lengths(const WindowRule& rule, const ImageShape& image);
/// How many windows an image has, those that hold nothing but padding too.
std::int64_t windows_with_padding(const WindowRule& rule, const ImageShape& image);
/// The windows of all images. Which patch is in which is found on the host.
PatchSequences windows_of(Context& context, const WindowRule& rule, const DataConfig& data);

/// get_vision_position_ids: [patches, 2].
Tensor vision_position_ids(Context& context, const DataConfig& data);
/// Qwen2_5_VLVisionRotaryEmbedding.forward; MuseGlimmerVisionRotaryEmbedding's gives them the hidden states' type.
PositionEmbeddings vision_rotary(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                 DType dtype = DType::float32);
/// torch.repeat_interleave(column, repeats) of so many elements together, where each is a column of the grid of
/// `images` rows or a tensor of its own; or of rows of so many columns.
Tensor repeat_interleave(Context& context, std::int64_t images, bool repeats_by_column, std::int64_t elements,
                         std::int64_t columns = 1);

/// VisionAttention, Qwen3VLVisionAttention, Glm4vVisionAttention: each sequence attends by itself.
struct PatchAttention {
  /// One of four projections, in the order in which a class makes them.
  struct Projection {
    const char* name;
    Linear PatchAttention::*of;
    bool bias = true;
    std::int64_t heads = 0;  ///< of keys and values; 0: as many as of queries
  };

  PatchAttention() = default;
  PatchAttention(const Builder& builder, std::int64_t hidden_size, std::int64_t num_heads, AttentionKind attention,
                 bool qkv_bias = true, bool proj_bias = true);
  /// Exaone4_5_VisionAttention: fewer heads of keys and values than of queries, projected together.
  static PatchAttention grouped(const Builder& builder, std::int64_t hidden_size, std::int64_t num_heads,
                                std::int64_t num_key_value_heads, AttentionKind attention);
  /// Kimi_K25VisionAttention: with three projections. `finds_longest`: it is not told max_seqlen.
  static PatchAttention apart(const Builder& builder, std::int64_t hidden_size, std::int64_t num_heads,
                              AttentionKind attention, bool finds_longest);
  /// With query, key and value apart, under names of their own.
  static PatchAttention apart(const Builder& builder, std::int64_t hidden_size, std::int64_t num_heads,
                              AttentionKind attention, std::initializer_list<Projection> projections);
  /// `positions`: null ones rotate nothing.
  /// `attn_weights`: where they go if the class gives them to its layer, too.
  Tensor operator()(const Tensor& argument, const PatchSequences& sequences, const PositionEmbeddings& positions,
                    TensorList* attn_weights = nullptr) const;

  Linear qkv, q_proj, k_proj, v_proj, proj;
  Norm q_norm, k_norm;  ///< of heads, before they rotate (GlmOcrVisionAttention)
  bool is_apart = false, finds_longest = false;
  std::int64_t num_heads = 0, head_dim = 0;
  std::int64_t num_key_value_heads = 0;  ///< of `qkv`; 0: as many as num_heads
  AttentionCall call;
  ModuleId module = 0;
};

/// The float32 angles of all blocks as one of them is called with them: FSDP2 casts keywords, too.
PositionEmbeddings cast_forward_input(const PositionEmbeddings& positions, ModuleId block);

/// Qwen2VLVisionBlock.forward, Qwen3VLVisionBlock.forward, Glm4vVisionBlock.forward
template <class Block>
Tensor run_vision_block(const Block& block, const Tensor& hidden_in, const PatchSequences& sequences,
                        const PositionEmbeddings& positions) {
  const ModuleScope scope(hidden_in.context(), block.module);
  Tensor hidden_states = block.norm1(hidden_in);
  hidden_states = block.attn(hidden_states, sequences, positions);
  hidden_states = add(hidden_in, hidden_states);
  Tensor transformed = block.norm2(hidden_states);
  transformed = block.mlp(transformed);
  Tensor result = add(hidden_states, transformed);
  transformed.reset();
  return result;
}

/// PatchEmbed, Qwen3VLVisionPatchEmbed, Glm4vVisionPatchEmbed: a convolution over single patches.
struct GridPatchEmbed {
  GridPatchEmbed() = default;
  /// `sizes`: of the convolution's weight [hidden, channels, frames, patch, patch].
  GridPatchEmbed(const Builder& builder, const Shape& sizes, bool bias, const CheckpointingConfig& checkpointing);
  Tensor operator()(const Tensor& pixel_values) const;

  Tensor weight, bias;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0, proj = 0;
};

/// get_placeholder_mask, of images or videos, each [.., 1]; `other`: that of the others.
Tensor grid_placeholder_mask(const Tensor& input_ids, Tensor& other, bool of_videos);

/// What a tower of grids gives. `deepstack_features`: of blocks in the middle, merged (Qwen3-VL).
struct GridOutputs {
  Tensor last_hidden_state, pooler_output;
  TensorList deepstack_features{};
};

/// A tower of grids as another family has it, too.
class GridTower {
 public:
  virtual ~GridTower() = default;
  virtual GridOutputs operator()(const Tensor& pixel_values, const DataConfig& data) const = 0;
  /// Its first parameter, whose type is the tower's.
  virtual const Tensor& first_parameter() const = 0;
  virtual BlockStack& block_stack() = 0;
};

/// Positions that a caller gives, as Qwen2_5_VLTextModel.forward takes them: of frame, row and column, without the
/// text's own that generate() has.
Tensor frame_row_column(const Tensor& position_ids);

/// Qwen2VLForConditionalGeneration and those like it. image_grid_thw is on the device, as whoever moves a batch there
/// leaves it. The batch has its position_ids, as get_rope_index makes them in a data collator; a processor's own has
/// not, and the model finds them (compute_3d_position_ids).
class GridLanguageModel : public LanguageModel {
 public:
  /// The processor's batch: no position ids, but which tokens are an image's.
  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override;
  TensorList encoded_images(const ModelInputs& batch) override;
  Tensor prepare_position_ids(const ModelInputs& batch, Tensor text_positions, bool continues) override;
  ModelOutputs forward(const ModelInputs& inputs) override;

 protected:
  /// `patch_elements`: of a row of pixel_values. `has_seconds`: it takes second_per_grid_ts.
  GridLanguageModel(Context& context, const char* class_name, const DataConfig& data, const ModelOptions& options,
                    std::int64_t patch_elements, bool has_seconds)
      : LanguageModel(context, class_name, Modality::none, data, options),
        patch_elements_(patch_elements),
        has_seconds_(has_seconds) {}
  virtual GridOutputs run_tower(const Tensor& pixel_values) const = 0;
  /// Its first parameter, whose type is the tower's.
  virtual const Tensor& first_of_tower() const = 0;
  /// Positions that the text model makes itself are four: the text's own, then those of frame, row and column.
  virtual bool text_positions_come_first() const { return false; }
  /// get_placeholder_mask; `other`: that of what the batch has not.
  virtual Tensor find_placeholders(const Tensor& input_ids, Tensor& other, bool of_videos) const {
    return grid_placeholder_mask(input_ids, other, of_videos);
  }
  /// A prompt has a timestamp before each frame of a video.
  virtual bool times_frames() const { return text_positions_come_first(); }

  void make_pixel_values(ModelInputs& batch) const;
  Tensor compute_3d_position_ids(const ModelInputs& inputs);
  GridOutputs image_features(const Tensor& pixel_values) const;
  void complete(ModelInputs& batch) override;

  ModuleId model_ = 0;

 private:
  /// generate() is given pixel_values_videos; training too where the job says `video`, else pixel_values.
  bool is_video() const { return data_.grid_t > 1; }
  Tensor token_position_ids(const ImageShape& image) const;
  Tensor rope_index(const Tensor& input_ids, bool is_masked, const Rows* rows);
  Tensor model_forward(const ModelInputs& inputs);

  std::int64_t patch_elements_ = 0;
  bool has_seconds_ = false;
  Tensor rope_deltas_;  ///< the model's, until it finds others
};

}  // namespace oometer
