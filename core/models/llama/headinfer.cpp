#include "models/llama/headinfer.h"

#include <vector>

#include "ops/ops.h"

namespace oometer {

namespace {

/// `projection`, but for rows of its weight, which are a view: q_proj.weight.data = q_proj_list[i].data.
Linear rows_of(const Linear& projection, std::int64_t first, std::int64_t count) {
  Linear part;
  part.module = projection.module;
  part.weight = slice(projection.weight, 0, first, count);
  if (projection.bias) part.bias = slice(projection.bias, 0, first, count);
  return part;
}

}  // namespace

Tensor attend_by_head(const LlamaAttention& attention, const Tensor& hidden_states, const PositionEmbeddings& positions,
                      KvCache& cache) {
  const std::int64_t head_dim = attention.head_dim, heads = attention.k_proj.weight.size(0) / head_dim;
  const std::int64_t width = attention.q_proj.weight.size(0) / heads;  // of the queries that a key head serves
  const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
  // Names of forward's own, bound until it returns.
  Tensor query_states, key_states, value_states, attn_output;
  TensorList attn_output_list;
  for (std::int64_t i = 0; i < heads; ++i) {
    query_states = rows_of(attention.q_proj, i * width, width)(hidden_states);
    key_states = rows_of(attention.k_proj, i * head_dim, head_dim)(hidden_states);
    value_states = rows_of(attention.v_proj, i * head_dim, head_dim)(hidden_states);
    for (Tensor* projected : {&query_states, &key_states, &value_states}) *projected = heads_of(*projected, head_dim);
    Tensor q_embed = rotate(query_states, cos, sin), k_embed = rotate(key_states, cos, sin);
    query_states = std::move(q_embed);
    key_states = std::move(k_embed);
    KvCache::States states = cache.update(
        attention.layer_idx * static_cast<std::size_t>(heads) + static_cast<std::size_t>(i), key_states, value_states);
    key_states = std::move(states.keys);
    value_states = std::move(states.values);
    AttentionOptions options;
    options.causal = query_states.size(2) > 1;
    options.enable_gqa = query_states.size(1) > 1;
    // flash-attn's kernel, of which PyTorch's is a copy: aligned at the end, it needs no mask.
    Tensor output = transpose(
        scaled_dot_product_attention(AttentionKernel::flash, query_states, key_states, value_states, {}, options), 1,
        2);
    const Shape sizes{hidden_states.size(0), hidden_states.size(1), width};
    attn_output = reshape(output, sizes);
    attn_output_list.push_back(attn_output);
  }
  attn_output = cat(attn_output_list, -1);
  return attention.o_proj(attn_output);
}

}  // namespace oometer
