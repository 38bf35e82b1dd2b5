#include "report/pickle_writer.h"

#include <cstring>
#include <limits>

namespace oometer {

/// Little-endian.
void PickleWriter::bytes(std::uint64_t number, int count) {
  for (int i = 0; i < count; ++i) out_ += static_cast<char>(number >> (8 * i) & 0xff);
}

void PickleWriter::value(std::int64_t number) {
  if (number >= 0 && number < 256) {
    out_ += 'K';  // BININT1
    bytes(static_cast<std::uint64_t>(number), 1);
  } else if (number >= std::numeric_limits<std::int32_t>::min() && number <= std::numeric_limits<std::int32_t>::max()) {
    out_ += 'J';  // BININT
    bytes(static_cast<std::uint64_t>(number), 4);
  } else {
    out_ += "\x8a\x08";  // LONG1 of 8 bytes
    bytes(static_cast<std::uint64_t>(number), 8);
  }
}

void PickleWriter::value(double number) {
  std::uint64_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  out_ += 'G';  // BINFLOAT, big-endian
  for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i) & 0xff);
}

void PickleWriter::value(std::string_view text) {
  const auto [found, is_new] = texts_.try_emplace(std::string(text), names_);
  if (!is_new) return refer(found->second);
  out_ += 'X';  // BINUNICODE
  bytes(text.size(), 4);
  out_ += text;
  remember();
}

void PickleWriter::pair(std::int64_t first, std::int64_t second) {
  value(first);
  value(second);
  out_ += '\x86';  // TUPLE2
}

std::uint32_t PickleWriter::remember() {
  out_ += 'r';  // LONG_BINPUT
  bytes(names_, 4);
  return names_++;
}

void PickleWriter::refer(std::uint32_t name) {
  out_ += 'j';  // LONG_BINGET
  bytes(name, 4);
}

std::string PickleWriter::take() {
  out_ += '.';
  return std::move(out_);
}

}  // namespace oometer
