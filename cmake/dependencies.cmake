# Nothing is downloaded here: a dependency is found, or one sentence says how to get it (`./dev` installs them all).
function(oometer_require found name package)
  if(NOT ${found})
    message(FATAL_ERROR "${name} was not found. Run ./dev build, which installs what is missing, or install ${package}.")
  endif()
endfunction()

if(EMSCRIPTEN)
  # Emscripten's toolchain hides the host's packages, and the host's include directory breaks its libc: so only this one
  # header-only library is let in, by a link.
  find_path(nlohmann_include nlohmann/json.hpp PATHS /usr/include /usr/local/include NO_CMAKE_FIND_ROOT_PATH)
  oometer_require(nlohmann_include "nlohmann/json" nlohmann-json3-dev)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
  file(CREATE_LINK ${nlohmann_include}/nlohmann ${PROJECT_BINARY_DIR}/include/nlohmann SYMBOLIC)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
  target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${PROJECT_BINARY_DIR}/include)
else()
  find_package(nlohmann_json 3.11 QUIET)
  oometer_require(nlohmann_json_FOUND "nlohmann/json 3.11" nlohmann-json3-dev)
  find_package(CLI11 2.1 QUIET)
  oometer_require(CLI11_FOUND "CLI11 2.1" libcli11-dev)
  find_package(Catch2 3 QUIET)
  oometer_require(Catch2_FOUND "Catch2 3" "libcatch2-dev (on Debian bookworm: from bookworm-backports)")
endif()
