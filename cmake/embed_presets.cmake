# Embeds the models and GPUs of presets/ in a target, so that the program reads nothing at run time:
# oometer_embed_presets(target).
#
# This file is also the script that writes the source at build time: the C++ side is core/job/presets.h. The catalogue
# of GPUs is split into one entry a GPU, so that looking one up parses one. The models of first answers are named in
# cmake/families.cmake.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(oometer_embed_script ${CMAKE_CURRENT_LIST_FILE})
  function(oometer_embed_presets target)
    set(presets ${PROJECT_SOURCE_DIR}/presets)
    set(output ${PROJECT_BINARY_DIR}/generated/presets.cpp)
    file(GLOB files CONFIGURE_DEPENDS ${presets}/models/*.json)
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DPRESETS=${presets} "-DFIRST=${oometer_first_presets}" -DOUTPUT=${output}
              -P ${oometer_embed_script}
      DEPENDS ${oometer_embed_script} ${PROJECT_SOURCE_DIR}/cmake/families.cmake
              ${presets}/gpus.json ${files}
      COMMENT "Embedding presets"
      VERBATIM)
    target_sources(${target} PRIVATE ${output})
  endfunction()
  return()
endif()
cmake_minimum_required(VERSION 3.24)

set(texts "")
set(all "")
set(first "")

# Raw newlines never stand inside a JSON string: taking them out with the indentation leaves the same document.
# `place`: among the first ones, or -1.
function(append folder id json place)
  string(REGEX REPLACE "\n[ \t]*" "" minified "${json}")
  string(MAKE_C_IDENTIFIER "${folder}_${id}" name)
  string(APPEND texts "constexpr char ${name}[] = R\"json(${minified})json\";\n")
  string(APPEND all "{\"${folder}\", \"${id}\", ${name}},\n")
  if(NOT place EQUAL -1)
    string(APPEND first "{\"${folder}\", \"${id}\", ${name}},\n")
  endif()
  set(texts "${texts}" PARENT_SCOPE)
  set(all "${all}" PARENT_SCOPE)
  set(first "${first}" PARENT_SCOPE)
endfunction()

file(READ ${PRESETS}/gpus.json gpus)
string(JSON count LENGTH "${gpus}")
math(EXPR last "${count} - 1")
foreach(index RANGE ${last})
  string(JSON gpu GET "${gpus}" ${index})
  string(JSON id GET "${gpu}" id)
  foreach(name source marketing_gb place)  # for readers of the file and the page, as the models' sources are
    string(JSON gpu REMOVE "${gpu}" ${name})
  endforeach()
  append(gpus ${id} "${gpu}" 0)
endforeach()

file(GLOB files ${PRESETS}/models/*.json)
list(SORT files)
foreach(file ${files})
  string(REGEX REPLACE "^.*/(.*)\\.json$" "\\1" id ${file})
  file(READ ${file} text)
  string(REGEX REPLACE "\"source\": \"[^\"]*\"," "" text "${text}")
  list(FIND FIRST "${id}" place)
  append(models ${id} "${text}" ${place})
endforeach()

get_filename_component(directory ${OUTPUT} DIRECTORY)
file(MAKE_DIRECTORY ${directory})
file(WRITE ${OUTPUT} "// Written by cmake/embed_presets.cmake from presets/.
#include \"job/presets.h\"

namespace oometer {

namespace {
${texts}}  // namespace

[[gnu::noinline]] std::vector<PresetFile> preset_files() {
  return {
${all}};
}

std::span<const PresetFile> first_preset_files() {
  static constexpr PresetFile files[] = {
${first}};
  return files;
}

}  // namespace oometer
")
