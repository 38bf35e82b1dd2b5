#pragma once

#include <memory>
#include <string_view>

#include "models/kit/decoder_layer.h"
#include "models/llama/config.h"
#include "models/model.h"
#include "nn/module.h"

/// transformers 5.23, models/llama/modeling_llama.py. Names and order of steps are that file's.
namespace oometer {

/// Trainer.get_decay_parameter_names (transformers 5.23, trainer.py): what is not nn.LayerNorm is a norm by its name,
/// which Qwen2.5-VL's norm1, norm2 and ln_q are not.
bool is_named_norm(std::string_view name);

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

Tensor rotate_half(const Tensor& x);
/// x * cos + rotate_half(x) * sin. Of neighbours, x[..., 0::2] and x[..., 1::2], it is the same memory.
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
  /// Queries, keys and values before positions are added.
  AttentionInputs projected(const Tensor& hidden_states) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  LlamaRMSNorm q_norm, k_norm;  ///< Qwen3Attention, of each head: where norms_heads
  LlamaRotaryEmbedding rotary_emb;
  std::int64_t head_dim = 0;
  AttentionCall call;
  std::size_t layer_idx = 0;
  bool projects_first = false, norms_heads = false;  ///< see LlamaClassNames
  bool liger_rope = false;
  ModuleId module = 0;
};

/// A layer with a norm before its attention and one before what follows: LlamaDecoderLayer.forward.
class PreNormLayer : public DecoderLayer {
 public:
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override;

 protected:
  explicit PreNormLayer(const Builder& builder) : module_(builder.module) {}
  void make_norms(const Builder& builder, const char* type, std::int64_t hidden_size, bool liger = false);
  virtual AttentionOutputs self_attn(const Tensor& hidden_states, const PositionEmbeddings& positions,
                                     const Tensor& attention_mask) const = 0;
  /// An MLP, or experts.
  virtual Tensor mlp(const Tensor& hidden_states) const = 0;

 private:
  LlamaRMSNorm input_layernorm_, post_attention_layernorm_;
  ModuleId module_ = 0;
};

class LlamaDecoderLayer : public PreNormLayer {
 public:
  LlamaDecoderLayer(const Builder& builder, const LlamaConfig& config, const ModelOptions& options);

 private:
  AttentionOutputs self_attn(const Tensor& hidden_states, const PositionEmbeddings& positions,
                             const Tensor& attention_mask) const override {
    return self_attn_(hidden_states, positions, attention_mask);
  }
  Tensor mlp(const Tensor& hidden_states) const override { return mlp_(hidden_states); }

  LlamaAttention self_attn_;
  LlamaMLP mlp_;
};

std::unique_ptr<Model> build_llama(Context& context, const LlamaConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
