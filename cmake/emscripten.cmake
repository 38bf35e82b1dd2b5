# Finds the Emscripten that is on PATH, Debian's package or an emsdk, and hands over to its own toolchain file.
find_program(em_config em-config REQUIRED NO_CMAKE_FIND_ROOT_PATH)
execute_process(COMMAND ${em_config} EMSCRIPTEN_ROOT OUTPUT_VARIABLE emscripten_root OUTPUT_STRIP_TRAILING_WHITESPACE)
include(${emscripten_root}/cmake/Modules/Platform/Emscripten.cmake)
