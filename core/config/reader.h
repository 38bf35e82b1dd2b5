#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/activation.h"
#include "config/unmodelled.h"
#include "result.h"

/// Reading JSON objects key by key: defaults, checks, and a memory of what was not read.
namespace oometer {

/// What reading one document found: the first error (a reader goes on with defaults after it, so that readers need no
/// branches), the keys that nothing here models, and what had to be assumed.
struct Findings {
  std::optional<Error> error;
  std::vector<Unmodelled> unmodelled;
  std::vector<std::string> assumptions;  ///< for people: what the answer rests on
};

/// The least and greatest value that a number may have.
struct Range {
  std::int64_t min = 1;
  /// Above what any real model or machine has, and low enough that a product of two fits 64 bits.
  std::int64_t max = std::numeric_limits<std::int32_t>::max();
};
inline constexpr Range positive{};
inline constexpr Range non_negative{0};
/// Layers of a model: each is executed, so this also bounds the time.
inline constexpr Range layer_count{1, 10'000};

/// An enumerator's spelling in JSON.
template <typename T>
struct Name {
  std::string_view text;
  T value;
};

/// How strictly a document is read.
enum class Mode : std::uint8_t {
  strict,   ///< a job: numbers are numbers, unknown keys are errors that suggest the closest known one
  lenient,  ///< a config.json: numeric strings count as numbers, unknown keys are kept and reported
};

/// Reads one JSON object. Every accessor marks its key as read; `finish` deals with the others. A null counts as
/// absent only for the accessors that say so. Texts that stand in the code are taken as pointers: hundreds of calls,
/// and WebAssembly passes a string_view through memory.
class ConfigReader {
 public:
  /// `object` outlives the reader; a null pointer reads as an object without keys.
  ConfigReader(const nlohmann::json* object, std::string pointer, Mode mode, Findings& findings);

  bool ok() const { return !findings_.error; }
  const std::string& pointer() const { return pointer_; }
  Mode mode() const { return mode_; }
  Findings& findings() const { return findings_; }

  /// The key is there, and not null. Marks it as read.
  bool has(const char* key);
  /// The key is there, and null.
  bool is_null(const char* key);
  bool is_list(const char* key);
  bool is_object(const char* key);
  /// The text "auto".
  bool is_auto(const char* key);

  std::int64_t integer(const char* key, std::int64_t fallback, Range range = positive);
  double number(const char* key, double fallback, double min, double max);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, std::string_view fallback);
  /// Absent and null are the same: none.
  std::optional<std::int64_t> optional_integer(const char* key, Range range = positive);
  std::optional<double> optional_number(const char* key, double min, double max);
  std::vector<std::string> texts(const char* key);
  /// A text for each of num_hidden_layers; none where the key is absent.
  std::vector<std::string> texts_of_layers(const char* key, std::int64_t layers);
  std::vector<std::int64_t> integers(const char* key, Range range = positive);

  /// One of the names of a table, which may be written in place: `{{"none", 0}, {"cpu", 1}}`.
  template <typename T, std::size_t N>
  T choice(const char* key, T fallback, const Name<std::type_identity_t<T>> (&table)[N]) {
    return choice(key, fallback, std::span<const Name<T>>(table));
  }
  template <typename T, std::size_t N>
  T choice(const char* key, T fallback, const std::array<Name<T>, N>& table) {
    return choice(key, fallback, std::span<const Name<T>>(table));
  }
  template <typename T>
  T choice(const char* key, T fallback, std::span<const Name<T>> table);

  Activation activation(const char* key, Activation fallback);

  /// The object below `key`; where it is absent or null an empty one, so that its reader gives the defaults.
  ConfigReader object(const char* key);
  /// The raw value below `key`, or null.
  const nlohmann::json* find(const char* key);

  /// Keys that are known and change no memory.
  void ignore(std::initializer_list<std::string_view> keys);
  /// A key that is known and not modelled: an error where it is set to anything but null, false or absent.
  void refuse(const char* key, const char* why);
  /// Call last. Strict: an unread key is an error. Lenient: it is reported as not modelled, unless it is one of those
  /// that every Hugging Face config may hold and that change no memory.
  void finish();

  /// Notes an error at `key` (or at the object itself, ""), unless there is one already.
  void fail(const char* key, const char* code, const std::string& message);
  /// The same, as "found X; EXPECTED", X being what stands at `key`.
  void fail_found(const char* key, const char* code, const char* expected);
  void fail_found(const char* key, const char* code, const std::string& expected);
  std::string pointer_to(std::string_view key) const;

 private:
  const nlohmann::json* get(std::string_view key);
  const nlohmann::json* list(const char* key);
  void note(std::string pointer, const char* code, const std::string& message);
  std::optional<std::int64_t> to_integer(const std::string& pointer, const nlohmann::json& value, Range range);
  std::optional<double> to_number(const nlohmann::json& value) const;
  /// Index into `names`; their number where the key is absent or wrong.
  std::size_t choose(const char* key, const std::vector<std::string_view>& names);

  const nlohmann::json* object_;
  std::string pointer_;
  Mode mode_;
  Findings& findings_;
  std::vector<std::string_view> known_;
};

template <typename T>
T ConfigReader::choice(const char* key, T fallback, std::span<const Name<T>> table) {
  std::vector<std::string_view> names;
  names.reserve(table.size());
  for (const auto& name : table) names.push_back(name.text);
  const std::size_t index = choose(key, names);
  return index < table.size() ? table[index].value : fallback;
}

/// Parses a document without recursion and without exceptions: at most `max_depth` levels, no key twice in an object.
Result<nlohmann::json> parse_json(std::string_view text, std::size_t max_depth = 64);

/// What an error says was found, as JSON: 3.5, "abc". Long values are cut; an object is "an object".
std::string describe(const nlohmann::json& value);

/// Text in quotes, as ASCII and cut where it is long: safe to show.
std::string quote(std::string_view text);
/// ASCII letters as str.lower() has them.
std::string lower_case(std::string text);

/// The candidate nearest to `word` in edits, or "" where none is near.
std::string_view closest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace oometer
