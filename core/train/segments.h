#pragma once

#include <optional>
#include <string>
#include <vector>

#include "result.h"
#include "trace/log.h"
#include "train/config.h"

namespace oometer {

/// A ModuleList of blocks.
struct Stack {
  std::string path;  ///< "model.language_model.layers"
  std::size_t blocks = 0;
};

/// The model's outermost stacks, in the order of its modules.
std::vector<Stack> stacks_of(const Log& log);

/// What is wrong with the segments for this model: a stack or a block that it does not have.
std::optional<Error> check_segments(const Log& log, const std::vector<StackSegments>& segments);

}  // namespace oometer
