// Attention.
#include "nn/attention.h"

#include "graph/operators/table.h"
#include "ops/ops.h"

namespace oometer {
namespace {

/// Kernels want four dimensions (sdp_utils_cpp.h, check_tensor_shapes); math takes any: there, two are as good as one.
void five_dims(GraphCall& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  bool fits = key.ndim() == 5 && key.sizes() == value.sizes() && query.size(4) == key.size(4) && !c.tensor(3);
  for (int i = 0; fits && i < 3; ++i) fits = query.size(i) == key.size(i);
  if (!fits) return c.fail("queries of " + text_of(query.sizes()) + ", keys of " + text_of(key.sizes()));
  const auto merged = [](const Tensor& x) {
    return reshape(x, {x.size(0), checked_product(x.size(1), x.size(2)), x.size(3), x.size(4)});
  };
  c.give(reshape(scaled_dot_product_attention(AttentionKernel::math, merged(query), merged(key), merged(value), {},
                                              {c.boolean(5, false), false, c.number(4, 0)}),
                 {query.size(0), query.size(1), query.size(2), query.size(3), value.size(4)}));
}

void k_attention(GraphCall& c) {
  const Tensor query = c.tensor(0), key = c.tensor(1), value = c.tensor(2), mask = c.tensor(3);
  for (const Tensor& x : {query, key, value})
    if (!has_dims(c, x, 4, 5)) return;
  if (query.ndim() == 5) return five_dims(c, query, key, value);
  if (key.size(1) < 1 || query.size(1) % key.size(1) != 0 || query.size(3) != key.size(3) || query.size(3) < 1 ||
      !(key.sizes() == value.sizes()) || query.size(0) != key.size(0))
    return c.fail("queries of " + text_of(query.sizes()) + ", keys of " + text_of(key.sizes()));
  if (mask && mask.requires_grad() && key.size(2) % 8 != 0)
    return c.fail("a bias that learns, of other than 8 columns");
  const AttentionCall call{c.attention, c.boolean(5, false), c.number(4, 0), true};
  c.give(scaled_dot_product_attention(choose_kernel(call, query, key, value, mask, c.boolean(7, false)), query, key,
                                      value, mask, {call.causal, query.size(1) != key.size(1), call.dropout}));
}

// In alphabetical order.
constexpr AtenOperator kAttention[] = {
    {"scaled_dot_product_attention", "ttt!onb_b", k_attention},
};

}  // namespace

const std::span<const AtenOperator> attention_operators(kAttention);

}  // namespace oometer
