#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace oometer {

/// Writes compact JSON, in the order of the calls. Numbers are integers: the text is the same on every machine.
class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }

  /// `name` needs no escape.
  void key(std::string_view name) {
    char* at = room(name.size() + 4);
    *at++ = '"';
    std::memcpy(at, name.data(), name.size());
    at += name.size();
    *at++ = '"';
    *at++ = ':';
    used_ = static_cast<std::size_t>(at - text_.data());
    comma_ = false;
  }

  void value(std::int64_t number) {
    constexpr std::size_t kDigits = 20;  // and a sign
    char* at = room(kDigits + 1);
    used_ = static_cast<std::size_t>(std::to_chars(at, at + kDigits, number).ptr - text_.data());
    comma_ = true;
  }
  void value(bool truth) { literal(truth ? "true" : "false"); }
  void null() { literal("null"); }
  void value(std::string_view string);
  void value(const char* string) { value(std::string_view(string)); }

  /// A value that is JSON already.
  void raw(std::string_view text) { literal(text); }

  template <typename T>
  void member(std::string_view name, const T& content) {
    key(name);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      value(static_cast<std::int64_t>(content));
    } else {
      value(content);
    }
  }

  /// An array of strings.
  template <typename Strings>
  void member_array(std::string_view name, const Strings& strings) {
    key(name);
    begin_array();
    for (const auto& string : strings) value(string);
    end_array();
  }

  std::string take() {
    text_.resize(used_);
    return std::move(text_);
  }

 private:
  /// Where the next `size` characters go; a comma before them, if one is due, is written.
  char* room(std::size_t size) {
    if (used_ + size + 1 > text_.size()) text_.resize(2 * text_.size() + size + 1);
    text_[used_] = ',';
    used_ += comma_;
    return text_.data() + used_;
  }
  void open(char bracket) {
    *room(1) = bracket;
    ++used_;
    comma_ = false;
  }
  void close(char bracket) {
    comma_ = false;
    *room(1) = bracket;
    ++used_;
    comma_ = true;
  }
  void literal(std::string_view text) {
    std::memcpy(room(text.size()), text.data(), text.size());
    used_ += text.size();
    comma_ = true;
  }

  std::string text_ = std::string(1 << 16, ' ');
  std::size_t used_ = 0;
  bool comma_ = false;
};

}  // namespace oometer
