#include "models/kit/mixture.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "config/pattern.h"
#include "config/reader.h"
#include "models/kit/load_balancing.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Router::Router(const Builder& at, std::int64_t hidden_size, const ExpertsConfig& experts, Forward its_forward)
    : top_k(experts.num_experts_per_tok),
      n_group(experts.n_group),
      topk_group(experts.topk_group),
      norm_topk_prob(experts.norm_topk_prob),
      forward(its_forward),
      router_logits(experts.router_logits) {
  Builder builder = at;
  const ParameterSizes own[] = {{"weight", {experts.num_experts, hidden_size}}};
  if (at.wrapping) wrapper = at.wrapping->wrap_parameters(builder, own, false);
  module = builder.module;
  weight = builder.parameter(own[0].name, own[0].sizes);
}

Routing Router::operator()(const Tensor& hidden_states) const {
  Routing routing;
  if (wrapper) {
    const NamedParameter own[] = {{"weight", weight}};
    const ParameterValues values(wrapper, own);
    Router adapted = *this;
    adapted.weight = values("weight", weight);
    routing = forward(adapted, hidden_states);
  } else {
    routing = forward(*this, hidden_states);
  }
  if (router_logits) {
    // A forward without adapters is the reference's, which DPOTrainer (trl 1.16) does not ask for them.
    const Context& context = routing.router_logits.context();
    if (!context.recomputing && !context.adapters_disabled) router_logits->of_layers.push_back(routing.router_logits);
  }
  return routing;
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

Routing best_sigmoids(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, {});
  Tensor routing_weights;
  {
    const Tensor as_float = to(routing.router_logits, DType::float32);
    routing_weights = sigmoid(as_float);
  }
  const Tensor scores_for_choice = add(routing_weights, router.e_score_correction_bias);
  TopK chosen = topk(scores_for_choice, router.top_k);  // the values stay in `_`
  routing.topk_weights = normalised(gather(routing_weights, chosen.indices));
  routing.topk_indices = std::move(chosen.indices);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

namespace {

/// The best groups' best experts, `choice`: what their choice sees.
Routing choose_of_groups(const Router& router, ModuleCall& call, Routing routing, const Tensor& scores, Tensor choice) {
  Context& context = scores.context();
  const DType dtype = choice.dtype();
  const std::int64_t tokens = scores.size(0), experts = router.weight.size(0), n_group = router.n_group,
                     in_group = experts / n_group;
  // Which groups and experts are chosen: no gradient comes from there. All of these are names of forward's.
  const auto made = [&](Op op, const Shape& sizes, DType type) { return empty(context, op, sizes, type); };
  Tensor denominator, scores_for_choice = std::move(choice), group_scores, group_idx, group_mask, score_mask;
  {  // the sum of a group's two best
    TopK best = topk(view(scores_for_choice, {tokens, n_group, in_group}), 2);
    best.indices.reset();
    group_scores = sum(best.values, {-1}, false);
  }
  const DType of_groups = group_scores.dtype();  // autocast sums in float32
  {
    const Tensor values = made(Op::topk, {tokens, router.topk_group}, of_groups);
    group_idx = made(Op::topk, {tokens, router.topk_group}, DType::int64);
  }
  group_mask = made(Op::zeros_like, {tokens, n_group}, of_groups);
  if (n_group > 1) score_mask = made(Op::clone, {tokens, n_group, in_group}, of_groups);  // else a view
  {
    Tensor chosen;
    {
      const Tensor as_boolean = made(Op::to_copy, scores.sizes(), DType::boolean);
      chosen = made(Op::bitwise_not, scores.sizes(), DType::boolean);
    }
    scores_for_choice = masked_fill(scores_for_choice, chosen);
  }
  {
    const Tensor values = made(Op::topk, {tokens, router.top_k}, dtype);
    routing.topk_indices = made(Op::topk, {tokens, router.top_k}, DType::int64);
  }
  routing.topk_weights = gather(scores, routing.topk_indices);
  if (router.norm_topk_prob) {
    denominator = sum(routing.topk_weights, {-1}, true);
    denominator = add_scalar(denominator);
    routing.topk_weights = div_in_place(routing.topk_weights, denominator);
  }
  routing.topk_weights = mul_scalar(routing.topk_weights);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

Tensor as_tokens(const Tensor& x) { return view(x, {x.numel() / x.size(-1), x.size(-1)}); }

}  // namespace

Routing best_of_groups(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = as_tokens(call.argument(hidden_in));
  Routing routing;
  {
    const Tensor input = to(hidden_states, DType::float32), as_float = to(router.weight, DType::float32);
    routing.router_logits = linear(input, as_float, {});
  }
  const Tensor scores = sigmoid(routing.router_logits);
  return choose_of_groups(router, call, std::move(routing), scores, add(scores, router.e_score_correction_bias));
}

Routing best_probabilities_of_groups(const Router& router, const Tensor& hidden_in) {
  Context& context = hidden_in.context();
  ModuleCall call(context, router.module);
  const Tensor hidden_states = as_tokens(call.argument(hidden_in));
  Routing routing;
  {
    const Tensor as_weight = to(hidden_states, router.weight.dtype());  // MistralLarge4TextTopkRouter's is float32
    routing.router_logits = linear(as_weight, router.weight, {});
  }
  const Tensor scores =
      softmax(routing.router_logits, context.autocast.enabled ? DType::float32 : routing.router_logits.dtype());
  return choose_of_groups(router, call, std::move(routing), scores, scores);
}

Tensor MoeWithShared::operator()(const Tensor& hidden_in) const {
  ModuleCall call(hidden_in.context(), module);
  const Tensor residuals = call.argument(hidden_in);
  const Routing routing = gate(residuals);
  Tensor hidden_states = view(residuals, {residuals.numel() / residuals.size(-1), residuals.size(-1)});
  hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
  hidden_states = view(hidden_states, residuals.sizes());
  {
    const Tensor shared = shared_experts(residuals);
    hidden_states = add(hidden_states, shared);
  }
  if (norm) return call.result(norm(hidden_states));
  return call.result(hidden_states);
}

BlockWithGatedShared::BlockWithGatedShared(const Builder& at, const TextConfig& c, const char* router,
                                           const char* experts_type, const LigerConfig& kernels,
                                           const ExpertsParts& its)
    : gate(at.child("gate", router), c, best_probabilities),
      experts(make_experts(at, experts_type, c, its)),
      shared_expert(make_shared(at.child("shared_expert", c.names->mlp), c, kernels)),
      shared_expert_gate(at.child("shared_expert_gate", "Linear"), c.hidden_size, 1, false),
      module(at.module) {
  experts.liger = kernels.swiglu;
}

Tensor BlockWithGatedShared::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor hidden_in = call.argument(argument);
  const std::int64_t hidden = hidden_in.size(-1);
  const Tensor hidden_states = view(hidden_in, {hidden_in.numel() / hidden, hidden});
  Tensor shared_expert_output = shared_expert(hidden_states);
  const Routing routing = gate(hidden_states);
  Tensor expert_output = experts(hidden_states, routing.topk_indices, routing.topk_weights);
  {
    Tensor share = shared_expert_gate(hidden_states);
    share = sigmoid(share);
    shared_expert_output = mul(share, shared_expert_output);
  }
  expert_output = add(expert_output, shared_expert_output);
  return call.result(view(expert_output, hidden_in.sizes()));
}

void read_mlp_layer_types(ConfigReader& reader, TextConfig& c) {
  const std::vector<std::string> types = reader.texts_of_layers("mlp_layer_types", c.num_hidden_layers);
  if (types.empty()) return;
  c.experts.layers.clear();
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.num_hidden_layers); ++i)
    c.experts.layers.push_back(i < types.size() && types[i] == "sparse");
}

LlamaMLP make_shared(const Builder& builder, const TextConfig& c, const LigerConfig& kernels) {
  LlamaConfig shared = c;
  shared.intermediate_size = c.experts.shared_intermediate_size;
  return {builder, shared, kernels};
}

MoeWithShared make_moe_with_shared(const Builder& at, const TextConfig& c, const char* experts, const char* router,
                                   bool bias_in_float32) {
  MoeWithShared moe;
  moe.module = at.module;
  moe.experts = make_experts(at, experts, c);
  const Builder gate_at = at.child("gate", router);
  Router gate(gate_at, c, best_of_groups);
  const Shape sizes{c.experts.num_experts};
  gate.e_score_correction_bias = bias_in_float32 ? gate_at.buffer(sizes, DType::float32) : gate_at.kept_buffer(sizes);
  moe.gate = std::move(gate);
  moe.shared_experts = make_shared(at.child("shared_experts", c.names->mlp), c);
  return moe;
}

Tensor SparseMoeBlock::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor hidden_in = call.argument(argument);
  const std::int64_t hidden = hidden_in.size(-1);
  Tensor hidden_states = view(hidden_in, {hidden_in.numel() / hidden, hidden});
  Tensor shared_output;
  if (shared_experts) shared_output = (*shared_experts)(hidden_states);
  const Routing routing = gate(hidden_states);  // the logits stay in `_` until the module returns
  hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
  if (shared_experts) hidden_states = add(hidden_states, shared_output);
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
  if (c.experts.balances) {
    c.experts.outputs_router_logits = reader.boolean("output_router_logits", false);
    c.experts.balances = reader.number("router_aux_loss_coef", 0.001, -1e6, 1e6) != 0;
    c.experts.are_counted |= !c.experts.balances;
  } else {
    reader.refuse("output_router_logits", "routers' logits among the outputs are not supported yet: set it to false");
    reader.ignore({"router_aux_loss_coef"});
  }
}

void read_grouped_experts(ConfigReader& reader, TextConfig& c, ExpertsConfig usual, std::int64_t usual_shared,
                          std::int64_t usual_dense) {
  read_experts(reader, c, "n_routed_experts", "num_local_experts", std::move(usual));
  read_expert_groups(reader, c, "n_shared_experts", usual_shared, usual_dense);
}

void read_expert_groups(ConfigReader& reader, TextConfig& c, const char* shared, std::int64_t usual_shared,
                        std::int64_t usual_dense) {
  ExpertsConfig& e = c.experts;
  e.intermediate_size = reader.integer("moe_intermediate_size", e.intermediate_size);
  e.shared_intermediate_size = e.intermediate_size * reader.integer(shared, usual_shared);
  e.n_group = reader.integer("n_group", e.n_group);
  e.topk_group = reader.integer("topk_group", 1);
  e.norm_topk_prob = reader.boolean("norm_topk_prob", e.norm_topk_prob);
  if (e.num_experts % e.n_group != 0 || e.num_experts / e.n_group < 2 || e.topk_group > e.n_group)
    reader.fail("n_group", "inconsistent",
                "found " + std::to_string(e.n_group) + "; expected a divisor of the number of experts (" +
                    std::to_string(e.num_experts) +
                    "), groups of two experts at least, and at most so many topk_group");
  const std::int64_t dense = reader.integer("first_k_dense_replace", usual_dense, non_negative);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) e.layers.push_back(i >= dense);
  reader.ignore({"routed_scaling_factor"});
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
    if (c.mixer.is_in(i)) {
      constexpr const char* kLinear[] = {"in_proj_qkvz", "in_proj_ba", "out_proj"};
      add("linear_attn.", kLinear);
    } else {
      add("self_attn.", kHeads);
    }
    if (!c.experts.are_in(i)) {
      add("mlp.", kMlp);
      continue;
    }
    add("mlp.", kGate);
    add("mlp.experts.", projections);
    if (c.experts.shared_intermediate_size == 0) continue;
    constexpr const char* kSharedGate[] = {"shared_expert_gate"};
    add("mlp.", kSharedGate);
    for (const char* module : {"mlp.shared_experts.", "mlp.shared_expert."}) add(module, kMlp);
  }
  return paths;
}

void convert_expert_targets(ConfigReader& reader, LoraConfig& lora, const std::vector<std::string>& paths,
                            ExpertNames projections) {
  TargetModules& targets = lora.target_modules;
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
  // _MOE_TARGET_MODULE_MAPPING: the first two projections became gate_up_proj, the third one down_proj.
  const auto takes = [&](std::string_view old_name) {
    if (targets.all_linear) {
      targets.excluded_names.emplace_back(old_name);
      return true;
    }
    return std::erase_if(targets.names, [&](const std::string& target) { return name_of(target) == old_name; }) > 0;
  };
  const bool gate = takes("gate"), first = takes(projections[0]), second = takes(projections[1]),
             last = takes(projections[2]);
  if (first != second) {
    const std::string present = projections[first ? 0 : 1], missing = projections[first ? 1 : 0];
    return reader.fail_found("target_modules", "inconsistent",
                             "Cannot convert PEFT target(s) " + present + " without also targeting " + missing +
                                 " because they are fused into gate_up_proj.");
  }
  const auto add = [](auto& to, auto value) {  // a job that was written has it
    if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(std::move(value));
  };
  if (gate) add(lora.target_parameters, std::string("gate.weight"));
  if (first) {
    add(lora.target_parameters, std::string("gate_up_proj"));
    add(lora.rank_pattern, std::pair(std::string(".*\\.gate_up_proj"), lora.rank * 2));
  }
  if (last) add(lora.target_parameters, std::string("down_proj"));
}

void convert_mixture_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  convert_expert_targets(reader, lora, projection_paths(config.as<TextConfig>(), kExpertProjections),
                         kExpertProjections);
}

void convert_mixtral_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  convert_expert_targets(reader, lora, projection_paths(config.as<TextConfig>(), kNumberedProjections),
                         kNumberedProjections);
}

}  // namespace oometer
