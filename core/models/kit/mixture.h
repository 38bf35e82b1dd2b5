#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/kit/experts.h"
#include "models/kit/load_balancing.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"

/// Language models with mixtures of experts: the router, the module around router and experts, and what such a family
/// has beside others of the kit.
namespace oometer {

/// A router's parameters, and how its class spreads tokens.
struct Router {
  using Forward = Routing (*)(const Router& router, const Tensor& hidden_states);

  Router() = default;
  Router(const Builder& at, std::int64_t hidden_size, const ExpertsConfig& experts, Forward its_forward);
  Router(const Builder& builder, const TextConfig& config, Forward its_forward)
      : Router(builder, config.hidden_size, config.experts, its_forward) {}
  Routing operator()(const Tensor& hidden_states) const;

  Tensor weight, bias, e_score_correction_bias;  ///< the last two where the class has them
  std::int64_t top_k = 0, n_group = 1, topk_group = 1;
  bool norm_topk_prob = false;
  Forward forward = nullptr;
  ModuleId module = 0;
  std::shared_ptr<RouterLogits> router_logits;       ///< ExpertsConfig::router_logits
  std::shared_ptr<const ParametersWrapper> wrapper;  ///< null: none
};

/// Qwen3MoeTopKRouter.forward: the best probabilities, normalised or not, in the logits' type.
Routing best_probabilities(const Router& router, const Tensor& hidden_states);
/// MixtralTopKRouter.forward: normalised, and left in float32.
Routing best_in_float32(const Router& router, const Tensor& hidden_states);

/// MiniMaxM2TopKRouter.forward: sigmoid scores with a bias; the best ones' without it, normalised, in float32.
Routing best_sigmoids(const Router& router, const Tensor& hidden_states);
/// DeepseekV3TopkRouter.forward: the same of the best groups' experts, computed in float32.
Routing best_of_groups(const Router& router, const Tensor& hidden_states);
/// Mistral4TopkRouter.forward: probabilities of the best groups' experts, in the model's type.
Routing best_probabilities_of_groups(const Router& router, const Tensor& hidden_states);

/// Qwen3MoeSparseMoeBlock, MixtralSparseMoeBlock: its parts, made by the family's class in its own order.
struct SparseMoeBlock {
  explicit SparseMoeBlock(const Builder& builder) : module(builder.module) {}
  Tensor operator()(const Tensor& hidden_states) const;

  std::function<Routing(const Tensor&)> gate;
  Experts experts;
  std::optional<LlamaMLP> shared_experts;  ///< all tokens get it, first (Ernie4_5_MoeSparseMoeBlock)
  ModuleId module = 0;
};

/// DeepseekV3MoE: beside the experts that a router chooses one that all tokens get.
struct MoeWithShared {
  Tensor operator()(const Tensor& hidden_states) const;

  Experts experts;
  std::function<Routing(const Tensor&)> gate;
  LlamaMLP shared_experts;
  std::function<Tensor(const Tensor&)> norm{};  ///< of what it gives (AXK1MoE)
  ModuleId module = 0;
};
/// Qwen2MoeSparseMoeBlock: an expert that all tokens get, as far as a gate lets it, beside those that the router
/// chooses.
struct BlockWithGatedShared {
  BlockWithGatedShared(const Builder& at, const TextConfig& config, const char* router, const char* experts,
                       const LigerConfig& kernels = {}, const ExpertsParts& its = {});
  Tensor operator()(const Tensor& hidden_states) const;

  Router gate;
  Experts experts;
  LlamaMLP shared_expert;
  Linear shared_expert_gate;
  ModuleId module = 0;
};
/// An MLP as wide as the config's shared experts.
LlamaMLP make_shared(const Builder& builder, const TextConfig& config, const LigerConfig& kernels = {});
/// MoeWithShared of Router and best_of_groups. `bias_in_float32`: e_score_correction_bias is, whatever the model is.
MoeWithShared make_moe_with_shared(const Builder& at, const TextConfig& config, const char* experts, const char* router,
                                   bool bias_in_float32);

/// mlp_layer_types: which layers have experts, where the config says it.
void read_mlp_layer_types(ConfigReader& reader, TextConfig& config);

/// The experts of a layer, called `name`, of the class `type`.
Experts make_experts(const Builder& block, const char* type, const TextConfig& config, const ExpertsParts& its = {});

/// How many experts there are, as `key` or transformers' other name for it says (attribute_map), how many of them a
/// token gets (`usual`: where the config does not say, and whether the class balances them), and what is refused with
/// them.
void read_experts(ConfigReader& reader, TextConfig& config, const char* key, const char* other_name,
                  ExpertsConfig usual);
/// The same as DeepseekV3Config calls it: n_routed_experts and its kin, groups, shared experts, dense layers first.
/// `usual_shared`, `usual_dense`: n_shared_experts, first_k_dense_replace.
void read_grouped_experts(ConfigReader& reader, TextConfig& config, ExpertsConfig usual, std::int64_t usual_shared,
                          std::int64_t usual_dense);
/// What of these stands beside the experts' number. `shared`: the key of how many are shared.
void read_expert_groups(ConfigReader& reader, TextConfig& config, const char* shared, std::int64_t usual_shared,
                        std::int64_t usual_dense);
/// decoder_sparse_step and mlp_only_layers: which layers have experts.
void read_sparse_layers(ConfigReader& reader, TextConfig& config);

/// Paths of the Linear layers, those of the experts as they were among them.
std::vector<std::string> projection_paths(const TextConfig& config, ExpertNames projections);
/// Where transformers 5 keeps experts as parameters of their own, peft takes a text for the names that it matches, in
/// whatever layer they are, and adapts parameters in the place of the names that the router and the experts'
/// projections had (peft 0.21, utils/transformers_weight_conversion.py, _convert_peft_config_moe). `projections`: gate,
/// up, down.
void convert_expert_targets(ConfigReader& reader, LoraConfig& lora, const std::vector<std::string>& paths,
                            ExpertNames projections);
/// The same of a family of the kit whose experts had Qwen2-MoE's names, and of one whose had Mixtral's numbers. Only of
/// those in _MODEL_TO_CONVERSION_PATTERN (transformers 5.23, conversion_mapping.py): Qwen2-MoE itself is not.
void convert_mixture_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora);
void convert_mixtral_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora);

template <TextConfig (*read)(ConfigReader&), MakeParts make_parts>
constexpr Family mixture_family(std::span<const ModelClass> classes, std::span<const char* const> blocks,
                                decltype(Family::convert_targets) convert_targets = convert_mixture_targets,
                                ModelTraits (*traits)(const FamilyConfig&) = traits_of_text_family) {
  Family family = text_family<read, balanced<make_parts>>(classes, blocks, traits);
  family.convert_targets = convert_targets;
  return family;
}

}  // namespace oometer
