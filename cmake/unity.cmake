# A folder's files are compiled at once, which takes half the time: a name that a file has for itself need differ from those
# of its folder alone, and a new file moves no other one. The WebAssembly module is put together by file (wasm/split.mjs),
# and clang-tidy reads files one by one (the preset "lint").
function(oometer_build_by_folder target sources)
  if(EMSCRIPTEN)
    return()
  endif()
  if(NOT DEFINED CMAKE_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/core)
    string(REPLACE "/" "_" group "folder_${folder}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()
