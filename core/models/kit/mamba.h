#pragma once

#include <functional>
#include <memory>
#include <span>

#include "models/kit/causal_conv.h"
#include "models/kit/decoder.h"
#include "models/kit/norms.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_config.h"
#include "nn/module.h"
#include "peft/config.h"

/// Mamba's state space, as transformers runs it where neither `mamba_ssm` nor `causal_conv1d` is installed (5.23,
/// models/mamba/modeling_mamba.py; falcon_mamba's and jamba's are copies): a loop over the tokens.
namespace oometer {

/// What a class of such a mixer has of its own.
struct MambaParts {
  Norm::Forward norm = nullptr;  ///< of the time step, B and C; null: none
  const char* norm_type = nullptr;
  bool hands_to_kernel = true;  ///< mamba_inner_fn is called with the weights, before it is known that there is none
  bool has_buffers = false;     ///< the norms' weights are none, but ones that a kernel would get (FalconMambaMixer)
  bool makes_rates = false;     ///< __init__ makes A_log of integers, which are a name of its
};

class MambaMixer {
 public:
  /// Sizes are config.mixer's: as many heads as elements (num_value_heads), a state of key_head_dim. `layer_idx`: in
  /// the cache.
  MambaMixer(const Builder& builder, const TextConfig& config, std::int64_t time_step_rank, std::size_t layer_idx,
             const MambaParts& parts);
  /// `attention_mask`: which tokens are not padding, [b, s]; null: all.
  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

 private:
  std::int64_t inner_, state_, rank_;
  MambaParts parts_;
  CausalConv conv1d_;
  Linear in_proj_, x_proj_, dt_proj_, out_proj_;
  Tensor a_log_, d_;
  Norm dt_layernorm_, b_layernorm_, c_layernorm_;
  Activation activation_;
  std::size_t layer_idx_;
  ModuleId module_;
};

/// MambaBlock, Mamba2Block, FalconMambaBlock: a norm, a mixer, a residual that may be float32.
class MambaBlock : public DecoderLayer {
 public:
  using Mixer = std::function<Tensor(const Tensor& hidden_states, const Tensor& attention_mask)>;
  /// `make_mixer`: of a class's own, called "mixer".
  MambaBlock(const Builder& builder, const TextConfig& config, bool residual_in_fp32,
             const std::function<Mixer(const Builder& block)>& make_mixer);
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override;

 private:
  Norm norm_;
  Mixer mixer_;
  bool residual_in_fp32_;
  ModuleId module_;
};

/// MambaModel, Mamba2Model, FalconMambaModel, around such blocks.
DecoderParts mamba_model_parts();

/// Of models that are nothing else: every layer is such a block, and there is no attention.
struct StateSpaceConfig : TextConfig {
  bool residual_in_fp32 = true;

  bool operator==(const StateSpaceConfig&) const = default;
};

/// What such configs have alike. `config`: names, and what holds where the config does not say.
void read_state_space_model(ConfigReader& reader, StateSpaceConfig& config);
ModelTraits state_space_traits(const StateSpaceConfig& config);
/// The mixer reads dt_proj's weight itself, so that an adapter there gets no gradient. `others`: layers to name
/// instead.
void refuse_dt_proj(ConfigReader& reader, const LoraConfig& lora, const char* others);

template <typename Config, Config (*read)(ConfigReader&), DecoderParts (*parts)(const Config&, const ModelOptions&)>
constexpr Family state_space_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                                    void (*convert_targets)(ConfigReader&, const FamilyConfig&, LoraConfig&)) {
  Family its = text_family_of<Config, read, parts>(
      classes, blocks, [](const FamilyConfig& config) { return state_space_traits(config.as<Config>()); });
  its.build = [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
    const auto& c = config.as<Config>();
    std::unique_ptr<Model> model = build_text_family(context, c, data, options, parts(c, options));
    model->takes_position_ids = false;
    model->prompt_shape = {};  // it has no keys and values that a prefix could be of
    return model;
  };
  its.convert_targets = convert_targets;
  return its;
}

}  // namespace oometer
