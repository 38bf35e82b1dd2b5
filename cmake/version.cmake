# Defines oometer::version() ("0.1.0+abc1234") from the project's version and the commit that is built. The commit is
# asked for at every build, and only when it has changed is the one small file that holds it compiled again.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.24)
  execute_process(
    COMMAND git -C ${SOURCE_DIR} rev-parse --short=7 HEAD
    OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  )
  if(commit)
    set(VERSION "${VERSION}+${commit}")
  endif()
  set(source "#include \"version.h\"\n\nstd::string_view oometer::version() { return \"${VERSION}\"; }\n")
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${source}")
  return()
endif()

function(oometer_embed_version target)
  set(output ${PROJECT_BINARY_DIR}/version.cpp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/version.cmake)
  add_custom_target(
    ${target}-version
    COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION} -DOUTPUT=${output} -P ${script}
    BYPRODUCTS ${output}
    COMMENT ""
  )
  target_sources(${target} PRIVATE ${output})
  add_dependencies(${target} ${target}-version)
endfunction()
