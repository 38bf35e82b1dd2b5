# The list of families (core/models/family.h): one for each folder of core/models that has a family.cpp.

# Those of first answers. Nothing of another family lies in the first part of the WebAssembly module (wasm/split.mjs).
set(oometer_first_families clip clip_vision llama llava)
# So it is with presets: those that the page and the widget begin with, and a text model.
set(oometer_first_presets llama-3-8b llava-1.5-7b llava-1.5-13b)

function(oometer_list_families target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/models/*/family.cpp)
  list(SORT files)
  set(declared "")
  set(listed "")
  list(TRANSFORM oometer_first_families REPLACE "(.+)" "&family::\\1, " OUTPUT_VARIABLE first)
  string(CONCAT first ${first})
  foreach(file ${files})
    string(REGEX REPLACE "^.*/([^/]*)/family.cpp$" "\\1" name ${file})
    string(APPEND declared "extern const Family ${name};\n")
    string(APPEND listed "&family::${name}, ")
  endforeach()
  set(output ${PROJECT_BINARY_DIR}/generated/families.cpp)
  file(CONFIGURE OUTPUT ${output} CONTENT "// Written by cmake/families.cmake.
#include \"models/family.h\"

namespace oometer {

namespace family {
${declared}}  // namespace family

std::span<const Family* const> first_families() {
  static constexpr const Family* first[] = {${first}};
  return first;
}

[[gnu::noinline]] std::vector<const Family*> families() { return {${listed}}; }

}  // namespace oometer
")
  target_sources(${target} PRIVATE ${output})
endfunction()
