#include "importers/keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "config/reader.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

bool says_nothing(const json& value) { return value.is_null() || value == false || value.empty() || value == ""; }

/// As argparse and pydantic read a truth, beside JSON's own; none: it is none.
std::optional<bool> truth_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer() && (value == 0 || value == 1)) return value == 1;
  if (!value.is_string()) return std::nullopt;
  const std::string word = lower_case(value.get<std::string>());
  if (is_word_of(word, "true yes on y t 1")) return true;
  if (is_word_of(word, "false no off n f 0")) return false;
  return std::nullopt;
}

}  // namespace

bool is_word_of(std::string_view word, std::string_view words) {
  while (!words.empty() && !word.empty()) {
    const std::size_t end = std::min(words.find_first_of(" \n"), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

bool is_name_letter(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_'; }

std::vector<std::string> split_words(std::string_view text, std::string_view between) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(between), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

json member(const json& tree, const char* key) {
  if (!tree.is_object()) return {};
  const auto at = tree.find(key);
  return at == tree.end() ? json() : *at;
}

std::string member_text(const json& tree, const char* key) {
  const json value = member(tree, key);
  return value.is_string() ? value.get<std::string>() : "";
}

json scalar_of(const std::string& word) {
  const std::string lower = lower_case(word);
  if (is_word_of(lower, "null ~")) return json();
  if (is_word_of(lower, "true yes on")) return true;
  if (is_word_of(lower, "false no off")) return false;
  if (word.empty() || word.size() > 32 || word.find_first_not_of("0123456789+-._eE") != std::string::npos) return word;
  std::string digits = word;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const char* const begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
  const char* const end = digits.data() + digits.size();
  std::int64_t whole = 0;
  if (const auto [at, error] = std::from_chars(begin, end, whole); error == std::errc() && at == end && begin != end)
    return whole;
  if (digits.find_first_of("0123456789") == std::string::npos) return word;
  char* at = nullptr;  // from_chars has no double in every library that compiles this
  const double number = std::strtod(begin, &at);
  if (at == end && number - number == 0) return number;
  return word;
}

Keys::Keys(Ledger& ledger, std::string file, json object)
    : ledger_(ledger), file_(std::move(file)), object_(std::move(object)) {}

void Keys::over(const std::string& file, const json& object) {
  if (!object_.is_object()) object_ = json::object();
  for (const auto& [name, value] : object.items()) {
    object_[name] = value;
    origins_[name] = file;
  }
}

const std::string& Keys::file_of(std::string_view name) const {
  const auto at = origins_.find(name);
  return at == origins_.end() ? file_ : at->second;
}

void Keys::know(const Table& table) {
  tables_.insert(tables_.begin(), &table);
  for (const Renamed& one : table.renamed) {
    if (!has(one.older)) continue;
    if (object_.contains(one.newer)) continue;  // both: the older one is no key any more
    object_[one.newer] = object_[one.older];
    object_.erase(one.older);
    if (const auto at = origins_.find(one.older); at != origins_.end()) origins_[one.newer] = at->second;
    older_[one.newer] = &one;
  }
}

std::string Keys::written(const std::string& name) const {
  const auto at = older_.find(name);
  return at == older_.end() ? name : at->second->older;
}

std::string Keys::since(const std::string& name) const {
  const auto at = older_.find(name);
  return at == older_.end() ? "" : std::string(at->second->newer) + " since " + at->second->since;
}

bool Keys::asks_for(const char* name) {
  if (!has(name) || !object_[name].is_string()) return false;
  const std::string words = object_[name].get<std::string>();
  const std::size_t begin = words.find_first_of("{$<");
  if (begin == std::string::npos || begin + 2 > words.size()) return false;
  const bool is_template = words.compare(begin, 2, "{{") == 0 || words.compare(begin, 2, "${") == 0 ||
                           (words[begin] == '$' && is_name_letter(words[begin + 1])) ||
                           (words.front() == '<' && words.back() == '>');
  if (!is_template) return false;
  ledger_.missing.push_back({"value", written(name), file_of(name), written(name),
                             "found " + quote(words) + ", which has to be filled in: write its value in its place"});
  object_[name] = json();
  return true;
}

Keys::Row Keys::find(std::string_view name) const {
  for (const Table* table : tables_)
    for (const Key& key : table->keys)
      if (key.name == name) return {&key, table};
  return {nullptr, nullptr};
}

std::string Keys::source_of(std::string_view name) const {
  const Row row = find(name);
  return row.key ? std::string(row.table->project) + ", " + row.key->source : "";
}

bool Keys::is_read(std::string_view name) const { return std::find(read_.begin(), read_.end(), name) != read_.end(); }

bool Keys::has(const char* name) const {
  const auto at = object_.find(name);
  return at != object_.end() && !at->is_null();
}

json Keys::value(const char* name) {
  mark(name);
  return has(name) ? object_[name] : fallback_of(name);
}

json Keys::fallback_of(std::string_view name) const {
  const Row row = find(name);
  return row.key && *row.key->fallback != '\0' ? *parse_json(row.key->fallback) : json();
}

bool Keys::truth(const char* name) {
  json given = value(name);
  if (asks_for(name)) given = fallback_of(name);
  const std::optional<bool> said = truth_of(given);
  if (!said && !given.is_null()) refuse(name, "found " + describe(given) + "; expected true or false");
  return said.value_or(false);
}

std::string Keys::text(const char* name) {
  const json given = value(name);
  if (given.is_string()) return given.get<std::string>();
  return given.is_null() ? "" : given.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::int64_t Keys::integer(const char* name) {
  json given = value(name);
  if (given.is_string()) given = scalar_of(given.get<std::string>());
  if (given.is_number_integer()) return given.get<std::int64_t>();
  if (!given.is_null() && !asks_for(name)) refuse(name, "found " + describe(given) + "; expected a whole number");
  const json fallback = fallback_of(name);
  return fallback.is_number_integer() ? fallback.get<std::int64_t>() : 0;
}

std::int64_t Keys::size(const char* name) { return std::clamp<std::int64_t>(integer(name), 0, std::int64_t{1} << 24); }

std::vector<std::string> Keys::names(const char* name) {
  const json given = value(name);
  std::vector<std::string> words;
  if (given.is_string()) {
    words = split_words(given.get<std::string>(), ",");
    for (std::string& word : words) {
      word.erase(0, word.find_first_not_of(' '));
      word.erase(word.find_last_not_of(' ') + 1);
    }
  }
  if (given.is_array())
    for (const json& one : given)
      if (one.is_string()) words.push_back(one.get<std::string>());
  return words;
}

void Keys::take(const char* name, const std::string& pointer, json put) {
  mark(name);
  const bool given = has(name);
  ledger_.put(pointer, put);
  ledger_.taken.push_back({given ? file_of(name) : "", written(name), pointer, std::move(put), !given,
                           given ? since(name) : source_of(name)});
}

void Keys::take(const char* name) {
  asks_for(name);
  json taken = value(name);
  if (taken.is_null()) return;
  if (taken.is_string())
    if (const json plain = scalar_of(taken.get<std::string>()); !plain.is_null()) taken = plain;
  for (const Table* table : tables_)  // another table may say where it stands
    for (const Key& key : table->keys)
      if (key.name == std::string_view(name) && *key.pointer != '\0') return take(name, key.pointer, std::move(taken));
}

void Keys::take_given(const char* name, const std::string& pointer) {
  if (!has(name)) return mark(name);
  take(name, pointer, value(name));
}

void Keys::note(const char* name, const std::string& pointer) {
  mark(name);
  if (has(name)) ledger_.taken.push_back({file_of(name), written(name), pointer, object_[name], false, since(name)});
}

void Keys::leave_out(const char* name, Effect effect, const std::string& text, std::optional<std::int64_t> bytes) {
  mark(name);
  ledger_.unmodelled.push_back(
      {has(name) ? file_of(name) : "", written(name), object_.value(name, json()), text, effect, bytes});
}

void Keys::ignore(const char* name) {
  mark(name);
  if (object_.contains(name)) ledger_.ignored.emplace_back(file_of(name), written(name));
}

void Keys::refuse(const char* name, const std::string& message) {
  mark(name);
  ledger_.refuse(file_of(name), written(name), message);
}

bool Keys::is_listed(std::string_view newer) const {
  const std::string name = written(std::string(newer));
  const auto is_it = [&](const auto& one) { return one.key == name; };
  const auto is_name = [&](const auto& one) { return one.second == name; };
  return std::any_of(ledger_.taken.begin(), ledger_.taken.end(), is_it) ||
         std::any_of(ledger_.unmodelled.begin(), ledger_.unmodelled.end(), is_it) ||
         std::any_of(ledger_.missing.begin(), ledger_.missing.end(), is_it) ||
         std::any_of(ledger_.ignored.begin(), ledger_.ignored.end(), is_name) ||
         (ledger_.refused && ledger_.refused->key == name);
}

bool Keys::is_harmless(std::string_view name) const {
  if (find(name).key != nullptr) return false;
  const auto leaves_it = [&](const Gap& gap) { return gap.name == name; };
  bool is_known = false;
  for (const Table* table : tables_) {
    if (std::any_of(table->gaps.begin(), table->gaps.end(), leaves_it)) return false;
    is_known |= is_word_of(name, table->harmless) || (table->is_harmless && table->is_harmless(name));
  }
  return is_known;
}

void Keys::finish() {
  if (!object_.is_object()) return;
  std::vector<std::string_view> known;
  for (const Table* table : tables_) {
    for (const Key& key : table->keys) known.emplace_back(key.name);
    for (const Gap& gap : table->gaps) known.emplace_back(gap.name);
    for (std::string_view rest = table->harmless; !rest.empty();) {
      const std::size_t end = std::min(rest.find_first_of(" \n"), rest.size());
      if (end > 0) known.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  for (const auto& [name, value] : object_.items()) {
    if (is_read(name)) {
      if (!is_listed(name)) ignore(name.c_str());
      continue;
    }
    const Gap* gap = nullptr;
    bool is_harmless = false;
    for (const Table* table : tables_) {
      for (const Gap& one : table->gaps)
        if (gap == nullptr && one.name == name) gap = &one;
      is_harmless |= is_word_of(name, table->harmless) || (table->is_harmless && table->is_harmless(name));
    }
    if (gap != nullptr) {
      const bool off = says_nothing(value) || (*gap->off != '\0' && value == *parse_json(gap->off)) ||
                       (value.is_string() && says_nothing(scalar_of(value.get<std::string>())));
      if (off)
        ignore(gap->name);
      else
        leave_out(gap->name, gap->effect, gap->text);
      continue;
    }
    if (is_harmless || find(name).key != nullptr || value.is_null()) {
      ignore(name.c_str());
      continue;
    }
    const std::string_view near = closest(name, known);
    leave_out(
        name.c_str(), Effect::unknown,
        "no key that is known of this trainer" + (near.empty() ? "" : "; did you mean \"" + std::string(near) + "\"?"));
  }
}

}  // namespace oometer::importers
