#include "report/json_writer.h"

namespace oometer {

namespace {

/// Without a branch, so that many are asked at once.
constexpr bool needs_escape(char c) { return (static_cast<unsigned char>(c) < 0x20) | (c == '"') | (c == '\\'); }

}  // namespace

void JsonWriter::value(std::string_view string) {
  char* at = room(6 * string.size() + 2);
  *at++ = '"';
  bool has_escapes = false;
  for (const char c : string) has_escapes |= needs_escape(c);
  if (!has_escapes) {  // nearly all
    std::memcpy(at, string.data(), string.size());
    at += string.size();
    string = {};
  }
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
