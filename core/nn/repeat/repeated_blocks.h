#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace oometer {

/// Blocks [begin, end) that are written into the log, not executed.
struct RepeatedBlocks {
  std::size_t begin, end;
};

/// Which of a stack's blocks [begin, end) are written: stretches of those that are alike, as their neighbours are. Two
/// blocks before the first stretch and two behind the last are executed, for the others to be written from.
/// `is_other(i)`: block i's forward is not as most; null: all are alike.
std::vector<RepeatedBlocks> repeated_blocks(std::size_t begin, std::size_t end,
                                            const std::function<bool(std::size_t)>& is_other);

}  // namespace oometer
