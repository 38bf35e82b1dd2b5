#include "report/json_writer.h"

namespace oometer {

void JsonWriter::value(std::string_view string) {
  char* at = room(6 * string.size() + 2);
  *at++ = '"';
  for (const char c : string) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      constexpr const char* kHex = "0123456789abcdef";
      std::memcpy(at, "\\u00", 4);  // NOLINT(bugprone-not-null-terminated-result): the text goes on
      at[4] = kHex[byte >> 4];
      at[5] = kHex[byte & 15];
      at += 6;
      continue;
    }
    if (c == '"' || c == '\\') *at++ = '\\';
    *at++ = c;
  }
  *at++ = '"';
  used_ = static_cast<std::size_t>(at - text_.data());
  comma_ = true;
}

}  // namespace oometer
