#include "nn/repeat/block_modules.h"

#include <algorithm>

namespace oometer {

std::span<const Parameter> BlockModules::parameters_of(std::size_t block) const {
  const auto first_of = [&](ModuleId start) {
    return std::lower_bound(parameters->begin(), parameters->end(), start,
                            [](const Parameter& p, ModuleId module) { return p.module < module; });
  };
  const auto first = first_of(starts[block]), last = first_of(starts[block + 1]);
  return {parameters->data() + (first - parameters->begin()), static_cast<std::size_t>(last - first)};
}

bool BlockModules::are_alike(const Context& context, std::size_t a, std::size_t b) const {
  if (starts[a + 1] - starts[a] != starts[b + 1] - starts[b]) return false;
  for (ModuleId i = 0; i < starts[a + 1] - starts[a] && !context.modules_without_grad.empty(); ++i)
    if (context.is_without_grad(starts[a] + i) != context.is_without_grad(starts[b] + i)) return false;
  const std::span<const Parameter> of_a = parameters_of(a), of_b = parameters_of(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [&](const Parameter& x, const Parameter& y) {
    return x.tensor.sizes() == y.tensor.sizes() && x.tensor.dtype() == y.tensor.dtype() &&
           x.tensor.requires_grad() == y.tensor.requires_grad() && x.module - starts[a] == y.module - starts[b];
  });
}

}  // namespace oometer
