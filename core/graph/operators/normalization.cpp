// Normalisation.
#include "graph/operators/table.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {
namespace {

bool is_per_channel(GraphCall& c, const Tensor& x, std::int64_t channels) {
  if (!x || (x.ndim() == 1 && x.size(0) == channels)) return true;
  c.fail("a weight of " + text_of(x.sizes()) + " for " + std::to_string(channels) + " channels");
  return false;
}

void k_batch_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(1), bias = c.tensor(2);
  if (!has_dims(c, x, 2)) return;
  if (is_per_channel(c, weight, x.size(1)) && is_per_channel(c, bias, x.size(1)))
    c.give(batch_norm(x, weight, bias, c.boolean(5, true)));
}

void k_layer_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(2), bias = c.tensor(3);
  const Shape normalized = c.integers(1);
  bool fits = normalized.ndim() >= 1 && normalized.ndim() <= x.ndim();
  for (int i = 1; fits && i <= normalized.ndim(); ++i) fits = x.size(-i) == normalized[-i];
  if (!fits || (weight && !(weight.sizes() == normalized)) || (bias && !(bias.sizes() == normalized)))
    return c.fail("an input of " + text_of(x.sizes()) + " normalised over " + text_of(normalized));
  c.give(layer_norm(x, weight, bias, normalized.ndim()));
}

void k_rms_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(2);
  const Shape normalized = c.integers(1);
  bool fits = normalized.ndim() >= 1 && normalized.ndim() <= x.ndim() && (!weight || weight.sizes() == normalized);
  for (int i = 1; fits && i <= normalized.ndim(); ++i) fits = x.size(-i) == normalized[-i];
  if (!fits) return c.fail("an input of " + text_of(x.sizes()) + " normalised over " + text_of(normalized));
  if (weight && weight.dtype() != x.dtype()) return c.fail("a weight of another type");
  if (!c.context.behaviours.fused_rms_norm && x.dtype() != DType::float32)
    return c.fail("half precision under a torch before 2.9, whose versions differ there");
  c.give(rms_norm(x, weight, normalized.ndim()));
}

void k_group_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(2), bias = c.tensor(3);
  const std::int64_t groups = c.integer(1, 1);
  if (!has_dims(c, x, 2)) return;
  if (groups < 1 || x.size(1) % groups != 0) return c.fail(std::to_string(groups) + " groups");
  if (is_per_channel(c, weight, x.size(1)) && is_per_channel(c, bias, x.size(1)))
    c.give(group_norm(x, groups, weight, bias));
}

// In alphabetical order.
constexpr AtenOperator kNormalization[] = {
    {"batch_norm", "toooob!nnb", k_batch_norm},
    {"group_norm", "ti!oonb", k_group_norm},
    {"layer_norm", "tI!oonb", k_layer_norm},
    {"rms_norm", "tI!on", k_rms_norm},
};

}  // namespace

const std::span<const AtenOperator> normalization_operators(kNormalization);

}  // namespace oometer
