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
  # The JSON library's assertions are for the native tests, which go the same ways. By unique names split.mjs tells one
  # family's `read` from another's.
  target_compile_options(
    oometer-flags INTERFACE -flto -funique-internal-linkage-names -fno-exceptions -fno-rtti -DNDEBUG -DEMSCRIPTEN_HAS_UNBOUND_TYPE_NAMES=0
  )
  target_link_options(oometer-flags INTERFACE -flto -fno-exceptions -fno-rtti)
endif()

# What a browser loads has to be small, where that costs no time. Reading a job runs once an answer; of a model's equal
# blocks only the first are executed, so that models, operators and modules are small too. What sees every event or
# parameter stays fast: the log, the copying of repeated blocks, the allocator and its replay.
function(oometer_optimise_for_size target sources)
  set(small ${sources})
  list(FILTER small INCLUDE REGEX "/(autograd|ops|nn|train)/|/kernel.cpp$")
  list(FILTER small EXCLUDE REGEX "/nn/repeat/(range_copier|replaying_repeater).cpp$|/(block_stack|step|repetition|pointwise|matmul|views).cpp$")
  set(smallest ${sources})
  list(FILTER smallest INCLUDE REGEX
       "/(advice|config|job|runtime|models|distributed|peft|report|train)/|/nn/[a-z_0-9]*.cpp$|/autograd/checkpoint|/ops/(attention|autocast|convolution|embedding|indexing|joining|reduce|softmax|liger)|/json|/(outside|work).cpp$|/(snapshot|pickle_writer).cpp$")
  list(REMOVE_ITEM small ${smallest})
  set_source_files_properties(${small} PROPERTIES COMPILE_OPTIONS -Os)
  # A library of their own: clang takes precompiled headers only where these, too, were made small.
  add_library(${target}-small OBJECT ${small} ${smallest})
  target_include_directories(${target}-small PRIVATE core)
  target_link_libraries(${target}-small PRIVATE oometer-flags nlohmann_json::nlohmann_json)
  target_compile_options(${target}-small PRIVATE -Oz)
  oometer_precompile_headers(${target}-small)
  get_target_property(all ${target} SOURCES)
  list(REMOVE_ITEM all ${small} ${smallest})
  set_target_properties(${target} PROPERTIES SOURCES "${all};$<TARGET_OBJECTS:${target}-small>")
endfunction()

# Elsewhere models and importers are made small, but for the models of first answers and what all of them share: they are three
# quarters of the Python wheel's code, which -O3 makes nearly twice as large for half a per cent of the instructions of a job.
# By whole folders, since a folder's files are compiled at once (unity.cmake).
function(oometer_keep_models_small target sources)
  set(small ${sources})
  list(JOIN oometer_first_families "|" first)
  list(FILTER small INCLUDE REGEX "/core/(importers|models)/")
  list(FILTER small EXCLUDE REGEX "/core/models/(${first}|kit)/|/core/models/[^/]*$")
  list(REMOVE_ITEM sources ${small})
  add_library(${target}-small OBJECT ${small})
  target_include_directories(${target}-small PRIVATE core)
  target_link_libraries(${target}-small PRIVATE oometer-flags nlohmann_json::nlohmann_json)
  target_compile_options(${target}-small PRIVATE $<$<CONFIG:Release>:-Os>)
  set_target_properties(${target} PROPERTIES SOURCES "${sources};$<TARGET_OBJECTS:${target}-small>")
endfunction()

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
