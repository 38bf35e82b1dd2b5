#include "job/settings/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "job/catalogue.h"
#include "job/settings/fields.h"

namespace oometer {

using Json = nlohmann::ordered_json;

namespace {

using settings::job_words;

constexpr const SectionWords* kSections[] = {
    &settings::job_words,           &settings::model_words,        &settings::data_words,
    &settings::training_words,      &settings::loop_words,         &settings::trainer_arguments_words,
    &settings::precision_words,     &settings::optimizer_words,    &settings::optimizer_arguments_words,
    &settings::checkpointing_words, &settings::liger_words,        &settings::lora_words,
    &settings::ia3_words,           &settings::quantization_words, &settings::inference_words,
    &settings::cache_words,         &settings::parallel_words,     &settings::ddp_words,
    &settings::fsdp_words,          &settings::gpu_words,          &settings::host_words,
    &settings::runtime_words,       &settings::kernels_words,      &settings::calibration_words,
    &settings::cost_words};

const SectionWords* words_of(const Section* section) {
  for (const SectionWords* words : kSections)
    if (&words->section == section) return words;
  return nullptr;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// A number as whole as it is.
Json plain(double number) {
  const auto whole = static_cast<std::int64_t>(number);
  return static_cast<double>(whole) == number ? Json(whole) : Json(number);
}

Json value_json(const nlohmann::json& value) {
  return value.is_number_float() ? plain(value.get<double>()) : Json::parse(value.dump());
}

/// One row with where it stands.
struct Place {
  const SectionWords& section;
  const Setting& row;
  const Field& field;

  bool takes(unsigned types) const { return (field.types & types) != 0; }
  std::string pointer() const { return std::string(section.section.pointer) + "/" + row.key; }

  /// A word of the table is a text where the setting takes texts, else what it says as JSON.
  Json value(const std::string& word) const {
    if (word == "null" || !takes(kText)) return Json::parse(word, nullptr, false);
    return word;
  }
  Json values(const char* words) const {
    Json out = Json::array();
    for (const std::string& word : split(words)) out.push_back(value(word));
    return out;
  }
};

template <typename Use>
void for_each_row(const SectionWords& section, const Use& use) {
  for (std::size_t i = 0; i < section.rows.size(); ++i) use(Place{section, section.rows[i], section.section.fields[i]});
}

/// What absence means, put under "default"; nothing where the row does not know.
void put_default(Json& out, const Place& place) {
  if (*place.row.otherwise != '\0')
    out["default"] = Json::parse(place.row.otherwise);
  else if (place.field.holder != Holder::none && place.section.defaults && place.row.key != std::string_view("wrap"))
    out["default"] = value_json(field_value(place.field, place.section.defaults()));
}

Json type_names(const Place& place) {
  Json out = Json::array();
  for (const auto& [type, name] : {std::pair{kBoolean, "boolean"},
                                   {kInteger, "integer"},
                                   {kNumber, "number"},
                                   {kText, "string"},
                                   {kList, "array"},
                                   {kObject, "object"},
                                   {kNull, "null"}})
    if (place.takes(type) && !(type == kInteger && place.takes(kList))) out.push_back(name);
  return out;
}

bool has_range(const Field& field) { return field.min != 0 || field.max != 0; }

/// The least and the greatest value that a setting takes.
std::pair<Json, Json> least_and_greatest(const Field& field) {
  if (field.holder != Holder::version) return {plain(field.min), plain(field.max)};
  Version last = settings::version_of(field.max);
  last.patch = 0;
  return {to_string(settings::version_of(field.min)), to_string(last)};
}

void put_range(Json& out, const Field& field) {
  if (!has_range(field)) return;
  const auto [least, greatest] = least_and_greatest(field);
  out["minimum"] = least;
  out["maximum"] = greatest;
}

// --- The schema ------------------------------------------------------------------------------------------------------

Json object_schema(const SectionWords& section);

std::vector<std::string> choices_of(const Place& place) {
  std::vector<std::string> out;
  for (const Name<std::uint8_t>& name : place.field.choices) out.emplace_back(name.text);
  if (place.pointer() == "/gpu/name")
    for (const Gpu& gpu : gpu_catalogue()) out.push_back(gpu.id);
  return out;
}

/// What a setting takes; an object apart, if it is only one of several types.
Json value_schema(const Place& place) {
  if (*place.row.schema != '\0') return Json::parse(place.row.schema);
  const Field& field = place.field;
  Json out;
  if (const std::vector<std::string> choices = choices_of(place); !choices.empty()) {
    if (place.takes(kNull)) out["enum"].push_back(nullptr);
    for (const std::string& choice : choices) out["enum"].push_back(choice);
    return out;
  }
  Json types = type_names(place);
  if (field.object && types.size() > 1 && !(types.size() == 2 && place.takes(kNull)))
    types.erase(std::find(types.begin(), types.end(), "object"));
  out["type"] = types.size() == 1 ? types[0] : types;
  if (field.holder == Holder::version) {
    out["pattern"] = "^v?\\d+\\.\\d+(\\.\\d+)?";
  } else if (!place.takes(kList)) {
    put_range(out, field);
  } else if (place.takes(kInteger)) {
    out["items"]["type"] = "integer";
    put_range(out["items"], field);
  } else {
    out["items"] = {{"type", "string"}, {"minLength", 1}};
  }
  if (field.length != 0) out["minItems"] = out["maxItems"] = field.length;
  return out;
}

Json row_schema(const Place& place) {
  Json out = {{"description", place.row.words}};
  const bool is_version = place.pointer() == "/version";
  Json value = is_version ? Json{{"const", 1}} : Json();
  const SectionWords* object = words_of(place.field.object);
  if (place.field.types == kObject && object) {
    out["description"] = object->words;
    value = object_schema(*object);
  } else if (object && (place.field.types & ~unsigned{kNull}) == kObject) {
    value = object_schema(*object);
    value["type"] = {"object", "null"};
  } else if (!is_version) {
    value = value_schema(place);
    if (object) {
      Json described = {{"description", object->words}};
      described.update(object_schema(*object));
      value = {{"anyOf", {value, described}}};
    }
  }
  put_default(out, place);
  out.update(value);
  return out;
}

Json object_schema(const SectionWords& section) {
  Json out = {{"type", "object"}, {"properties", Json::object()}};
  for_each_row(section, [&](const Place& place) { out["properties"][place.row.key] = row_schema(place); });
  out["additionalProperties"] = false;
  return out;
}

// --- The table as data -----------------------------------------------------------------------------------------------

/// Calls `use` with each row of an object around a pointer, the outermost first.
template <typename Use>
void for_each_around(const std::string& pointer, const Use& use) {
  for (const SectionWords* section : kSections)
    for_each_row(*section, [&](const Place& place) {
      if (pointer.starts_with(place.pointer() + "/")) use(place);
    });
}

Json condition_json(const Condition& condition) {
  Json out = {{"setting", condition.setting}};
  for (const SectionWords* section : kSections)
    for_each_row(*section, [&](const Place& place) {
      if (place.pointer() != condition.setting) return;
      const bool is = *condition.is != '\0';
      out[is ? "is" : "not"] = place.values(is ? condition.is : condition.is_not);
    });
  return out;
}

Json applies_json(const Place& of) {
  Json out = Json::array();
  const auto put = [&](const Place& place) {
    for (const Condition& condition : place.row.applies)
      if (*condition.setting != '\0') out.push_back(condition_json(condition));
  };
  for_each_around(of.pointer(), [&](const Place& place) {
    put(place);
    // An object that is absent by default turns something on.
    if (place.row.otherwise == std::string_view("null"))
      out.push_back({{"setting", place.pointer()}, {"not", {nullptr}}});
  });
  put(of);
  return out;
}

Json row_json(const Place& place) {
  const Setting& row = place.row;
  Json out = {{"pointer", place.pointer()}, {"types", type_names(place)}};
  put_default(out, place);
  put_range(out, place.field);
  if (place.field.length != 0) out["length"] = place.field.length;
  const auto put_text = [&](const char* key, const char* text) {
    if (*text != '\0') out[key] = text;
  };
  put_text("unit", row.unit);
  out["words"] = row.words;
  for (const ChoiceWords& choice : row.takes.choices) {
    Json& entry = out["choices"].emplace_back(Json{{"value", choice.text}});
    if (*choice.label != '\0') entry["label"] = choice.label;
    if (*choice.words != '\0') entry["words"] = choice.words;
  }
  if (*row.offers != '\0') out["offers"] = place.values(row.offers);
  if (Json applies = applies_json(place); !applies.empty()) out["applies"] = std::move(applies);
  put_text("option", row.option);
  put_text("label", row.label);
  put_text("link", row.link);
  if (*row.link_values != '\0') out["link_values"] = split(row.link_values);
  return out;
}

}  // namespace

std::span<const SectionWords* const> section_words() { return kSections; }

std::string settings_help(const Setting& row, const Field& field) {
  std::string takes;
  for (const Name<std::uint8_t>& choice : field.choices)
    takes += (takes.empty() ? "" : ", ") + std::string(choice.text);
  if (field.holder == Holder::version)
    takes = least_and_greatest(field).first.get<std::string>() + " to " +
            least_and_greatest(field).second.get<std::string>();
  return row.words + (takes.empty() ? "" : " (" + takes + ")");
}

std::string job_schema() {
  Json out = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"$id", "https://oometer.org/job.schema.json"},
              {"title", "Job"},
              {"description", std::string(job_words.words) + ". Version 1."}};
  out.update(object_schema(job_words));
  out["required"] = {"model"};
  Json& model = out["properties"]["model"];
  for (const char* key : {"graph", "preset", "config"}) model["anyOf"].push_back({{"required", {key}}});
  return out.dump(2) + "\n";
}

std::string settings_json() {
  // A line each, so that a change of one reads as one.
  std::string sections, rows;
  const auto add = [](std::string& lines, const Json& line) {
    lines += (lines.empty() ? "    " : ",\n    ") + line.dump();
  };
  for (const SectionWords* section : kSections) {
    add(sections, {{"pointer", section->section.pointer}, {"words", section->words}});
    for_each_row(*section, [&](const Place& place) { add(rows, row_json(place)); });
  }
  return "{\n  \"sections\": [\n" + sections + "\n  ],\n  \"settings\": [\n" + rows + "\n  ]\n}\n";
}

std::string settings_markdown() {
  std::string out =
      "# Settings of a job\n\n"
      "<!-- Written by `oometer settings --as markdown` from core/job/settings. -->\n\n"
      "A job is one JSON object; whatever it does not say has its default. Most settings are also options of the "
      "command. "
      "The page, the command, [the JSON schema](../presets/job.schema.json) and this list are made from one table.\n";
  const auto code = [](const std::string& text) { return "`" + text + "`"; };
  for (const SectionWords* section : kSections) {
    const std::string pointer = section->section.pointer;
    out += "\n## " + (pointer.empty() ? "The job" : code(pointer.substr(1))) + "\n\n" + section->words + ".\n\n" +
           "| key | takes | default | | option |\n| --- | --- | --- | --- | --- |\n";
    for_each_row(*section, [&](const Place& place) {
      std::string takes;
      const auto add = [&](const std::string& text) { takes += (takes.empty() ? "" : ", ") + text; };
      for (const Name<std::uint8_t>& choice : place.field.choices) add(code(std::string(choice.text)));
      for (const Json& type : type_names(place))
        if (type != "null" && !(type == "string" && !takes.empty())) add(type.get<std::string>());
      if (has_range(place.field))
        takes += ", " + plain(place.field.min).dump() + " to " + plain(place.field.max).dump();
      if (*place.row.unit != '\0') takes += std::string(" (") + place.row.unit + ")";
      Json given;
      put_default(given, place);
      out += "| " + code(place.row.key) + " | " + takes + " | " +
             (given.contains("default") ? code(given["default"].dump()) : "") + " | " + place.row.words + " | " +
             (*place.row.option == '\0' ? "" : code(place.row.option)) + " |\n";
    });
  }
  return out;
}

}  // namespace oometer
