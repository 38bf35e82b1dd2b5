#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "models/kit/experts.h"
#include "ops/experts.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "runtime/expert_load.h"
#include "tensor/context.h"

/// What a class of experts does by itself, where transformers puts nothing in its place (`eager`). Names and order of
/// steps are the modeling files'.
namespace oometer {

namespace {

/// Tokens that each expert gets of `selected`, `tokens` of them apart.
std::vector<std::int64_t> tokens_of_experts(Context& context, std::int64_t experts, std::int64_t tokens,
                                            std::int64_t selected) {
  const ExpertLoad& load = *context.expert_loop;
  const auto& given = load.counts;
  if (std::ssize(given) == experts && std::accumulate(given.begin(), given.end(), std::int64_t{0}) == selected &&
      *std::max_element(given.begin(), given.end()) <= tokens)
    return given;
  if (!given.empty())
    context.refusal = Error{"inconsistent", "/data/routing",
                            "expected " + std::to_string(experts) + " numbers, one an expert, each at most " +
                                std::to_string(tokens) + " (the tokens of a micro-batch), that are " +
                                std::to_string(selected) + " together"};
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < experts; ++i)
    counts.push_back(load.is_worst ? (i < selected / tokens ? tokens : 0)
                                   : selected * (i + 1) / experts - selected * i / experts);
  return counts;
}

}  // namespace

// MixtralExperts.forward, GptOssExperts.forward
Tensor Experts::loop(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights) const {
  Context& context = hidden_states.context();
  const std::int64_t tokens = hidden_states.size(0), top_k = top_k_index.size(-1), experts = gate_up_proj.size(0),
                     classes = parts.loop == ExpertsLoop::masks_one_more ? experts + 1 : experts;
  if (parts.loop == ExpertsLoop::not_compared || wrapper || liger)
    context.refusal = Error{"not-modelled", "/runtime/experts",
                            "found eager, which is not supported yet with the experts of this class or with adapters "
                            "of theirs; expected grouped_mm"};
  const std::vector<std::int64_t> counts = tokens_of_experts(context, experts, tokens, tokens * top_k);
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Tensor weighted_output, out, gated_output, gate_up, current_state, where, expert_hit, expert_mask,
      final_hidden_states;
  // Mixtral's class has one name for three of them, current_hidden_states.
  Tensor &gated = parts.is_transposed ? gated_output : weighted_output,
         &projected = parts.is_transposed ? out : weighted_output;
  final_hidden_states = empty_like(Op::zeros_like, hidden_states);
  {
    const NoGrad no_grad(context);
    expert_mask = permute(integers(context, Op::one_hot, {tokens, top_k, classes}), {2, 1, 0});
    Tensor is_hit;
    {
      const Tensor hits = sum(expert_mask, {-1, -2}, false);
      is_hit = pointwise(Op::gt, {&hits}, DType::boolean);
    }
    expert_hit = nonzero(is_hit, experts - std::count(counts.begin(), counts.end(), 0));
  }
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    { const Tensor is_masking = empty(context, Op::eq, {}, DType::boolean); }
    {
      const Tensor mask = integers(context, Op::nonzero, {top_k, tokens});
      where = nonzero(mask, count);
    }
    const Tensor top_k_pos = select(where, 1, 0), token_idx = select(where, 1, 1);
    current_state = index(hidden_states, 0, token_idx);
    const auto product = [&](const Tensor& x, const Tensor& weights, const Tensor& biases) {
      const Tensor weight = select(weights, 0, 0);
      if (!parts.is_transposed) return linear(x, weight, {});
      const Tensor multiplied = matmul(x, weight), bias = select(biases, 0, 0);
      return add(multiplied, bias);
    };
    gate_up = product(current_state, gate_up_proj, gate_up_proj_bias);
    gated = apply_gate(gate_up);
    projected = product(gated, down_proj, down_proj_bias);
    {
      const Tensor weight = unsqueeze(index(top_k_weights, token_idx, top_k_pos), -1);
      weighted_output = mul(projected, weight);
    }
    const Tensor typed = to(weighted_output, hidden_states.dtype());
    final_hidden_states = index_add_(std::move(final_hidden_states), token_idx, typed);
  }
  return final_hidden_states;
}

}  // namespace oometer
