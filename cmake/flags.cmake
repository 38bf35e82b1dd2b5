# Flags of every target of this project.
add_library(oometer-flags INTERFACE)
target_compile_features(oometer-flags INTERFACE cxx_std_20)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
target_compile_options(
  oometer-flags
  INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
            # The same result on every machine: native and WebAssembly reports are equal to the byte.
            -ffp-contract=off
)

if(EMSCRIPTEN)
  # What a browser loads has to be small. Nothing in the core throws or asks for a type at run time; link-time
  # optimisation must be chosen the same way when compiling and when linking.
  target_compile_options(
    oometer-flags INTERFACE -flto -fno-exceptions -fno-rtti -DEMSCRIPTEN_HAS_UNBOUND_TYPE_NAMES=0
  )
  target_link_options(oometer-flags INTERFACE -flto -fno-exceptions -fno-rtti)
  # These run once a job: they are optimised for size, what runs for every operator or event for speed.
  file(GLOB once_a_job CONFIGURE_DEPENDS core/config/*.cpp core/job/*.cpp core/models/*/config.cpp
       core/models/registry.cpp core/runtime/*.cpp core/cuda/outside.cpp)
  set_source_files_properties(${once_a_job} PROPERTIES COMPILE_OPTIONS -Os)
endif()

if(OOMETER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "OOMETER_FUZZ needs clang, for libFuzzer; this compiler is ${CMAKE_CXX_COMPILER_ID}.")
  endif()
  target_compile_options(oometer-flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(ccache_program ccache)
if(ccache_program AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_program})
endif()
