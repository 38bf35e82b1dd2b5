#include "nn/repeat/repeated_blocks.h"

namespace oometer {

std::vector<RepeatedBlocks> repeated_blocks(std::size_t begin, std::size_t end,
                                            const std::function<bool(std::size_t)>& is_other) {
  const auto is_alike = [&](std::size_t i) { return i >= begin && i < end && !(is_other && is_other(i)); };
  std::vector<RepeatedBlocks> stretches;
  for (std::size_t i = begin + 1; i + 1 < end; ++i) {
    if (!is_alike(i - 1) || !is_alike(i) || !is_alike(i + 1)) continue;
    if (!stretches.empty() && stretches.back().end == i)
      ++stretches.back().end;
    else
      stretches.push_back({i, i + 1});
  }
  std::erase_if(stretches, [](const RepeatedBlocks& blocks) { return blocks.end - blocks.begin < 2; });
  if (stretches.empty() || (stretches.size() == 1 && stretches[0].end - stretches[0].begin < 3)) return {};
  ++stretches.front().begin;
  --stretches.back().end;
  return stretches;
}

}  // namespace oometer
