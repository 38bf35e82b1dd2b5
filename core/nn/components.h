#pragma once

#include <string>
#include <vector>

namespace oometer {

/// Components by dotted name, at any depth: `vision_tower` matches `model.vision_tower.x`.
struct Components {
  std::vector<std::string> freeze;      ///< requires_grad = False
  std::vector<std::string> train_only;  ///< if any: everything else is frozen
  std::vector<std::string> no_grad;     ///< forward runs under torch.no_grad

  bool operator==(const Components&) const = default;
};

}  // namespace oometer
