#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

/// Errors as values. Nothing in oometer throws across a public function.
namespace oometer {

/// What went wrong with an input: where it stands, what was found there, and what would be right.
struct Error {
  std::string code;  ///< stable, for programs: "not-json", "unknown-key", "wrong-type", "out-of-range", "missing", ...
  std::string pointer;  ///< JSON pointer (RFC 6901) into the job; "" is the whole document
  std::string message;  ///< one sentence for people

  bool operator==(const Error&) const = default;
};

/// A value or the reason why there is none (the toolchain has no std::expected).
template <typename T>
class Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return *std::get_if<0>(&state_); }
  const T& operator*() const& { return *std::get_if<0>(&state_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }

  /// Only where `has_value()` is false.
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace oometer
