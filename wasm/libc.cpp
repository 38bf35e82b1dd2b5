/// \file
/// Functions of the C library that nlohmann_json and embind call, small: musl's go through `long double`, which
/// WebAssembly computes in software, and weigh 20 kB.
#include <emscripten.h>

#include <cstdarg>
#include <cstddef>
#include <cstring>

extern "C" {

/// For characters' codes in messages and escapes ("\\u%04x", "<U+%.4X>"): hexadecimal digits, as many as the format
/// says, are all that it writes of an argument.
int __wrap_snprintf(char* out, std::size_t size, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::size_t written = 0;
  const auto put = [&](char c) {
    if (written + 1 < size) out[written++] = c;
  };
  for (; *format != '\0'; ++format) {
    if (*format != '%') {
      put(*format);
      continue;
    }
    int digits = 0;
    while (*++format != 'x' && *format != 'X' && *format != '\0')
      if (*format >= '0' && *format <= '9') digits = *format - '0';
    if (*format == '\0') break;
    const unsigned value = va_arg(arguments, unsigned);
    const char* const names = *format == 'x' ? "0123456789abcdef" : "0123456789ABCDEF";
    while (digits-- > 0) put(names[value >> (4 * digits) & 15]);
  }
  va_end(arguments);
  out[written] = '\0';
  return static_cast<int>(written);
}

/// embind's names of types that are not bound ("%p"): an answer has none.
int __wrap_siprintf(char* out, const char*, ...) {
  *out = '\0';
  return 0;
}

EM_JS(double, number_of, (const char* text), { return Number(UTF8ToString(text)); });

/// For text that is one number of JSON, whole: JavaScript's reading of it is correctly rounded, as the C library's is.
double __wrap_strtod(const char* text, char** end) {
  *end = const_cast<char*>(text) + std::strlen(text);
  return number_of(text);
}

}  // extern "C"
