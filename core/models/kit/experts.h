#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "config/activation.h"
#include "nn/module.h"

namespace oometer {

/// How a router spreads tokens over experts.
struct Routing {
  Tensor router_logits, topk_weights, topk_indices;
};

/// Names that a layer's expert had before transformers 5 made parameters of its projections: gate, up, down.
using ExpertNames = std::span<const char* const>;
inline constexpr const char *kExpertProjections[] = {"gate_proj", "up_proj", "down_proj"},
                            *kNumberedProjections[] = {"w1", "w3", "w2"};

/// F.one_hot's classes in the loop of a class's own forward: with one for tokens that are masked, or the experts alone.
enum class ExpertsLoop : std::uint8_t { not_compared, masks_one_more, masks_experts };

/// What a class of experts has of its own (use_experts_implementation).
struct ExpertsParts {
  bool is_transposed = false;  ///< weights are [experts, in, out]
  bool has_bias = false;
  bool has_gate = true;  ///< else up_proj is in gate_up_proj's place, with act_fn behind it
  /// In checkpoints, where each expert has its own (conversion_mapping.py); empty: they are as they are here.
  ExpertNames checkpoint = kExpertProjections;
  Tensor (*apply_gate)(const Tensor& gate_up_out) = nullptr;  ///< _apply_gate; null: halves, act_fn(gate) * up
  ExpertsLoop loop = ExpertsLoop::not_compared;
};

/// The experts of a layer, their weights in two tensors (transformers 5.23, integrations/moe.py): grouped_mm_experts_
/// forward, and while generate() decodes batched_mm_experts_forward. What they allocate depends on the tokens' number
/// alone; what the class's own forward does, on the routing.
struct Experts {
  Experts() = default;
  Experts(const Builder& builder, std::int64_t num_experts, std::int64_t hidden_size, std::int64_t intermediate_size,
          Activation hidden_act, const ExpertsParts& its = {});
  Tensor operator()(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights) const;

  Tensor apply_gate(const Tensor& gate_up_out) const;
  Tensor batched_mm(const Tensor& hidden_states, const Tensor& expert_ids, const Tensor& sample_weights) const;
  Tensor loop(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights) const;
  const char* first_projection() const { return parts.has_gate ? "gate_up_proj" : "up_proj"; }

  Tensor gate_up_proj, gate_up_proj_bias, down_proj, down_proj_bias;
  ExpertsParts parts;
  Activation act_fn = Activation::silu;
  bool liger = false;  ///< LigerExperts
  ModuleId module = 0;
  std::shared_ptr<const ParametersWrapper> wrapper;  ///< null: none
};

}  // namespace oometer
