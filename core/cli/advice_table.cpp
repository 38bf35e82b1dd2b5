#include "cli/advice_table.h"

#include "cli/format.h"

namespace oometer::cli {

using OrderedJson = nlohmann::ordered_json;

namespace {

std::string limit(const OrderedJson& advice, const char* key, const char* words, const char* unit) {
  const OrderedJson& number = advice.at(key);
  const std::string value = number.is_null() ? "none" : std::to_string(number.get<std::int64_t>()) + " " + unit;
  return std::string(words) + value + "\n";
}

std::string bytes(const OrderedJson& object, const char* key) { return bytes_text(object.at(key).get<std::int64_t>()); }

std::string text(const OrderedJson& object, const char* key) { return object.at(key).get<std::string>(); }

std::string row(const char* format, const std::string& a, const std::string& b, const std::string& c) {
  char line[160];
  std::snprintf(line, sizeof line, format, a.c_str(), b.c_str(), c.c_str());
  return line;
}

}  // namespace

std::string advice_table(const OrderedJson& advice) {
  std::string out = "Limits, everything else unchanged\n";
  out += limit(advice, "largest_micro_batch", "  largest micro-batch  ", "samples");
  out += limit(advice, "longest_sequence", "  longest sequence     ", "tokens");
  if (!advice.at("fewest_gpus").is_null()) out += limit(advice, "fewest_gpus", "  fewest GPUs          ", "GPUs");

  if (!advice.at("frontier").empty()) out += "\nConcurrent sequences, by context length (prompt and answer)\n";
  for (const OrderedJson& point : advice.at("frontier"))
    out += row("  %9s tokens %11s%s\n", std::to_string(point.at("context").get<std::int64_t>()),
               std::to_string(point.at("users").get<std::int64_t>()), "");

  out += "\nEffect of single changes\n" + row("  %13s%13s  %-14s", "saves", "peak", "verdict") + "change\n";
  for (const OrderedJson& change : advice.at("changes")) {
    const std::int64_t saves = change.at("saves").get<std::int64_t>();
    std::string saved = bytes_text(saves < 0 ? -saves : saves);
    if (saves < 0) saved.insert(0, 1, '-');
    out += row("  %13s%13s  %-14s", saved, bytes(change, "peak"), text(change, "verdict"));
    out += text(change, "label") + " (" + text(change, "costs") + ")\n";
  }
  if (advice.at("changes").empty()) out += "  no known change saves memory here\n";

  const char* title = "Cheapest combination that is enough";
  for (const OrderedJson& combination : advice.at("combinations")) {
    out += std::string("\n") + title + " (" + text(combination, "verdict") + ", " + bytes(combination, "peak") + ")\n";
    for (const OrderedJson& part : combination.at("parts"))
      out += "  - " + text(part, "label") + " (" + text(part, "costs") + ")\n";
    title = "Or";
  }

  if (!advice.at("beside").empty()) out += "\nWhat fits as well\n";
  for (const OrderedJson& spare : advice.at("beside"))
    out += row("  %13s  %-14s%s", bytes(spare, "peak"), text(spare, "verdict"), "") + text(spare, "label") + " (" +
           text(spare, "gains") + ")\n";
  return out;
}

}  // namespace oometer::cli
