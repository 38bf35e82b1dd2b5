# Where files are compiled several at once (the preset "sanitizers"), those of one folder are, and no others: a name that
# a file has for itself need differ from those of its folder alone, and a new file moves no other one.
function(oometer_group_by_folder target sources)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/core)
    string(REPLACE "/" "_" group "folder_${folder}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()
