#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/kit/causal_conv.h"
#include "models/kit/norms.h"
#include "models/kit/recurrent.h"
#include "nn/attention.h"
#include "nn/module.h"
#include "ops/mamba_scan.h"
#include "peft/config.h"

/// Mamba-2's state space, as transformers runs it where neither `mamba_ssm` nor `causal_conv1d` is installed (5.23,
/// models/mamba2/modeling_mamba2.py; the others' are copies).
namespace oometer {

/// hidden_states [b, s, heads, d], dt [b, s, heads], A, D and dt_bias [heads], B and C [b, s, groups, state].
struct ScanInputs {
  Tensor hidden_states, dt, a, b, c, d, dt_bias;
};
ChunkScan mamba2_chunk_scan(const ScanInputs& inputs, std::int64_t chunk_size);

/// What a class of such a mixer has of its own.
struct Mamba2Parts {
  const char* norm_type = nullptr;
  bool has_norm = true;            ///< else the scan's result is multiplied by silu(gate) (FalconH1Mixer)
  bool norms_before_gate = false;  ///< mamba_norm_before_gate
  bool scales_in_float32 = false;  ///< the norm's weight (FalconH1RMSNormGated)
  /// What in_proj gives is multiplied by, and that what it gets is (FalconH1Mixer); null: neither is. It may be made
  /// later.
  std::shared_ptr<Tensor> mup_vector = {};
  std::optional<bool> output_bias = {};  ///< out_proj's; none: in_proj's
};

class Mamba2Mixer {
 public:
  /// Sizes are config.mixer's; `layer_idx`: in the cache.
  Mamba2Mixer(const Builder& builder, const TextConfig& config, Activation activation, std::size_t layer_idx,
              const Mamba2Parts& parts);
  /// `attention_mask`: which tokens are not padding, [b, s]; null: all.
  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

 private:
  Tensor norm(const Tensor& hidden_states, const Tensor& gate) const;

  MixerConfig sizes_;
  Mamba2Parts parts_;
  CausalConv conv1d_;
  Linear in_proj_, out_proj_;
  Tensor dt_bias_, a_log_, d_;
  Norm norm_;
  Activation activation_ = Activation::silu;
  std::size_t layer_idx_ = 0;
  ModuleId module_ = 0;
};

/// The fields of Bamba's config and its kin (mamba_n_heads ...); `usual`: where the config does not say. `inner_key`,
/// `usual_inner`: what says how many elements all heads have together; null, or null in the config: mamba_expand.
void read_mamba2_sizes(ConfigReader& reader, TextConfig& config, MixerConfig usual, const char* inner_key = nullptr,
                       std::int64_t usual_inner = 0);
/// Heads and elements that groups have to divide.
void read_mamba_groups(ConfigReader& reader, const TextConfig& config);
/// peft adapts no `out_proj` and no `conv1d` of some models with such `mixers` (paths): it stops (0.21.2,
/// tuners/tuners_utils.py, _check_lora_target_modules_mamba: falcon_h1, mamba2, nemotron_h).
void refuse_mamba_targets(ConfigReader& reader, const LoraConfig& lora, const std::vector<std::string>& mixers);

}  // namespace oometer
