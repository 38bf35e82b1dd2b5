#include "nn/repeat/block_modules.h"

#include <algorithm>
#include <string_view>

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
  const auto without_grad = [&](std::size_t block) {
    const std::string_view all(context.modules_without_grad.data(), context.modules_without_grad.size());
    return all.substr(std::min<std::size_t>(starts[block], all.size()), starts[block + 1] - starts[block]);
  };
  if (without_grad(a) != without_grad(b)) return false;
  const std::span<const Parameter> of_a = parameters_of(a), of_b = parameters_of(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [&](const Parameter& x, const Parameter& y) {
    return x.tensor.sizes() == y.tensor.sizes() && x.tensor.dtype() == y.tensor.dtype() &&
           x.tensor.requires_grad() == y.tensor.requires_grad() && x.module - starts[a] == y.module - starts[b];
  });
}

}  // namespace oometer
