#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/kit/detection.h"
#include "models/masking.h"
#include "models/resnet/timm_resnet.h"
#include "nn/block_stack.h"
#include "tensor/tensor_list.h"

/// transformers 5.23, models/detr/modeling_detr.py. Names and order of steps are that file's.
namespace oometer {

/// What the classes of DETR and its kin are called.
struct DetrClassNames {
  const char *model, *conv_encoder, *frozen_norm, *position_embedding, *encoder, *encoder_layer, *decoder,
      *decoder_layer, *self_attention, *mlp, *head;
};
inline constexpr DetrClassNames kDetr{
    "DetrModel",         "DetrConvEncoder",  "DetrFrozenBatchNorm2d", "DetrSinePositionEmbedding",
    "DetrEncoder",       "DetrEncoderLayer", "DetrDecoder",           "DetrDecoderLayer",
    "DetrSelfAttention", "DetrMLP",          "DetrMLPPredictionHead"};

/// class DetrConfig (models/detr/configuration_detr.py). Of VitConfig's fields: classes, labels, channels, activation.
struct DetrConfig : VitConfig {
  const DetrClassNames* classes = &kDetr;
  bool detects = false;  ///< ForObjectDetection
  ResNetConfig backbone;
  const TimmResNetConfig* timm = nullptr;  ///< the backbone is timm's; null: transformers'
  std::int64_t output_stride = 32;         ///< timm's: 16 or 8 of a backbone that dilates
  std::vector<std::size_t> features{4};    ///< stages of the backbone that it hands on, counted from the stem
  std::int64_t num_queries = 100, d_model = 256;
  std::int64_t encoder_layers = 6, encoder_ffn_dim = 2048, encoder_attention_heads = 8;
  std::int64_t decoder_layers = 6, decoder_ffn_dim = 2048, decoder_attention_heads = 8;
  double dropout = 0.1, attention_dropout = 0, activation_dropout = 0;
  bool auxiliary_loss = false;
  bool operator==(const DetrConfig&) const = default;
};

/// A feature map, and the mask of its padding.
struct DetrFeatures {
  Tensor feature_map, mask;
};

/// DetrConvEncoder: a ResNet whose norms are frozen, and which does not train if it is transformers'.
struct DetrConvEncoder {
  DetrConvEncoder(const Builder& builder, const DetrConfig& config);
  List<DetrFeatures> operator()(const Tensor& pixel_values, const Tensor& pixel_mask) const;

  std::optional<ResNetBody> model;
  std::optional<TimmResNet> timm;
  std::vector<std::size_t> features;
  ModuleId module, model_module = 0;
};

/// DetrSinePositionEmbedding, whose last result and mask lru_cache keeps.
struct DetrSinePositionEmbedding {
  /// `centers`: places are the middle of what they stand for.
  DetrSinePositionEmbedding(const Builder& builder, std::int64_t num_position_features, bool centers = false);
  Tensor operator()(DType dtype, const Tensor& mask);

  std::int64_t num_position_features;
  bool centers;
  Tensor cached_mask, cached;
  ModuleId module;
};

/// DetrSelfAttention, DetrCrossAttention: positions are added to queries and keys.
struct DetrAttention {
  DetrAttention(const Builder& builder, std::int64_t d_model, std::int64_t heads, const AttentionCall& attention);
  DetrAttention(const Builder& builder, const DetrConfig& config, std::int64_t heads, const ModelOptions& options)
      : DetrAttention(builder, config.d_model, heads,
                      {.kind = options.attention, .dropout = config.attention_dropout}) {}
  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& position_embeddings,
                              const Tensor& key_value_states = {}, const Tensor& key_positions = {},
                              const Tensor& attention_mask = {}) const;

  Linear k_proj, v_proj, q_proj, o_proj;
  std::int64_t head_dim;
  AttentionCall attention;
  ModuleId module;
};

struct DetrMLP {
  DetrMLP(const Builder& builder, std::int64_t d_model, std::int64_t intermediate_size, Activation activation,
          double activation_dropout, double dropout);
  DetrMLP(const Builder& builder, const DetrConfig& c, std::int64_t intermediate_size)
      : DetrMLP(builder, c.d_model, intermediate_size, c.hidden_act, c.activation_dropout, c.dropout) {}
  Tensor operator()(const Tensor& hidden_states) const;

  Linear fc1, fc2;
  Activation activation_fn;
  double activation_dropout, dropout_prob;
  ModuleId module;
};

/// What the decoder's layers read beside the queries.
struct DetrSources {
  Tensor spatial_position_embeddings, object_queries_position_embeddings, encoder_hidden_states;
};

/// `torch.isfinite(hidden_states).all()`
void check_finite(const Tensor& hidden_states);

/// DetrEncoderLayer, DetrDecoderLayer: the second has attention to what the encoder gave, too.
struct DetrLayer {
  DetrLayer(const Builder& builder, const DetrConfig& config, const ModelOptions& options, bool is_decoder);
  Tensor operator()(const Tensor& hidden_states, const DetrSources& sources) const;

  DetrAttention self_attn;
  LayerNorm self_attn_layer_norm;
  std::optional<DetrAttention> encoder_attn;
  LayerNorm encoder_attn_layer_norm;
  std::optional<DetrMLP> mlp;
  LayerNorm final_layer_norm;
  double dropout_prob;
  ModuleId module;
};

/// DetrEncoder, DetrDecoder
struct DetrStack {
  DetrStack(const Builder& builder, const DetrConfig& config, const ModelOptions& options, bool is_decoder);
  Tensor run(std::size_t begin, std::size_t end, Tensor hidden_states, const DetrSources& sources) const;

  std::vector<DetrLayer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
  LayerNorm layernorm;
  ModuleId module;
};

/// What the encoder hands to the decoder.
struct DetrEncoded {
  DetrSources sources;
  Tensor flattened_mask;
  // What the class's forward holds until it returns.
  Tensor pixel_mask, projected_feature_map, flattened_features;
  List<DetrFeatures> vision_features;

  /// The end of that forward: its names go in their order.
  void let_go();
};

/// DetrModel.__init__ and its forward as far as its decoder; and the batch.
class DetrBase : public ImageModel {
 public:
  ModelInputs make_inputs(bool with_labels) override;

 protected:
  DetrBase(Context& context, const DetrConfig& config, const DataConfig& data, const ModelOptions& options);
  /// Of pixels that `call` was made with.
  void encode_images(const Tensor& pixel_values, DetrEncoded& result);

  DetrConfig own_;
  MaskedBy masked_;
  Builder model_builder_;
  DetrConvEncoder backbone_;
  DetrSinePositionEmbedding position_embedding_;
  Embedding query_position_embeddings_;
  AnyConv2d input_projection_;
  DetrStack encoder_;
};

/// The config of DETR and its kin, traits and sizes.
DetrConfig read_detr(ConfigReader& reader, const ModelClass& of, bool detects, const DetrClassNames& classes,
                     std::int64_t usual_ffn_dim = 2048);
ModelTraits detr_traits(const DetrConfig& config);
double largest_tensor_of_detr(const DetrConfig& config, const DataConfig& data);

std::unique_ptr<Model> build_detr(Context& context, const DetrConfig& config, const DataConfig& data,
                                  const ModelOptions& options);

}  // namespace oometer
