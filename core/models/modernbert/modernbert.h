#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "models/kit/encoder.h"
#include "models/kit/norms.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "models/masking.h"
#include "nn/block_stack.h"

/// transformers 5.23, models/modernbert/modeling_modernbert.py. Names and order of steps are that file's.
namespace oometer {

class ConfigReader;

/// class ModernBertConfig: the fields that decide memory. Sizes are elements.
struct ModernBertConfig : EncoderConfig {
  std::vector<bool> slides;          ///< by layer: those that see a window only
  std::int64_t sliding_window = 64;  ///< tokens on either side: half of local_attention
  bool norm_bias = false, attention_bias = false, mlp_bias = false, decoder_bias = true, classifier_bias = false;
  double attention_dropout = 0, embedding_dropout = 0, mlp_dropout = 0, classifier_dropout = 0;
  bool pools_mean = false;  ///< classifier_pooling "mean"
  Activation classifier_activation = Activation::gelu;

  bool operator==(const ModernBertConfig&) const = default;
};

struct ModernBertMLP {
  ModernBertMLP(const Builder& builder, std::int64_t hidden_size, std::int64_t intermediate_size, bool bias);
  Tensor operator()(const Tensor& hidden_states) const;

  Linear in, out;
  double dropout = 0;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

/// apply_rotary_pos_emb, in float32.
std::pair<Tensor, Tensor> rotate_as_modernbert(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);

struct ModernBertPredictionHead {
  ModernBertPredictionHead() = default;
  ModernBertPredictionHead(const Builder& builder, std::int64_t hidden_size, bool bias, bool norm_bias, Activation act);
  Tensor operator()(const Tensor& hidden_states) const;

  Linear dense;
  Norm norm;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

/// layer_types, or as every n-th layer sees all.
std::vector<bool> read_modernbert_slides(ConfigReader& reader, std::int64_t layers);

struct ModernBertEncoderLayer {
  ModernBertEncoderLayer(const Builder& builder, const ModernBertConfig& config, const ModelOptions& options,
                         bool is_first);
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const;

 private:
  Tensor attn(const Tensor& hidden_states, const PositionEmbeddings& positions, const Tensor& attention_mask,
              Tensor& weights) const;

  Norm attn_norm_, mlp_norm_;  ///< the first layer has but the second
  Linear qkv_, attn_out_;
  std::optional<ModernBertMLP> mlp_;
  AttentionCall call_;
  std::int64_t head_dim_ = 0;
  ModuleId attn_module_ = 0, module_ = 0;
};

struct ModernBertModel {
  ModernBertModel() = default;
  ModernBertModel(const Builder& builder, const ModernBertConfig& config, const ModelOptions& options);
  Tensor operator()(const ModelInputs& inputs) const;

  Embedding tok_embeddings;
  Norm norm, final_norm;
  LlamaRotaryEmbedding full_rotary, sliding_rotary;
  std::vector<ModernBertEncoderLayer> layers;
  BlockStack blocks;
  std::vector<bool> slides;
  std::int64_t sliding_window = 0;
  double embedding_dropout = 0;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId embeddings = 0, module = 0;
};

std::unique_ptr<Model> build_modernbert(Context& context, const ModernBertConfig& config, const DataConfig& data,
                                        const ModelOptions& options);

}  // namespace oometer
