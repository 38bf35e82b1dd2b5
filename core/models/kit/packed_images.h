#pragma once

#include <cstdint>

#include "models/kit/grids.h"

/// Images of any size as one row of patches, which a tower merges at its end: what Kimi K2.5's classes share with those
/// made after them (transformers 5.23, models/kimi_k25/modeling_kimi_k25.py).
namespace oometer {

/// What a class calls a layer of its tower, and the layer's sizes in elements.
struct PackedVisionConfig {
  const char *layer = "", *attention = "", *mlp = "";
  std::int64_t hidden_size = 0, intermediate_size = 0, num_attention_heads = 0;
  Activation hidden_act = Activation::gelu_tanh;
  bool finds_longest = false;  ///< see PatchAttention::apart
};

/// pos_emb_height and pos_emb_width, in patches: the classes take positions for a square.
std::int64_t read_square_positions(ConfigReader& reader, std::int64_t usual);

/// Kimi_K25VisionMLP
struct PackedVisionMLP {
  PackedVisionMLP(const Builder& builder, const PackedVisionConfig& config);
  Tensor operator()(const Tensor& x) const;

  Linear fc1, fc2;
  Activation act;
  ModuleId module;
};

/// Kimi_K25VisionEncoderLayer
struct PackedVisionLayer {
  PackedVisionLayer(const Builder& builder, const PackedVisionConfig& config, AttentionKind attention);
  Tensor operator()(const Tensor& hidden_states, const PatchSequences& sequences,
                    const PositionEmbeddings& positions) const {
    return run_vision_block(*this, hidden_states, sequences, positions);
  }

  LayerNorm norm1, norm2;
  PatchAttention attn;
  PackedVisionMLP mlp;
  ModuleId module;
};

/// Kimi_K25ForConditionalGeneration and those like it: `model_` is the class without the head.
class PackedImageModel : public LanguageModel {
 public:
  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override;
  TensorList encoded_images(const ModelInputs& batch) override;
  ModelOutputs forward(const ModelInputs& inputs) override;

 protected:
  PackedImageModel(Context& context, const char* class_name, const DataConfig& data, const ModelOptions& options);
  virtual Shape pixel_sizes() const = 0;
  /// get_image_features, before it counts the tokens of each image.
  virtual GridOutputs image_features(const Tensor& pixel_values) const = 0;
  /// forward puts another token in the place of images' and videos' before it embeds them.
  virtual bool masks_images() const { return true; }
  /// The class makes position_ids itself, where it was given none, once images are in the embeddings.
  virtual bool makes_positions() const { return false; }
  /// The images' features are among what forward gives (image_pooler_output).
  virtual bool gives_features() const { return false; }
  /// get_input_embeddings()(input_ids)
  virtual Tensor embed_tokens(const Tensor& input_ids) const { return language_model_.embed(input_ids); }

  ModuleId model_ = 0;

 private:
  void complete(ModelInputs& batch) override { make_images(batch, data_.images_per_sample); }
  /// Its pooler_output is split into each image's then.
  GridOutputs get_image_features(const Tensor& pixel_values) const;
  Tensor model_forward(const ModelInputs& inputs, Tensor& features) const;
};

}  // namespace oometer
