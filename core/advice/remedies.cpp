#include "advice/remedies.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "advice/parallel_changes.h"
#include "advice/trial.h"
#include "config/reader.h"
#include "job/parse.h"
#include "job/settings/setting.h"

namespace oometer {

using nlohmann::json;

namespace {

/// The object at a pointer; what stands in its way is replaced. A mode that stands for the whole object stays in it.
json& object_at(json& job, const std::string& pointer) {
  json* object = &job;
  for (std::size_t begin = 1; begin < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
    object = &(*object)[pointer.substr(begin, end - begin)];
    if (object->is_string())
      *object = {{"mode", *object}};
    else if (!object->is_object())
      *object = json::object();
    begin = end + 1;
  }
  return *object;
}

/// Lays a value over a setting; null takes it away.
std::function<void(json&)> set(const Section& section, const char* key, json value) {
  return [pointer = std::string(section.pointer), key = std::string(key), value = std::move(value)](json& job) {
    if (pointer.starts_with("/parallel")) spell_out_parallel(job);
    json patch = json::object();
    patch[key] = value;
    object_at(job, pointer).merge_patch(patch);
  };
}

std::optional<Job> job_with(const json& document, const Change& change) {
  json changed = document;
  change.make(changed);
  Result<Job> job = parse_job(text_of(changed));
  if (!job) return std::nullopt;
  return *std::move(job);
}

/// Calls `use` with each setting's remedies as changes, and the one among them that the job has; none: their number.
template <typename Use>
void for_each_setting(const Job& job, const json& document, const Use& use) {
  for (const Section* section : sections_with_remedies())
    for (const Remedies& setting : section->remedies) {
      std::vector<Change> changes;
      std::size_t has = setting.values.size();
      for (const Remedy& remedy : setting.values) {
        changes.push_back({remedy.label, remedy.costs, remedy.price, remedy.weight,
                           set(*section, setting.key, *parse_json(remedy.value))});
        if (const std::optional<Job> changed = job_with(document, changes.back()); changed && *changed == job)
          has = changes.size() - 1;
      }
      use(*section, setting, changes, has);
    }
}

}  // namespace

std::vector<Alternatives> remedies_of_settings(const Job& job, const json& document) {
  std::vector<Alternatives> choices;
  for_each_setting(
      job, document, [&](const Section&, const Remedies& setting, std::vector<Change>& changes, std::size_t has) {
        Alternatives& choice = choices.emplace_back();
        choice.is_ordered =
            std::all_of(setting.values.begin(), setting.values.end(), [](const Remedy& r) { return r.is_ordered; });
        for (std::size_t i = has < changes.size() ? has + 1 : 0; i < changes.size(); ++i)
          if (job_with(document, changes[i])) choice.changes.push_back(std::move(changes[i]));
        if (choice.changes.empty()) choices.pop_back();
      });
  return choices;
}

std::vector<Change> dispensable_remedies(const Job& job, const json& document) {
  std::vector<Change> dispensable;
  for_each_setting(job, document,
                   [&](const Section& section, const Remedies& setting, std::vector<Change>& changes, std::size_t has) {
                     if (has == changes.size() || changes[has].price == Price::nothing) return;
                     Change without = changes[has];
                     without.make = set(section, setting.key, nullptr);
                     std::optional<Job> changed = job_with(document, without);
                     if (!changed) return;
                     changed->training.stage = job.training.stage;  // by what it trains: a text model has no tower
                     if (!(*changed == job)) dispensable.push_back(std::move(without));
                   });
  return dispensable;
}

}  // namespace oometer
