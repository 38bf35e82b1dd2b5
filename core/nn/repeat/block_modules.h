#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "nn/module.h"
#include "tensor/context.h"

namespace oometer {

/// Which modules and parameters are whose, in a stack of blocks.
struct BlockModules {
  std::size_t size() const { return starts.size() - 1; }

  /// In the order of named_parameters(). Looked up when the blocks run: wrappers have added theirs by then.
  std::span<const Parameter> parameters_of(std::size_t block) const;

  /// Block `from`'s modules as block `to`'s.
  MovedModules move(std::size_t from, std::size_t to) const {
    return {starts[from], starts[from + 1] - starts[from], starts[to] - starts[from]};
  }

  /// Whether two blocks have as many modules, and parameters alike.
  bool are_alike(const Context& context, std::size_t a, std::size_t b) const;

  const std::vector<Parameter>* parameters = nullptr;  ///< of the whole model, sorted by module
  std::vector<ModuleId> starts{0};                     ///< of each block, and where the last one ends
};

}  // namespace oometer
