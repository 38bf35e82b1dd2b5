#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "config/reader.h"
#include "job/settings/remedy.h"
#include "runtime/behaviours.h"

/// The table of a job's settings. A setting is one row (`Setting`): its key, what it takes, the member that keeps it,
/// and what people read of it. Reading and writing a job use what is cut out of the rows at compile time (`Field`), so
/// that a program which only answers carries no words; the command's help, the schema and the docs use the rows.
namespace oometer {

/// The JSON types that a setting takes, as bits: several are a union.
enum JsonType : std::uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,
  kText = 16,
  kList = 32,
  kObject = 64
};

/// What the member that keeps a setting is.
enum class Holder : std::uint8_t {
  none,  ///< there is none: the section's own code reads and writes it
  boolean,
  integer,
  integer_or_zero,  ///< null in a job is 0 here
  optional_integer,
  number,
  optional_number,
  text,
  names,   ///< std::vector<std::string>
  choice,  ///< an enumeration of one byte, or bool
  version,
};

struct Section;

/// What reading and writing need to know of a setting.
struct Field {
  const char* key = "";
  std::uint8_t types = 0;
  Holder holder = Holder::none;
  std::uint8_t length = 0;  ///< of a list that has one length only; else 0
  void* (*member)(void* object) = nullptr;
  double min = 0, max = 0;                      ///< of a number, a list's numbers or a version; both 0: any
  std::span<const Name<std::uint8_t>> choices;  ///< of a text; none: any
  const Section* object = nullptr;              ///< what an object holds; none: any
};

/// One of the values of a setting that has a few.
template <typename T>
struct Choice {
  std::string_view text;
  T value;
  const char* label = "";  ///< what a form calls it, where that is not the text
  const char* words = "";  ///< what one gets by it
};
struct ChoiceWords {
  std::string_view text;
  const char *label = "", *words = "";
};

/// Another setting has one of these values, or none of them: texts, with blanks between.
struct Condition {
  const char* setting = "";  ///< its pointer; "": no condition
  const char* is = "";
  const char* is_not = "";  ///< "null": it is set
};

/// What a setting takes.
struct Takes {
  Field field;
  const void* owner = nullptr;  ///< stands for the struct that the member is of
  std::span<const ChoiceWords> choices = {};

  constexpr Takes operator|(JsonType type) const {
    Takes out = *this;
    out.field.types |= type;
    return out;
  }
  /// Or an object of these settings.
  constexpr Takes operator|(const Section& object) const {
    Takes out = *this | kObject;
    out.field.object = &object;
    return out;
  }
};

/// A setting: one row.
struct Setting {
  const char* key;
  Takes takes;
  const char* words;             ///< what it is, in a sentence or two
  const char* unit = "";         ///< "tokens"
  const char* option = "";       ///< of the command; none: in JSON only
  const char* label = "";        ///< what a form calls it; none: no form has it
  const char* link = "";         ///< its key in a permalink; settings may share one. Published, so never changed
  const char* link_values = "";  ///< how a permalink spells false and true, where not off and on
  const char* offers = "";       ///< values that a form lists, where there is no list of choices
  Condition applies[2] = {};     ///< where it means something, if not wherever its object does
  const char* otherwise = "";    ///< what absence means, as JSON, where that is not the member's default
  const char* schema = "";       ///< JSON schema of what the row cannot say otherwise
  std::span<const Remedy> remedies = {};  ///< ways to one end, of which one is taken; the mildest first
};

/// An object of the job, for reading and writing.
struct Section {
  const char* pointer;
  std::span<const Field> fields;
  std::span<const Remedies> remedies = {};
};

/// One that is kept in a T.
template <typename T>
struct SectionOf : Section {};

/// The same with the whole rows, for people.
struct SectionWords {
  const Section& section;
  const char* words;
  std::span<const Setting> rows;
  const void* (*defaults)() = nullptr;  ///< its struct where a job says nothing
};

/// Every section, an object before those inside it.
std::span<const SectionWords* const> section_words();
/// Those whose settings have remedies, without words.
std::span<const Section* const> sections_with_remedies();

/// What makes rows.
namespace settings {

template <typename S, typename T>
S owner_of(T S::*);
template <typename S, typename T>
T value_of(T S::*);

template <typename T>
inline constexpr char mark_of = 0;

/// The member that is reached by a path of members.
template <auto First, auto... Rest, typename S>
constexpr auto& reach(S& object) {
  if constexpr (sizeof...(Rest) == 0)
    return object.*First;
  else
    return reach<Rest...>(object.*First);
}

template <auto... Path>
struct Member;
template <auto First, auto... Rest>
struct Member<First, Rest...> {
  using Owner = decltype(owner_of(First));
  static void* in(void* object) { return &reach<First, Rest...>(*static_cast<Owner*>(object)); }
};
template <auto First, auto... Rest>
struct Last : Last<Rest...> {};
template <auto First>
struct Last<First> {
  using Value = decltype(value_of(First));
};

template <typename T>
constexpr Holder holder_of() {
  if (std::is_same_v<T, bool>) return Holder::boolean;
  if (std::is_same_v<T, std::int64_t>) return Holder::integer;
  if (std::is_same_v<T, std::optional<std::int64_t>>) return Holder::optional_integer;
  if (std::is_same_v<T, double>) return Holder::number;
  if (std::is_same_v<T, std::optional<double>>) return Holder::optional_number;
  if (std::is_same_v<T, std::vector<std::string>>) return Holder::names;
  if (std::is_same_v<T, Version>) return Holder::version;
  return Holder::text;
}

constexpr std::uint8_t types_of(Holder holder) {
  switch (holder) {
    case Holder::boolean:
      return kBoolean;
    case Holder::integer:
      return kInteger;
    case Holder::integer_or_zero:
    case Holder::optional_integer:
      return kInteger | kNull;
    case Holder::number:
      return kNumber;
    case Holder::optional_number:
      return kNumber | kNull;
    case Holder::names:
      return kList;
    default:
      return kText;
  }
}

template <auto... Path>
constexpr Takes takes(Holder holder, double min, double max) {
  Takes out;
  out.field.types = types_of(holder);
  out.field.holder = holder;
  out.field.member = &Member<Path...>::in;
  out.field.min = min;
  out.field.max = max;
  out.owner = &mark_of<typename Member<Path...>::Owner>;
  return out;
}

/// What a member takes by its type; of a number the least and the greatest.
template <auto... Path>
constexpr Takes in(double min = 0, double max = 0) {
  return takes<Path...>(holder_of<typename Last<Path...>::Value>(), min, max);
}
constexpr double number_of(const Version& version) {
  return version.major * 1'000'000 + version.minor * 1000 + version.patch;
}
constexpr Version version_of(double number) {
  const int whole = static_cast<int>(number);
  return {whole / 1'000'000, whole / 1000 % 1000, whole % 1000};
}
template <auto... Path>
constexpr Takes in(VersionRange range) {
  return in<Path...>(number_of(range.first), number_of(range.last));
}
template <auto... Path>
constexpr Takes in(Range range) {
  return in<Path...>(static_cast<double>(range.min), static_cast<double>(range.max));
}
/// A whole number or null, which is 0 in the member.
template <auto... Path>
constexpr Takes in_or_zero(Range range) {
  return takes<Path...>(Holder::integer_or_zero, static_cast<double>(range.min), static_cast<double>(range.max));
}

/// How the values of a table are spelled, without its words.
template <const auto& Table>
inline constexpr auto names = [] {
  using Value = std::remove_cvref_t<decltype(Table[0].value)>;
  std::array<Name<Value>, std::size(Table)> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = {Table[i].text, Table[i].value};
  return out;
}();
template <const auto& Table>
inline constexpr auto spellings = [] {
  std::array<Name<std::uint8_t>, std::size(Table)> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = {Table[i].text, static_cast<std::uint8_t>(Table[i].value)};
  return out;
}();
template <const auto& Table>
inline constexpr auto words_of_choices = [] {
  std::array<ChoiceWords, std::size(Table)> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = {Table[i].text, Table[i].label, Table[i].words};
  return out;
}();

/// One of a table's values.
template <const auto& Table>
constexpr Takes one_of() {
  Takes out;
  out.field.types = kText;
  out.field.choices = spellings<Table>;
  out.choices = words_of_choices<Table>;
  return out;
}
template <const auto& Table, auto... Path>
constexpr Takes one_of() requires(sizeof...(Path) > 0) {
  static_assert(sizeof(typename Last<Path...>::Value) == 1);
  Takes out = takes<Path...>(Holder::choice, 0, 0);
  out.field.choices = spellings<Table>;
  out.choices = words_of_choices<Table>;
  return out;
}

/// What no member keeps: the section's own code reads it.
constexpr Takes any(unsigned types, Range range = {0, 0}) {
  Takes out;
  out.field.types = static_cast<std::uint8_t>(types);
  out.field.min = static_cast<double>(range.min);
  out.field.max = static_cast<double>(range.max);
  return out;
}
constexpr Takes list_of(std::uint8_t length, unsigned types, Range range) {
  Takes out = any(types | kList | kInteger, range);
  out.field.length = length;
  return out;
}

/// The first halves of rows. `Owner`: the struct that their members are of.
template <typename Owner, const auto& Rows>
inline constexpr auto fields = [] {
  std::array<Field, std::size(Rows)> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = Rows[i].takes.field;
    out[i].key = Rows[i].key;
  }
  static_assert([] {
    for (const Setting& row : Rows)
      if (row.takes.owner && row.takes.owner != &mark_of<Owner>) return false;
    return true;
  }());
  return out;
}();

/// The remedies of rows.
template <const auto& Rows>
inline constexpr auto remedies = [] {
  std::array<Remedies, static_cast<std::size_t>(std::count_if(
                           std::begin(Rows), std::end(Rows), [](const Setting& row) { return !row.remedies.empty(); }))>
      out{};
  std::size_t i = 0;
  for (const Setting& row : Rows)
    if (!row.remedies.empty()) out[i++] = {row.key, row.remedies};
  return out;
}();

template <typename T>
const void* defaults_of() {
  static const T defaults;
  return &defaults;
}

}  // namespace settings

}  // namespace oometer
