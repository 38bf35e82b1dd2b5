#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/detr/detr.h"
#include "models/kit/deformable_attention.h"
#include "models/rt_detr/resnet.h"

/// transformers 5.23, models/rt_detr/modeling_rt_detr.py. Names and order of steps are that file's.
namespace oometer {

/// What the classes of RT-DETR and its second version are called.
struct RTDetrClassNames {
  const char *model, *conv_encoder, *frozen_norm, *conv_norm, *csp, *rep_vgg, *aifi, *encoder_layer, *encoder,
      *self_attention, *cross_attention, *mlp, *decoder_layer, *decoder, *position_embedding, *head;
  // Of the second version:
  bool scales_points;  ///< its attention
  bool ties_heads;     ///< the class has heads of its own, and the decoder copies of them
};
inline constexpr RTDetrClassNames kRTDetr{"RTDetrModel",
                                          "RTDetrConvEncoder",
                                          "RTDetrFrozenBatchNorm2d",
                                          "RTDetrConvNormLayer",
                                          "RTDetrCSPRepLayer",
                                          "RTDetrRepVggBlock",
                                          "RTDetrAIFILayer",
                                          "RTDetrEncoderLayer",
                                          "RTDetrHybridEncoder",
                                          "RTDetrSelfAttention",
                                          "RTDetrMultiscaleDeformableAttention",
                                          "RTDetrMLP",
                                          "RTDetrDecoderLayer",
                                          "RTDetrDecoder",
                                          "RTDetrSinePositionEmbedding",
                                          "RTDetrMLPPredictionHead",
                                          false,
                                          false};

/// class RTDetrConfig (models/rt_detr/configuration_rt_detr.py). Of VitConfig's fields: labels and channels.
struct RTDetrConfig : VitConfig {
  const RTDetrClassNames* classes = &kRTDetr;
  ResNetConfig backbone;
  std::vector<std::size_t> features{2, 3, 4};  ///< stages of the backbone that it hands on, counted from the stem
  bool freeze_backbone_batch_norms = true, normalize_before = false, use_focal_loss = true, auxiliary_loss = true;
  std::int64_t encoder_hidden_dim = 256, encoder_layers = 1, encoder_ffn_dim = 1024, encoder_attention_heads = 8;
  std::vector<std::int64_t> encode_proj_layers{2};
  Activation encoder_activation_function = Activation::gelu, decoder_activation_function = Activation::relu;
  std::int64_t hidden_channels = 256;  ///< of a CSP layer
  std::int64_t d_model = 256, num_queries = 300, decoder_layers = 6, decoder_ffn_dim = 1024,
               decoder_attention_heads = 8, decoder_n_points = 4;
  std::int64_t num_denoising = 100;
  double dropout = 0, activation_dropout = 0, attention_dropout = 0, label_noise_ratio = 0.5, box_noise_scale = 1;

  std::int64_t levels() const { return static_cast<std::int64_t>(features.size()); }
  /// Noisy copies of an image's objects, and as many boxes that are none, where an image has `objects`; and how often
  /// each object is there.
  std::int64_t denoising_groups(std::int64_t objects) const {
    return num_denoising <= 0 || objects == 0 ? 0 : std::max<std::int64_t>(num_denoising / objects, 1);
  }
  std::int64_t denoising_queries(std::int64_t objects) const {
    return checked_product(2 * objects, denoising_groups(objects));
  }
  bool operator==(const RTDetrConfig&) const = default;
};

/// What get_contrastive_denoising_training_group gives; null: nothing is denoised.
struct Denoising {
  Tensor input_query_class, input_query_bbox, attn_mask, positive;
  std::int64_t groups = 0, queries = 0;
};

/// What the model hands to its loss.
struct RTDetrPredictions {
  Tensor outputs_class, outputs_coord, enc_topk_logits, enc_topk_bboxes;
};

/// RTDetrForObjectDetectionLoss
DetectionLoss rt_detr_loss(const RTDetrConfig& config, const RTDetrPredictions& outputs, const TensorList& labels,
                           const Denoising& denoising);

/// The config of RT-DETR and its second version, traits and sizes.
RTDetrConfig read_rt_detr(ConfigReader& reader, const ModelClass& of, const RTDetrClassNames& classes);
ModelTraits rt_detr_traits(const RTDetrConfig& config);
double largest_tensor_of_rt_detr(const RTDetrConfig& config, const DataConfig& data);
void read_rt_detr_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data);

std::unique_ptr<Model> build_rt_detr(Context& context, const RTDetrConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
