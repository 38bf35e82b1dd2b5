# What most files read, compiled once: with clang half of a family's compilation is reading headers (GCC reads its own
# compiled ones no faster). Those of the core stand here only where a change of them means compiling nearly everything anyway.
function(oometer_precompile_headers target)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return()
  endif()
  target_precompile_headers(
    ${target}
    PRIVATE
      <algorithm>
      <cstdint>
      <functional>
      <memory>
      <optional>
      <span>
      <string>
      <string_view>
      <utility>
      <vector>
      <nlohmann/json.hpp>
      "${PROJECT_SOURCE_DIR}/core/models/family.h"
      "${PROJECT_SOURCE_DIR}/core/ops/ops.h"
  )
endfunction()
