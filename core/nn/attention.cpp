#include "nn/attention.h"

#include <algorithm>
#include <cmath>

#include "nn/flash_attention.h"

namespace oometer {

Tensor heads_of(const Tensor& projected, std::int64_t head_dim) {
  return transpose(view(projected, {projected.size(0), projected.size(1), projected.size(2) / head_dim, head_dim}), 1,
                   2);
}

AttentionInputs project_together(const Tensor& x, const Linear& q_proj, const Linear& k_proj, const Linear& v_proj) {
  if (!q_proj.wrapper) return {};
  const Linear* const layers[] = {&q_proj, &k_proj, &v_proj};
  Tensor results[3];
  if (!q_proj.wrapper->project(x, layers, results)) return {};
  return {std::move(results[0]), std::move(results[1]), std::move(results[2])};
}

AttentionInputs project(const Tensor& x, const Linear& q_proj, const Linear& k_proj, const Linear& v_proj,
                        std::int64_t head_dim, bool projects_first) {
  AttentionInputs inputs = project_together(x, q_proj, k_proj, v_proj);
  const bool is_together = static_cast<bool>(inputs.query);
  const auto make = [&](Tensor& projected, const Linear& projection) {
    projected = projection(x);
    if (!projects_first) projected = heads_of(projected, head_dim);
  };
  if (!is_together) {
    make(inputs.query, q_proj);
    make(inputs.key, k_proj);
    make(inputs.value, v_proj);
  }
  if (is_together || projects_first)
    for (Tensor* projected : {&inputs.query, &inputs.key, &inputs.value}) *projected = heads_of(*projected, head_dim);
  return inputs;
}

Tensor repeat_kv(const Tensor& x, std::int64_t heads) {
  const std::int64_t groups = heads / x.size(1);
  if (groups == 1) return x;
  const Tensor expanded = expand(unsqueeze(x, 2), {x.size(0), x.size(1), groups, x.size(2), x.size(3)});
  return reshape(expanded, {x.size(0), heads, x.size(2), x.size(3)});
}

namespace {

// eager_attention_forward, modeling_llama.py and modeling_clip.py
AttentionOutputs eager(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value,
                       const Tensor& mask) {
  const Tensor key_states = repeat_kv(key, query.size(1)), value_states = repeat_kv(value, query.size(1));
  Tensor weights = matmul(query, transpose(key_states, 2, 3));
  weights = mul_scalar(weights);
  if (call.softcaps) weights = softcap(std::move(weights));
  if (mask) weights = add(weights, mask);
  {
    const Tensor probabilities = softmax(weights, DType::float32);
    weights = to(probabilities, query.dtype());
  }
  weights = dropout(weights, call.dropout);
  const Tensor output = matmul(weights, value_states);
  return {contiguous(transpose(output, 1, 2)), weights};
}

}  // namespace

namespace {

/// can_use_cudnn_attention (ATen/native/transformers/cuda/sdp_utils.cpp), as 2.15 answers on 9.0, 10.0 and 10.3: its
/// backward takes wide heads of 256 alone, and those of DeepSeek; its dropout is counted in sixteenths.
bool takes_cudnn(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value,
                 const Tensor& mask, DType dtype) {
  const Context& context = query.context();
  const int major = context.device.major;
  if (!context.behaviours.cudnn || !context.behaviours.sdpa_prefers_cudnn || major < 9 || major > 10 || !is_half(dtype))
    return false;
  const double sixteenths = context.training ? call.dropout * 16 : 0;
  if (sixteenths != std::floor(sixteenths) || (mask && mask.requires_grad())) return false;
  const std::int64_t wide = query.size(3), deep = value.size(3), widest = std::max(wide, deep);
  if (widest > 256 || wide % 8 != 0 || deep % 8 != 0) return false;
  if (!context.grad_mode || !(query.requires_grad() || key.requires_grad() || value.requires_grad())) return true;
  return query.size(2) > 1 && (widest <= 128 || (wide == 192 && deep == 128) || (wide == 256 && deep == 256));
}

}  // namespace

AttentionKernel choose_kernel(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value,
                              const Tensor& mask, bool enable_gqa) {
  const Context& context = query.context();
  const bool gqa = query.size(1) != key.size(1);
  if (gqa && !enable_gqa && !context.behaviours.fused_attention_spreads_keys) return AttentionKernel::math;
  switch (call.kind) {
    case AttentionKind::sdpa_flash:
      return AttentionKernel::flash;
    case AttentionKind::sdpa_efficient:
      return AttentionKernel::efficient;
    case AttentionKind::sdpa_math:
      return AttentionKernel::math;
    case AttentionKind::sdpa_cudnn:
      return AttentionKernel::cudnn;
    case AttentionKind::eager:
    case AttentionKind::sdpa:
    case AttentionKind::flash_attention_2:
    case AttentionKind::flash_attention_3:
      break;
  }
  const Device& device = context.device;
  const DType dtype = context.autocast.enabled ? context.autocast.dtype : query.dtype();
  const std::int64_t head_dim = query.size(3);
  const bool same_dim = value.size(3) == head_dim;                 // check_head_dim_size_flash
  if (query.size(0) != key.size(0)) return AttentionKernel::math;  // check_batch_size_and_num_heads_dense
  if (takes_cudnn(call, query, key, value, mask, dtype)) return AttentionKernel::cudnn;
  // check_flash_attention_hardware_support: sm80 and later; check_head_dim_size_flash: up to 256.
  if (device.major >= 8 && is_half(dtype) && head_dim <= 256 && same_dim && !mask) return AttentionKernel::flash;
  // Memory-efficient: sm50 and later; bfloat16 from sm80 on; grouped queries only in later versions; heads that fill
  // 16 bytes (check_head_dim_size_mem_efficient; minimum_gemm_alignment, sdp_utils.cpp).
  const bool uses_tensor_cores = device.major >= 8 || (device.major == 7 && is_half(dtype));
  const std::int64_t alignment = uses_tensor_cores ? 16 / element_size(dtype) : 1;
  if ((!gqa || context.behaviours.efficient_attention_takes_gqa) && (dtype != DType::bfloat16 || device.major >= 8) &&
      head_dim % alignment == 0 && value.size(3) % alignment == 0)
    return AttentionKernel::efficient;
  return AttentionKernel::math;
}

AttentionOutputs attention_forward(const AttentionCall& call, const Tensor& query_in, const Tensor& key_in,
                                   const Tensor& value_in, const Tensor& mask, const Sequences& sequences) {
  if (call.kind == AttentionKind::eager) return eager(call, query_in, key_in, value_in, mask);
  if (is_flash_attention(call.kind))
    return {flash_attention_forward(call, query_in, key_in, value_in, mask, sequences), {}};
  // sdpa_attention_forward, integrations/sdpa_attention.py
  const Behaviours& behaviours = query_in.context().behaviours;
  // use_gqa_in_sdpa: no mask, and heads that PyTorch's kernels for them take
  const bool takes_gqa = !mask && key_in.size(3) == value_in.size(3) && key_in.size(3) <= 256;
  const bool spreads_gqa = !takes_gqa && query_in.size(1) != key_in.size(1);
  // pack_gqa, 5.23's way to decode: a key head's queries in place of the one token
  const std::int64_t queries = query_in.size(2);
  const bool packs = spreads_gqa && queries == 1 && query_in.context().past_key_values;
  const bool repeats = (behaviours.sdpa_repeats_kv && !call.own_class) || (spreads_gqa && !packs);
  Tensor key = repeats ? repeat_kv(key_in, query_in.size(1)) : key_in,
         value = repeats ? repeat_kv(value_in, query_in.size(1)) : value_in, query = query_in;
  if (packs)
    query = reshape(query_in, {query_in.size(0), key.size(1), query_in.size(1) / key.size(1), query_in.size(3)});
  const bool causal = call.causal && queries > 1 && !mask;
  if (causal && key.size(2) > queries) {  // an empty StaticCache, with room for more
    key = slice(key, 2, 0, queries);
    value = slice(value, 2, 0, queries);
  }
  if (behaviours.sdpa_makes_contiguous && !call.own_class) {
    query = contiguous(query);
    key = contiguous(key);
    value = contiguous(value);
  }
  const bool gqa = query.size(1) != key.size(1);
  const AttentionOptions options{causal, gqa, query.context().training ? call.dropout : 0};
  Tensor output =
      scaled_dot_product_attention(choose_kernel(call, query, key, value, mask), query, key, value, mask, options);
  if (packs) output = reshape(output, {output.size(0), query_in.size(1), 1, output.size(3)});
  return {contiguous(transpose(output, 1, 2)), {}};
}

}  // namespace oometer
