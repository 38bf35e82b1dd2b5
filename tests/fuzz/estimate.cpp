// Any bytes whatever must give an answer: a report, or an error as a value. Never a crash, a hang or a flood of memory.
#include "job/estimate.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string answer = oometer::estimate_json({reinterpret_cast<const char*>(data), size});
  if (answer.empty() || answer.front() != '{' || answer.back() != '}') __builtin_trap();
  return 0;
}
