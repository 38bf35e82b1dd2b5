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
  Tensor position_ids{};  ///< for layers that make their own (Behaviours::rotary)
};

struct LlamaRMSNorm {
  LlamaRMSNorm() = default;
  LlamaRMSNorm(const Builder& builder, std::int64_t hidden_size, bool liger = false);
  Tensor operator()(const Tensor& hidden_states) const;

  Tensor weight;
  bool liger = false;  ///< LigerRMSNorm
  ModuleId module = 0;
};

struct LlamaRotaryEmbedding {
  LlamaRotaryEmbedding() = default;
  LlamaRotaryEmbedding(const Builder& builder, const LlamaConfig& config);
  /// `position_ids` of three dimensions: one each for frame, row and column (M-RoPE: Qwen2VLRotaryEmbedding).
  PositionEmbeddings operator()(const Tensor& x, const Tensor& position_ids) const;
  /// 4.37: rotary_emb(x, seq_len), of which apply_rotary_pos_emb then takes cos[position_ids], sin[position_ids].
  PositionEmbeddings cached(const Tensor& x) const;
  void set_cos_sin_cache(std::int64_t length, DType dtype) const;

  Tensor inv_freq, original_inv_freq;
  mutable Tensor cos_cached, sin_cached;  ///< up to 4.42, since 4.38 for others' sake only (_cos_cached)
  ModuleId module = 0;
};

/// Angles of the positions of several axes [..., d/2] (the rotary embeddings of Qwen-VL's language model and tower).
Tensor rotary_angles(const Tensor& position_ids, const Tensor& inv_freq);

/// x * cos + rotate_half(x) * sin.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin);

struct LlamaMLP {
  LlamaMLP() = default;
  LlamaMLP(const Builder& builder, const LlamaConfig& config, const LigerConfig& kernels = {});
  Tensor operator()(const Tensor& x) const;

  Linear gate_proj, up_proj, down_proj;
  Activation act_fn = Activation::silu;
  bool liger = false;  ///< LigerSwiGLUMLP
  ModuleId module = 0;
};

struct LlamaAttention {
  LlamaAttention() = default;
  LlamaAttention(const Builder& builder, const LlamaConfig& config, const ModelOptions& options);
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  LlamaRMSNorm q_norm, k_norm;  ///< where norms_heads
  LlamaRotaryEmbedding rotary_emb;
  std::int64_t head_dim = 0;
  AttentionCall call;
  std::size_t layer_idx = 0;
  bool projects_first = false, norms_heads = false;  ///< see LlamaClassNames
  bool liger_rope = false;
  ModuleId module = 0;
};

struct LlamaDecoderLayer {
  LlamaDecoderLayer() = default;
  LlamaDecoderLayer(const Builder& builder, const LlamaConfig& config, const ModelOptions& options);
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
  /// `position_ids`: null where the caller passes none. `with_padding_mask`: it passes a 2-D attention_mask.
  Tensor operator()(const Tensor& inputs_embeds, const Tensor& position_ids = {}, bool with_padding_mask = false) const;
  Tensor positions(Context& context, std::int64_t length) const;
  /// get_input_embeddings()(input_ids), with the hook that checkpointing puts there.
  Tensor embed(const Tensor& input_ids) const;

  Embedding embed_tokens;
  std::vector<LlamaDecoderLayer> layers;
  BlockStack blocks;
  LlamaRMSNorm norm;
  LlamaRotaryEmbedding rotary_emb;
  CheckpointingConfig checkpointing;
  bool eager = false;
  std::int64_t sliding_window = 0;
  std::vector<std::int64_t> windows;  ///< by layer
  bool makes_full_mask = true;        ///< whether or not a layer needs it
  ModuleId module = 0;
};

/// What a ForCausalLM's forward returns of hidden states: the loss if there are labels, and the logits
/// (`logits_to_keep` as slice_logits_to_keep has it: transformers 5.23, modeling_utils.py).
ModelOutputs causal_lm_outputs(const Tensor& hidden_states, const Linear& lm_head, const ModelInputs& inputs,
                               const LossFunction* loss_function);

std::unique_ptr<Model> build_llama(Context& context, const LlamaConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
