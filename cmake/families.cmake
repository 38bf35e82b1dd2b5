# The list of families (core/models/family.h): one for each folder of core/models that has a family.cpp.
function(oometer_list_families target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/models/*/family.cpp)
  list(SORT files)
  set(declared "")
  set(listed "")
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

std::span<const Family* const> families() {
  static constexpr const Family* all[] = {${listed}};
  return all;
}

}  // namespace oometer
")
  target_sources(${target} PRIVATE ${output})
  # Each has names of its own for the same things.
  set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
