#pragma once

#include <memory>
#include <vector>

#include "models/kit/encoder.h"
#include "models/kit/norms.h"
#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "models/masking.h"
#include "nn/block_stack.h"

/// transformers 5.23, models/modernbert/modeling_modernbert.py. Names and order of steps are that file's.
namespace oometer {

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

struct ModernBertEncoderLayer {
  ModernBertEncoderLayer(const Builder& builder, const ModernBertConfig& config, const ModelOptions& options,
                         bool is_first);
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const;

 private:
  Tensor attn(const Tensor& hidden_states, const PositionEmbeddings& positions, const Tensor& attention_mask,
              Tensor& weights) const;
  Tensor mlp(const Tensor& hidden_states) const;

  Norm attn_norm_, mlp_norm_;  ///< the first layer has but the second
  Linear qkv_, attn_out_, mlp_in_, mlp_out_;
  AttentionCall call_;
  std::int64_t head_dim_ = 0;
  double mlp_dropout_ = 0;
  Activation act_ = Activation::gelu;
  ModuleId attn_module_ = 0, mlp_module_ = 0, module_ = 0;
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
