#include "cli/lengths_file.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace oometer::cli {

using Json = nlohmann::json;

namespace {

using Bars = std::map<std::int64_t, std::int64_t>;  ///< tokens, and how many samples have as many

/// A whole number of at most twelve digits.
std::optional<std::int64_t> number_of(std::string_view word) {
  constexpr std::size_t kMostDigits = 12;
  if (word.empty() || word.size() > kMostDigits) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : word) {
    if (c < '0' || c > '9') return std::nullopt;
    value = 10 * value + (c - '0');
  }
  return value;
}

bool add(Bars& bars, std::optional<std::int64_t> length, std::optional<std::int64_t> count) {
  if (!length || !count || *length < 1) return false;
  if (*count > 0) bars[*length] += *count;
  return true;
}

std::optional<std::int64_t> number_in(const Json& value) {
  if (!value.is_number_integer() || value < 0) return std::nullopt;
  return value.get<std::int64_t>();
}

bool read_json_bars(const Json& json, Bars& bars) {
  if (json.is_object()) {
    for (const auto& [length, count] : json.items())
      if (!add(bars, number_of(length), number_in(count))) return false;
    return true;
  }
  if (!json.is_array()) return false;
  for (const Json& one : json) {
    const bool is_pair = one.is_array() && one.size() == 2;
    if (!(is_pair ? add(bars, number_in(one[0]), number_in(one[1])) : add(bars, number_in(one), 1))) return false;
  }
  return true;
}

/// One length, or a length and a count with one of `separators` between.
bool read_bar(const std::string& row, const char* separators, Bars& bars) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = row.find_first_not_of(separators, at)) != std::string::npos) {
    const std::size_t end = std::min(row.find_first_of(separators, at), row.size());
    words.push_back(row.substr(at, end - at));
    at = end;
  }
  if (words.empty() || words.size() > 2) return false;
  return add(bars, number_of(words[0]), words.size() == 2 ? number_of(words[1]) : std::optional<std::int64_t>(1));
}

bool read_text_bars(const std::string& text, Bars& bars) {
  std::istringstream lines(text);
  std::string line;
  bool is_table = false;
  for (bool is_first = true; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    bool has_letters = false, has_digits = false;
    for (const char c : line) {
      has_letters |= std::isalpha(static_cast<unsigned char>(c)) != 0;
      has_digits |= std::isdigit(static_cast<unsigned char>(c)) != 0;
    }
    if (std::exchange(is_first, false) && has_letters && !has_digits) {
      is_table = true;
      continue;
    }
    if (is_table) {
      if (!read_bar(line, " ,;\t\r", bars)) return false;
      continue;
    }
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      std::size_t at = 0;
      while ((at = word.find_first_not_of(",;", at)) != std::string::npos) {
        const std::size_t end = std::min(word.find_first_of(",;", at), word.size());
        if (!read_bar(word.substr(at, end - at), "x*:", bars)) return false;
        at = end;
      }
    }
  }
  return true;
}

}  // namespace

Json lengths_of_text(const std::string& text, const std::string& path) {
  Json json = Json::parse(text, nullptr, false);
  Bars bars;
  if (json.is_object() && json.contains("lengths")) json = Json(json["lengths"]);
  if (json.is_object())
    for (const char* key : {"batches", "uniform", "histogram", "quantiles"})
      if (json.contains(key)) return json;
  const bool is_read = json.is_discarded() ? read_text_bars(text, bars) : read_json_bars(json, bars);
  if (!is_read || bars.empty())
    throw std::runtime_error(path +
                             ": expected one length a sample, or lengths with how many samples have each, such as "
                             "\"512x300\", [[512, 300], ...] or a table of two columns");
  Json histogram = Json::array();
  for (const auto& [length, count] : bars) histogram.push_back({length, count});
  return {{"histogram", std::move(histogram)}};
}

}  // namespace oometer::cli
