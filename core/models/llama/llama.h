#pragma once

#include <vector>

#include "models/llama/config.h"
#include "models/model.h"
#include "nn/block_stack.h"
#include "nn/module.h"

/// transformers 5.23, models/llama/modeling_llama.py. Names and order of steps are that file's.
namespace oometer {

struct PositionEmbeddings {
  Tensor cos, sin;
};

struct LlamaRMSNorm {
  LlamaRMSNorm() = default;
  LlamaRMSNorm(const Builder& builder, std::int64_t hidden_size);
  Tensor operator()(const Tensor& hidden_states) const;

  Tensor weight;
  ModuleId module = 0;
};

struct LlamaRotaryEmbedding {
  LlamaRotaryEmbedding() = default;
  LlamaRotaryEmbedding(const Builder& builder, const LlamaConfig& config);
  PositionEmbeddings operator()(const Tensor& x, const Tensor& position_ids) const;

  Tensor inv_freq, original_inv_freq;
  ModuleId module = 0;
};

struct LlamaMLP {
  LlamaMLP() = default;
  LlamaMLP(const Builder& builder, const LlamaConfig& config);
  Tensor operator()(const Tensor& x) const;

  Linear gate_proj, up_proj, down_proj;
  Activation act_fn = Activation::silu;
  ModuleId module = 0;
};

struct LlamaAttention {
  LlamaAttention() = default;
  LlamaAttention(const Builder& builder, const LlamaConfig& config, AttentionKind attention);
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct LlamaDecoderLayer {
  LlamaDecoderLayer() = default;
  LlamaDecoderLayer(const Builder& builder, const LlamaConfig& config, AttentionKind attention);
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const;

  LlamaAttention self_attn;
  LlamaMLP mlp;
  LlamaRMSNorm input_layernorm, post_attention_layernorm;
  ModuleId module = 0;
};

struct LlamaModel {
  LlamaModel() = default;
  LlamaModel(const Builder& builder, const LlamaConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& inputs_embeds) const;
  /// get_input_embeddings()(input_ids), with the hook that checkpointing puts there.
  Tensor embed(const Tensor& input_ids) const;

  Embedding embed_tokens;
  std::vector<LlamaDecoderLayer> layers;
  BlockStack blocks;
  LlamaRMSNorm norm;
  LlamaRotaryEmbedding rotary_emb;
  CheckpointingConfig checkpointing;
  std::size_t first_block = 0;  ///< checkpointable blocks of the whole model before this stack
  bool eager = false;
  ModuleId module = 0;
};

/// ForCausalLMLoss, transformers 5.23, loss/loss_utils.py.
Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels);

std::unique_ptr<Model> build_llama(Context& context, const LlamaConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
