#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace oometer {

/// Writes Python's pickle, protocol 2 (Python: Lib/pickle.py): what a memory snapshot needs of it. A list's items
/// follow begin_list(), a dict's keys and values begin_dict().
class PickleWriter {
 public:
  PickleWriter() : out_("\x80\x02") {}

  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }

  void value(std::int64_t number);
  void value(bool truth) { out_ += truth ? '\x88' : '\x89'; }
  void value(double number);
  /// Each text is written once and referred to from then on.
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void pair(std::int64_t first, std::int64_t second);

  template <typename T>
  void member(std::string_view key, const T& content) {
    value(key);
    value(content);
  }

  /// Names what was just written, to be referred to.
  std::uint32_t remember();
  void refer(std::uint32_t name);

  std::string take();

 private:
  void bytes(std::uint64_t number, int count);

  std::string out_;
  std::uint32_t names_ = 0;
  std::map<std::string, std::uint32_t> texts_;
};

}  // namespace oometer
