#include "trace/work.h"

namespace oometer {

std::vector<std::int64_t> WorkLog::times(std::span<const WorkRange> ranges) const {
  std::vector<std::int64_t> of_work(works.size()), of_repeat(repeats.size());
  const auto add = [&](const WorkRange& part, std::int64_t count) {
    for (std::uint32_t i = part.begin.work; i < part.end.work; ++i) of_work[i] += count;
    for (std::uint32_t i = part.begin.repeat; i < part.end.repeat; ++i) of_repeat[i] += count;
  };
  if (ranges.empty()) return of_work;
  for (const WorkRange& range : ranges) add(range, 1);
  // What is repeated lies before its repetition: from the last one, each knows how often it was repeated itself.
  for (std::size_t i = ranges.back().end.repeat; i-- > 0;)
    if (of_repeat[i] != 0) add(repeats[i].range, of_repeat[i] * repeats[i].times);
  return of_work;
}

}  // namespace oometer
