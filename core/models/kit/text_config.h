#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/llama/config.h"
#include "runtime/behaviours.h"

/// The config of a language model made from the kit.
namespace oometer {

struct RouterLogits;

/// The experts of a layer that has some, as a config names them. Sizes are elements.
struct ExpertsConfig {
  std::int64_t num_experts = 0;  ///< 0: it is no mixture of experts
  std::int64_t num_experts_per_tok = 0;
  std::int64_t intermediate_size = 0;  ///< moe_intermediate_size, where there is one
  std::int64_t shared_intermediate_size = 0;
  std::int64_t n_group = 1, topk_group = 1;  ///< groups of experts, and of how many of them are chosen
  bool norm_topk_prob = false;
  bool has_bias = false;               ///< that only the choice of experts sees (use_expert_bias)
  bool balances = false;               ///< the class has output_router_logits and router_aux_loss_coef, which is not 0
  bool are_counted = true;             ///< or TRL's head stops: such a class whose config has no num_experts
  bool outputs_router_logits = false;  ///< output_router_logits, of such a class
  std::vector<bool> layers{};          ///< which have experts; empty: each
  std::shared_ptr<RouterLogits>
      router_logits{};  ///< where the routers of the model that is built put them; null: nowhere

  bool are_in(std::size_t layer) const { return layers.empty() || layers[layer]; }
  bool operator==(const ExpertsConfig&) const = default;
};

/// What stands in attention's place in some layers: linear attention, a state space or a short convolution. Sizes are
/// elements.
struct MixerConfig {
  std::vector<bool> layers{};                           ///< which have it; empty: none
  std::int64_t conv_kernel = 0;                         ///< tokens that its causal convolution sees
  std::int64_t num_key_heads = 0, num_value_heads = 0;  ///< of a state space: its groups, its heads
  std::int64_t key_head_dim = 0, value_head_dim = 0;    ///< of a state space: its state, its head
  std::int64_t chunk_size = 64;                         ///< tokens
  bool conv_bias = false, bias = false;                 ///< of its projections
  Kernels kernels = Kernels::torch;                     ///< that can run in place of the class's own code

  bool is_in(std::size_t layer) const { return !layers.empty() && layers[layer]; }
  std::int64_t key_size() const { return num_key_heads * key_head_dim; }
  std::int64_t value_size() const { return num_value_heads * value_head_dim; }
  bool operator==(const MixerConfig&) const = default;
};

/// Llama's, and what decides memory in classes that are not copies of Llama's.
struct TextConfig : LlamaConfig {
  std::int64_t rotary_dim = 0;      ///< elements of a head that are rotated (partial_rotary_factor)
  std::vector<bool> rotates;        ///< by layer; empty: each does
  bool softcaps_attention = false;  ///< attn_logit_softcapping
  bool softcaps_logits = false;     ///< final_logit_softcapping
  bool norms_queries = false;       ///< use_qk_norm, qk_layernorm
  bool is_parallel = false;         ///< use_parallel_residual
  double residual_dropout = 0, embedding_dropout = 0;
  double layer_dropout = 0;  ///< the layer's own, of what attention and MLP give
  ExpertsConfig experts;
  MixerConfig mixer;

  /// Some layers slide, others do not.
  bool has_both_types() const;
  bool rotates_in(std::size_t layer) const { return rotates.empty() || rotates[layer]; }
  bool operator==(const TextConfig&) const = default;
};

/// The fields that nearly all have, as read_llama_sizes reads them. `defaults`: the class's own (num_key_value_heads 0:
/// as many as num_attention_heads). `usual_head_dim`: of a class that has one whatever hidden_size is; 0: it follows.
TextConfig read_text_sizes(ConfigReader& reader, const TextConfig& defaults, std::int64_t usual_head_dim = 0);
/// The size of a head of classes whose config has none: heads share hidden_size, without a rest.
void share_hidden_size(ConfigReader& reader, TextConfig& config);

/// rope_parameters.partial_rotary_factor, or at the top as older files have it; an even number of a head's elements.
void read_partial_rotary(ConfigReader& reader, TextConfig& config, double usual);

/// `layer_types` of full_attention and `mixer` ("linear_attention", "conv"); where they are not given, every
/// `pattern`-th layer has attention.
void read_mixer_layers(ConfigReader& reader, TextConfig& config, const char* mixer, std::int64_t pattern);

/// `layer_types` of full_attention and sliding_attention, with a window of `sliding_window`: of a class that makes both
/// masks whatever its layers are. Where they are not given every `pattern`-th layer sees all that came before, and the
/// others slide; 0: all slide.
void read_mixed_layers(ConfigReader& reader, TextConfig& config, std::int64_t pattern,
                       std::int64_t usual_window = 4096);

}  // namespace oometer
