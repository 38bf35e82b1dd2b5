#pragma once

#include <string_view>
#include <vector>

#include "graph/operators/table.h"

/// The ATen operators that a graph may have: which memory each takes is said by core/ops.
namespace oometer {

/// All of them.
class AtenOperators {
 public:
  AtenOperators();
  /// By ATen's name ("conv2d"); null: there is none.
  const AtenOperator* find(std::string_view name) const;

 private:
  std::vector<const AtenOperator*> by_name_;
};

/// Takes a convolution's memory, with a workspace of cuDNN's own.
bool is_convolution(const AtenOperator& op);
void run_operator(const AtenOperator& op, GraphCall& call);

}  // namespace oometer
