/// \file
/// Two functions of the C library that nlohmann_json calls, small: musl's go through `long double`, which WebAssembly
/// computes in software, and weigh 17 kB.
#include <emscripten.h>

#include <cstdarg>
#include <cstddef>
#include <cstring>

extern "C" {

int vsniprintf(char* out, std::size_t size, const char* format, std::va_list arguments);  // musl's, without doubles

/// For characters' codes in messages and escapes; no double is written with it.
int __wrap_snprintf(char* out, std::size_t size, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const int written = vsniprintf(out, size, format, arguments);
  va_end(arguments);
  return written;
}

EM_JS(double, number_of, (const char* text), { return Number(UTF8ToString(text)); });

/// For text that is one number of JSON, whole: JavaScript's reading of it is correctly rounded, as the C library's is.
double __wrap_strtod(const char* text, char** end) {
  *end = const_cast<char*>(text) + std::strlen(text);
  return number_of(text);
}

}  // extern "C"
