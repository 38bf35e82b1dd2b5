# Embeds presets/hub.json, the hub's models by their names, in a target: oometer_embed_hub(target). Only the command
# has it: the page loads the file by itself and hands it over. The C++ side is core/cli/hub.h.
#
# This file is also the script that writes the source at build time: a line of the file is a string of its own.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(oometer_hub_script ${CMAKE_CURRENT_LIST_FILE})
  function(oometer_embed_hub target)
    set(hub ${PROJECT_SOURCE_DIR}/presets/hub.json)
    set(output ${PROJECT_BINARY_DIR}/generated/hub.cpp)
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DHUB=${hub} -DOUTPUT=${output} -P ${oometer_hub_script}
      DEPENDS ${oometer_hub_script} ${hub}
      COMMENT "Embedding the hub's models"
      VERBATIM)
    target_sources(${target} PRIVATE ${output})
  endfunction()
  return()
endif()
cmake_minimum_required(VERSION 3.24)

file(READ ${HUB} text)
string(REGEX REPLACE "\n[ \t]*" ")json\",\n    R\"json(" text "${text}")
get_filename_component(directory ${OUTPUT} DIRECTORY)
file(MAKE_DIRECTORY ${directory})
file(WRITE ${OUTPUT} "// Written by cmake/embed_hub.cmake from presets/hub.json.
#include \"cli/hub.h\"

namespace oometer::cli {

std::string hub_text() {
  static constexpr const char* lines[] = {
    R\"json(${text})json\",
  };
  std::string all;
  for (const char* line : lines) all += line;
  return all;
}

}  // namespace oometer::cli
")
