#include "models/kit/experts.h"

#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "nn/quantizer.h"
#include "ops/cub.h"
#include "ops/experts.h"
#include "ops/liger.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Experts::Experts(const Builder& at, std::int64_t num_experts, std::int64_t hidden_size, std::int64_t intermediate_size,
                 Activation hidden_act, const ExpertsParts& its)
    : parts(its), act_fn(hidden_act) {
  const auto sizes = [&](std::int64_t out, std::int64_t in) {
    return its.is_transposed ? Shape{num_experts, in, out} : Shape{num_experts, out, in};
  };
  const std::int64_t first_out = its.has_gate ? 2 * intermediate_size : intermediate_size;
  const ParameterSizes projections[] = {{first_projection(), sizes(first_out, hidden_size)},
                                        {"down_proj", sizes(hidden_size, intermediate_size)}};
  Builder builder = at;
  if (at.wrapping) wrapper = at.wrapping->wrap_parameters(builder, projections, its.is_transposed);
  module = builder.module;
  gate_up_proj = builder.parameter(projections[0].name, projections[0].sizes);
  // revert_weight_conversion: Concatenate's reverse copies both halves, MergeModulelist's are views of what is there.
  if (its.has_gate && !its.checkpoint.empty()) builder.parameters->back().saved_copies = 2;
  if (its.has_bias) gate_up_proj_bias = builder.parameter("gate_up_proj_bias", {num_experts, 2 * intermediate_size});
  down_proj = builder.parameter(projections[1].name, projections[1].sizes);
  if (at.quantizer && !its.checkpoint.empty()) {
    at.quantizer->merges(module, projections[0].name,
                         its.checkpoint.subspan(its.has_gate ? 0 : 1, its.has_gate ? 2 : 1));
    at.quantizer->merges(module, projections[1].name, its.checkpoint.last(1));
  }
  if (its.has_bias) down_proj_bias = builder.parameter("down_proj_bias", {num_experts, hidden_size});
  if (at.quantizer) wrapper = at.quantizer->quantize_experts(builder, projections, std::move(wrapper));
}

Tensor Experts::apply_gate(const Tensor& gate_up_out) const {
  if (parts.apply_gate) return parts.apply_gate(gate_up_out);
  if (!parts.has_gate) return activate(act_fn, gate_up_out);
  const std::int64_t half = gate_up_out.size(1) / 2;
  TensorList gate_up = split(gate_up_out, {half, half}, -1);
  const Tensor gate = activate(act_fn, gate_up[0]);
  return mul(gate, gate_up[1]);
}

// batched_mm_experts_forward: a copy of an expert's weights for each token that it gets.
Tensor Experts::batched_mm(const Tensor& hidden_states, const Tensor& expert_ids, const Tensor& sample_weights) const {
  const std::int64_t tokens = hidden_states.size(0), hidden = hidden_states.size(1), selected = expert_ids.size(0);
  const Tensor selected_hidden_states =
      empty(hidden_states.context(), Op::repeat, {selected, hidden}, hidden_states.dtype());
  const auto batched_linear = [&](const Tensor& input, const Tensor& weights, const Tensor& biases) {
    const Tensor out = parts.is_transposed ? bmm(unsqueeze(input, 1), weights) : bmm(weights, unsqueeze(input, -1));
    const Tensor rows = view(out, {selected, out.size(1) * out.size(2)});
    return biases ? add_in_place(rows, biases) : rows;
  };
  Tensor selected_weights = index(gate_up_proj, 0, expert_ids), selected_biases;
  if (parts.has_bias) selected_biases = index(gate_up_proj_bias, 0, expert_ids);
  Tensor proj_out = batched_linear(selected_hidden_states, selected_weights, selected_biases);
  proj_out = apply_gate(proj_out);
  selected_weights = index(down_proj, 0, expert_ids);
  if (parts.has_bias) selected_biases = index(down_proj_bias, 0, expert_ids);
  proj_out = batched_linear(proj_out, selected_weights, selected_biases);
  const Tensor weighted_out = mul(proj_out, unsqueeze(sample_weights, -1));
  const Tensor final_hidden_states = sum(view(weighted_out, {tokens, selected / tokens, hidden}), {1}, false);
  return to(final_hidden_states, hidden_states.dtype());
}

Tensor Experts::operator()(const Tensor& hidden_in, const Tensor& top_k_index, const Tensor& top_k_weights) const {
  Context& context = hidden_in.context();
  const NamedParameter projections[] = {{first_projection(), gate_up_proj}, {"down_proj", down_proj}};
  const ParameterValues values(wrapper, projections);
  ModuleCall call(context, module);
  const Tensor hidden_states = call.argument(hidden_in);
  const std::int64_t tokens = hidden_states.size(0), hidden = hidden_states.size(1), top_k = top_k_index.size(-1);
  if (liger) {
    const Tensor x = view(hidden_states, hidden_states.sizes());
    const Tensor top_k_index_2d = to(top_k_index, DType::int32);
    const Tensor top_k_weights_2d = view(call.argument(top_k_weights), top_k_weights.sizes());
    const Tensor out = liger_fused_moe(x, gate_up_proj, down_proj, top_k_index_2d, top_k_weights_2d);
    return call.result(view(out, hidden_states.sizes()));
  }
  if (context.expert_loop) return call.result(loop(hidden_states, top_k_index, call.argument(top_k_weights)));
  const std::int64_t selected = tokens * top_k, experts = gate_up_proj.size(0);
  Tensor sample_weights = reshape(call.argument(top_k_weights), {selected});
  if (context.past_key_values && context.past_key_values->decodes)
    return call.result(batched_mm(hidden_states, reshape(top_k_index, {selected}), sample_weights));
  TopK sorted = sort(reshape(top_k_index, {selected}));
  const Tensor& perm = sorted.indices;
  Tensor selected_hidden_states;
  {
    const Tensor token = empty(context, Op::floor_divide, {selected}, DType::int64);
    selected_hidden_states = index(hidden_states, 0, token);
  }
  Tensor sample_weights_g = index(sample_weights, 0, perm);
  Tensor histc_input = empty(context, Op::to_copy, {selected}, DType::int32);
  Tensor tokens_per_expert = empty(context, Op::histc, {experts}, DType::int32);
  Tensor offsets = empty(context, Op::cumsum, {experts}, DType::int32);
  { const Workspace scan(context, Op::cumsum, cub_scan_bytes(experts) - 256); }  // descriptors of 8 bytes: int32
  const auto grouped_linear = [&](const Tensor& input, const Tensor& weight, const Tensor& biases) {
    const Tensor cast = to(input, weight.dtype());
    const Tensor out =
        parts.is_transposed ? grouped_mm_by_rows(cast, weight, offsets) : grouped_mm(cast, weight, offsets);
    return biases ? add_in_place(out, biases) : out;
  };
  Tensor selected_weights = values(first_projection(), gate_up_proj), selected_biases;
  if (parts.has_bias) selected_biases = index(gate_up_proj_bias, 0, sorted.values);
  Tensor proj_out = grouped_linear(selected_hidden_states, selected_weights, selected_biases);
  proj_out = apply_gate(proj_out);
  selected_weights = values("down_proj", down_proj);
  if (parts.has_bias) selected_biases = index(down_proj_bias, 0, sorted.values);
  proj_out = grouped_linear(proj_out, selected_weights, selected_biases);
  Tensor weighted_out = mul(proj_out, unsqueeze(sample_weights_g, -1));
  Tensor inv_perm = empty_like(Op::empty, perm);
  { const Tensor range = empty(context, Op::arange, {selected}, DType::int64); }
  weighted_out = index(weighted_out, 0, inv_perm);
  const Tensor final_hidden_states = sum(view(weighted_out, {tokens, top_k, hidden}), {1}, false);
  Tensor result = call.result(to(final_hidden_states, hidden_states.dtype()));
  for (Tensor* name :
       {&sample_weights, &sorted.values, &sorted.indices, &selected_hidden_states, &sample_weights_g, &histc_input,
        &tokens_per_expert, &offsets, &selected_weights, &selected_biases, &proj_out, &weighted_out, &inv_perm})
    name->reset();  // as a frame lets its names go
  return result;
}

}  // namespace oometer
