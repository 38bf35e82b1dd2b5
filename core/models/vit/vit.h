#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/activation.h"
#include "models/family.h"
#include "models/model.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "nn/module.h"

/// transformers 5.23, models/vit/modeling_vit.py. Names and order of steps are that file's.
namespace oometer {

class ConfigReader;

/// What the classes of an encoder of images are called, whose parts are ViT's.
struct VitClassNames {
  const char *model, *embeddings, *patch_embeddings, *layer, *attention, *mlp;
  const char* base;  ///< base_model_prefix
  bool eager_in_float32;
  const char* pooler = "";  ///< of a model without a head; empty: there is none
  std::int64_t num_class_tokens = 1;
  bool averages = false;  ///< what classifies reads the mean of all tokens

  bool operator==(const VitClassNames&) const = default;
};
inline constexpr VitClassNames kVit{
    "ViTModel", "ViTEmbeddings", "ViTPatchEmbeddings", "ViTLayer", "ViTAttention", "ViTMLP", "vit", true, "ViTPooler"};

/// class ViTConfig (models/vit/configuration_vit.py), and what Dinov2Config has beside: the fields that decide memory.
struct VitConfig {
  const VitClassNames* names = &kVit;
  const char* class_name = "";
  bool classifies = false;  ///< ForImageClassification
  std::int64_t num_labels = 2;
  std::int64_t hidden_size = 768;
  std::int64_t intermediate_size = 3072;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t num_channels = 3;
  std::int64_t image_size = 224;  ///< pixels, of a square
  std::int64_t patch_size = 16;
  std::int64_t pooler_output_size = 768;
  Activation hidden_act = Activation::gelu;
  double hidden_dropout_prob = 0, attention_probs_dropout_prob = 0;
  bool qkv_bias = true, key_bias = true;  ///< the keys' takes both
  bool use_absolute_position_embeddings = true;
  bool use_mask_token = false;  ///< a parameter that is made, and that no training of these classes reaches
  bool use_swiglu_ffn = false;
  std::int64_t num_register_tokens = 0;  ///< behind the [CLS] token, without positions (Dinov2WithRegisters)

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
  /// Of an image of so many pixels; floors as Conv2d does.
  std::int64_t patches(std::int64_t height, std::int64_t width) const {
    return (height / patch_size) * (width / patch_size);
  }
  std::int64_t num_positions() const { return patches(image_size, image_size) + names->num_class_tokens; }
  /// Of an image of so many patches.
  std::int64_t tokens(std::int64_t patches) const { return patches + names->num_class_tokens + num_register_tokens; }
  bool operator==(const VitConfig&) const = default;
};

struct VitAttention {
  VitAttention(const Builder& builder, const VitConfig& config, const ModelOptions& options);
  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& attention_mask = {}) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  bool eager_in_float32;
  AttentionCall call;
  ModuleId module;
};

struct VitMLP {
  VitMLP(const Builder& builder, const VitConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;

  Linear fc1, fc2;
  Activation activation_fn;
  ModuleId module;
};

/// Of DINOv2 and DINOv3: a factor for each channel.
struct VitLayerScale {
  VitLayerScale(const Builder& builder, std::int64_t hidden_size);
  Tensor operator()(const Tensor& hidden_states) const;

  Tensor lambda1;
  ModuleId module;
};

/// DropPath of BEiT and its kin: whole samples of a residual branch are left out at random, in training.
Tensor drop_path(const Tensor& hidden_states, double drop_prob);

struct VitLayer {
  VitLayer(const Builder& builder, const VitConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& hidden_states) const;

  VitAttention attention;
  LayerNorm layernorm_before, layernorm_after;
  VitMLP mlp;
  double dropout_prob;
  ModuleId module;
};

/// A list of layers, called `name`, each of which may be checkpointed.
struct VitLayers {
  VitLayers() = default;
  VitLayers(const Builder& builder, const char* name, const VitConfig& config, const ModelOptions& options);
  Tensor operator()(Tensor hidden_states) const;

  std::vector<VitLayer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
};

/// Patches, the [CLS] token before them, positions; registers.
struct VitEmbeddings {
  VitEmbeddings() = default;
  VitEmbeddings(const Builder& builder, const VitConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& pixel_values) const;
  /// The positions of an image of another size than the config's (interpolate_pos_encoding), in float32
  /// (Dinov2Embeddings).
  Tensor interpolate_pos_encoding(std::int64_t height, std::int64_t width) const;

  /// Null: the class, or its config, has none.
  Tensor cls_token, mask_token, position_embeddings, register_tokens, distillation_token;
  Conv2d projection;
  double dropout_prob = 0;
  CheckpointingConfig checkpointing;
  ModuleId module = 0, patch_embeddings = 0;
};

/// What reads images and nothing else: its batch, and the head that classifies them.
class ImageModel : public Model {
 public:
  void set_data(const DataConfig& data) override { data_ = data; }
  ModelInputs make_inputs(bool with_labels) override;

 protected:
  ImageModel(Context& context, const VitConfig& config, const DataConfig& data, const ModelOptions& options);
  /// The loss, if there are labels, and the logits.
  ModelOutputs classified(Tensor logits, const ModelInputs& inputs) const;

  Context& context_;
  DataConfig data_;
  VitConfig config_;
  DType dtype_;
  Builder root_;
};

/// A model whose forward ends in a pooler, and its ForImageClassification, whose head reads that.
class PooledImageModel : public ImageModel {
 public:
  ModelOutputs forward(const ModelInputs& inputs) override;

 protected:
  using ImageModel::ImageModel;
  void make_classifier();
  /// XModel.forward: the last hidden state.
  virtual Tensor model_forward(const Tensor& pixel_values, Tensor& pooled_output) const = 0;

  Linear classifier_;
};

/// For a class that gives pixel_values to its convolution as they are: the error where that would not take them.
void check_pixels(const Tensor& pixel_values, const Tensor& weight);

/// What a config says of images and labels, and of dropout.
void read_image_fields(ConfigReader& reader, const ModelClass& of, VitConfig& config);
/// The fields that the configs of ViT and its kin have.
void read_vit_sizes(ConfigReader& reader, const ModelClass& of, VitConfig& config);
ModelTraits vit_traits(const VitConfig& config);
/// Of ViT's kin, of which ZeRO-3 and FSDP were not compared.
ModelTraits vit_kin_traits(const FamilyConfig& config);
double largest_tensor_of_vit(const VitConfig& config, const DataConfig& data);
/// Images of any size, for a model whose positions follow it: 224 x 224, as the published processors of DINOv2 and
/// DINOv3 give them whatever the config's, unless the job says another.
void read_images_of_any_size(ConfigReader& reader, const VitConfig& config, DataConfig& data);
/// Pixels that the patches' convolution takes: data's own, or the config's.
std::unique_ptr<Model> build_vit(Context& context, const VitConfig& config, const DataConfig& data,
                                 const ModelOptions& options);

/// A family whose classes are ViT's under names of their own, which `read` says.
constexpr Family vit_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                            decltype(Family::read) read, decltype(Family::traits) traits) {
  return {
      .classes = classes,
      .blocks = blocks,
      .read = read,
      .build = [](Context& context, const FamilyConfig& config, const DataConfig& data,
                  const ModelOptions& options) { return build_vit(context, config.as<VitConfig>(), data, options); },
      .traits = traits,
      .largest_tensor = [](const FamilyConfig& config,
                           const DataConfig& data) { return largest_tensor_of_vit(config.as<VitConfig>(), data); }};
}

}  // namespace oometer
