#include "models/kit/mixture.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "config/pattern.h"
#include "config/reader.h"
#include "ops/experts.h"
#include "ops/ops.h"

namespace oometer {

Router::Router(const Builder& builder, const TextConfig& config, Forward its_forward, bool with_bias)
    : top_k(config.experts.num_experts_per_tok),
      norm_topk_prob(config.experts.norm_topk_prob),
      forward(its_forward),
      module(builder.module) {
  weight = builder.parameter("weight", {config.experts.num_experts, config.hidden_size});
  if (with_bias) bias = builder.parameter("bias", {config.experts.num_experts});
}

namespace {

/// router_top_value /= router_top_value.sum(dim=-1, keepdim=True)
Tensor normalised(Tensor router_top_value) {
  const Tensor total = sum(router_top_value, {-1}, true);
  return div_in_place(std::move(router_top_value), total);
}

}  // namespace

Routing best_probabilities(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, {});
  const Tensor router_probs = softmax(routing.router_logits, DType::float32);
  TopK best = topk(router_probs, router.top_k);
  if (router.norm_topk_prob) best.values = normalised(std::move(best.values));
  best.values = to(best.values, routing.router_logits.dtype());
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(best.values));
  routing.topk_indices = std::move(best.indices);
  return routing;
}

Routing best_in_float32(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, {});
  Tensor router_probs;
  {
    const Tensor as_float = to(routing.router_logits, DType::float32);
    router_probs = softmax(as_float, DType::float32);
  }
  TopK best = topk(router_probs, router.top_k);
  routing.topk_weights = normalised(std::move(best.values));
  routing.topk_indices = std::move(best.indices);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

Tensor SparseMoeBlock::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor hidden_in = call.argument(argument);
  const std::int64_t hidden = hidden_in.size(-1);
  Tensor hidden_states = view(hidden_in, {hidden_in.numel() / hidden, hidden});
  const Routing routing = gate(hidden_states);  // the logits stay in `_` until the module returns
  hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
  return call.result(view(hidden_states, hidden_in.sizes()));
}

Experts make_experts(const Builder& block, const char* type, const TextConfig& c, const ExpertsParts& its) {
  return Experts(block.child("experts", type), c.experts.num_experts, c.hidden_size, c.experts.intermediate_size,
                 c.hidden_act, its);
}

void read_experts(ConfigReader& reader, TextConfig& c, const char* key, const char* other_name, ExpertsConfig usual) {
  c.experts = std::move(usual);
  std::int64_t& experts = c.experts.num_experts;
  experts = reader.integer(key, reader.integer(other_name, experts));
  std::int64_t& chosen = c.experts.num_experts_per_tok;
  chosen = reader.integer("num_experts_per_tok", chosen);
  if (chosen > experts)
    reader.fail("num_experts_per_tok", "inconsistent",
                "found " + std::to_string(chosen) + "; expected at most as many as there are experts (" +
                    std::to_string(experts) + ")");
  c.experts.balances = true;
  reader.refuse("output_router_logits", "the loss that balances experts is not supported yet: set it to false");
  reader.ignore({"router_aux_loss_coef"});
}

void read_sparse_layers(ConfigReader& reader, TextConfig& c) {
  const std::int64_t step = reader.integer("decoder_sparse_step", 1);
  const std::vector<std::int64_t> dense = reader.integers("mlp_only_layers", non_negative);
  if (step == 1 && dense.empty()) return;
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
    c.experts.layers.push_back((i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end());
}

std::vector<std::string> projection_paths(const TextConfig& c, ExpertNames projections) {
  std::vector<std::string> paths{"lm_head"};
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.num_hidden_layers); ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto add = [&](const char* module, ExpertNames names) {
      for (const char* name : names) paths.push_back(layer + module + name);
    };
    constexpr const char *kHeads[] = {"q_proj", "k_proj", "v_proj", "o_proj"},
                         *kMlp[] = {"gate_proj", "up_proj", "down_proj"}, *kGate[] = {"gate"};
    add("self_attn.", kHeads);
    if (!c.experts.are_in(i)) {
      add("mlp.", kMlp);
      continue;
    }
    add("mlp.", kGate);
    add("mlp.experts.", projections);
  }
  return paths;
}

void convert_expert_targets(ConfigReader& lora, TargetModules& targets, const std::vector<std::string>& paths,
                            ExpertNames projections, const char* others) {
  const auto name_of = [](std::string_view path) { return path.substr(path.rfind('.') + 1); };
  if (!targets.pattern.empty()) {
    const Result<Pattern> pattern = Pattern::parse(targets.pattern);
    if (!pattern) return;
    std::set<std::string, std::less<>> names;
    for (const std::string& path : paths)
      if (!names.contains(name_of(path)) && pattern->matches(path)) names.emplace(name_of(path));
    if (names.empty()) return;
    targets = {};
    targets.names.assign(names.begin(), names.end());
  }
  const auto is_of_experts = [&](std::string_view path) {
    const std::string_view name = name_of(path);
    return name == "gate" || std::find(projections.begin(), projections.end(), name) != projections.end();
  };
  if (targets.all_linear || std::any_of(targets.names.begin(), targets.names.end(), is_of_experts))
    lora.fail_found("target_modules", "not-modelled",
                    std::string("with these peft adapts the experts' own parameters, which is not supported yet; "
                                "expected names of the attention's layers (") +
                        others + ")");
}

void convert_mixture_targets(ConfigReader& lora, const FamilyConfig& config, TargetModules& targets) {
  constexpr const char* kProjections[] = {"gate_proj", "up_proj", "down_proj"};
  convert_expert_targets(lora, targets, projection_paths(config.as<TextConfig>(), kProjections), kProjections,
                         "q_proj, k_proj, v_proj, o_proj");
}

}  // namespace oometer
