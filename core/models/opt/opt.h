#pragma once

#include "models/kit/positioned.h"

/// transformers 5.23, models/opt/modeling_opt.py.
namespace oometer {

/// class OPTConfig: the fields that decide memory.
struct OptConfig : TextConfig {
  std::int64_t word_embed_proj_dim = 0;
  bool do_layer_norm_before = true, has_final_layer_norm = true, enable_bias = true;

  bool operator==(const OptConfig&) const = default;
};

OptConfig read_opt_config(ConfigReader& reader);

/// OPTForCausalLM's modules and its decoder's forward: of the class itself, and of those that hold one.
class OptLanguageModel : public PositionedLM {
 protected:
  using PositionedLM::PositionedLM;
  /// `causal_lm`: the builder of OPTForCausalLM.
  void make_causal_lm(const Builder& causal_lm, const OptConfig& config, const ModelOptions& options);
  Tensor decode(const Tensor& embeddings, const MaskArguments& given) const override;

 private:
  Embedding embed_positions_;
  Linear project_out_, project_in_;
};

}  // namespace oometer
