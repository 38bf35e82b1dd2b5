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

/// The loss of logits[..., :-1, :] and labels[..., 1:], both copied (models up to 4.44, loss_utils.py up to 4.50).
Tensor shifted_loss(const Tensor& logits, const Tensor& labels);

/// ForCausalLMLoss, transformers 5.23, loss/loss_utils.py. `liger`: with F.cross_entropy replaced.
Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels, bool liger = false);

/// The same cut along the sequence, of which one piece at a time is float32: torchtune 0.6's CEWithChunkedOutputLoss
/// (modules/loss/ce_chunked_output_loss.py) in the place that Axolotl gives it in transformers
/// (monkeypatch/loss/chunked.py, of LOSS_MAPPING's ForCausalLM; here of ForConditionalGeneration too), not compiled.
/// logits [b, s, classes], labels [b, s].
Tensor chunked_causal_lm_loss(const Tensor& logits, const Tensor& labels, std::int64_t chunks);

/// LigerForCausalLMLoss, liger-kernel 0.8.5, transformers/model/loss_utils.py: the head without its logits.
Tensor liger_causal_lm_loss(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels,
                            const LigerConfig& liger);

/// slice_logits_to_keep (transformers 5.23, modeling_utils.py) and the head.
Tensor logits_of(const Tensor& hidden_states, const Linear& lm_head, std::int64_t logits_to_keep);

/// The loss of what comes out of the model, and the logits if there are any.
ModelOutputs causal_lm_outputs(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels,
                               const ModelOptions& options);

std::unique_ptr<Model> build_llama(Context& context, const LlamaConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
