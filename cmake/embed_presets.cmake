# Embeds the models and GPUs of presets/ in a target, so that the program reads nothing at run time:
# oometer_embed_presets(target).
#
# This file is also the script that writes the source at build time: the C++ side is core/job/presets.h. The catalogue
# of GPUs is split into one entry a GPU, so that looking one up parses one.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(oometer_embed_script ${CMAKE_CURRENT_LIST_FILE})
  function(oometer_embed_presets target)
    set(presets ${PROJECT_SOURCE_DIR}/presets)
    set(output ${PROJECT_BINARY_DIR}/generated/presets.cpp)
    file(GLOB files CONFIGURE_DEPENDS ${presets}/models/*.json)
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DPRESETS=${presets} -DOUTPUT=${output} -P ${oometer_embed_script}
      DEPENDS ${oometer_embed_script} ${presets}/gpus.json ${files}
      COMMENT "Embedding presets"
      VERBATIM)
    target_sources(${target} PRIVATE ${output})
  endfunction()
  return()
endif()

set(entries "")

# Raw newlines never stand inside a JSON string: taking them out with the indentation leaves the same document.
function(append folder id json)
  string(REGEX REPLACE "\n[ \t]*" "" minified "${json}")
  set(entries "${entries}    {\"${folder}\", \"${id}\", R\"json(${minified})json\"},\n" PARENT_SCOPE)
endfunction()

file(READ ${PRESETS}/gpus.json gpus)
string(JSON count LENGTH "${gpus}")
math(EXPR last "${count} - 1")
foreach(index RANGE ${last})
  string(JSON gpu GET "${gpus}" ${index})
  string(JSON id GET "${gpu}" id)
  foreach(name source marketing_gb)  # for readers of the file, as the models' sources are
    string(JSON gpu REMOVE "${gpu}" ${name})
  endforeach()
  append(gpus ${id} "${gpu}")
endforeach()

file(GLOB files ${PRESETS}/models/*.json)
list(SORT files)
foreach(file ${files})
  string(REGEX REPLACE "^.*/(.*)\\.json$" "\\1" id ${file})
  file(READ ${file} text)
  string(REGEX REPLACE "\"source\": \"[^\"]*\"," "" text "${text}")
  append(models ${id} "${text}")
endforeach()

get_filename_component(directory ${OUTPUT} DIRECTORY)
file(MAKE_DIRECTORY ${directory})
file(WRITE ${OUTPUT} "// Written by cmake/embed_presets.cmake from presets/.\n#include \"job/presets.h\"\n\nnamespace oometer {\n\n"
"std::span<const PresetFile> preset_files() {\n  static constexpr PresetFile files[] = {\n${entries}  };\n  return files;\n}\n\n"
"}  // namespace oometer\n")
