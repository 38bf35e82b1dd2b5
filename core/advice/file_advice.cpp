#include "advice/file_advice.h"

#include <algorithm>
#include <utility>

#include "advice/trial.h"
#include "config/patch.h"
#include "config/reader.h"
#include "job/estimate.h"

namespace oometer {

using importers::Edit;
using importers::Ledger;
using importers::Question;
using importers::SourceFile;
using nlohmann::json;

namespace {

constexpr const char* kExpandable = "/runtime/expandable_segments";

/// What stands at a place of a job; null: nothing.
json at(const json& job, const std::string& pointer) {
  const json::json_pointer place(pointer);
  return job.contains(place) ? job[place] : json();
}

/// Where two jobs differ: the outermost places that only one of them has, or whose values are no two objects.
void find_differences(const json& a, const json& b, const json::json_pointer& place, std::vector<std::string>& found) {
  if (a == b) return;
  if (!a.is_object() || !b.is_object()) return found.push_back(place.to_string());
  for (const auto& [key, value] : a.items())
    find_differences(value, b.contains(key) ? b[key] : json(), place / key, found);
  for (const auto& [key, value] : b.items())
    if (!a.contains(key)) find_differences(json(), value, place / key, found);
}

std::vector<std::string> differences(const json& a, const json& b) {
  std::vector<std::string> found;
  find_differences(a, b, json::json_pointer(), found);
  return found;
}

bool is_usable(const Ledger& ledger) { return !ledger.refused && ledger.job.contains("model"); }

using Files = std::vector<SourceFile>;

SourceFile* file_of(Files& files, const std::string& name) {
  for (SourceFile& file : files)
    if (file.name == name) return &file;
  return nullptr;
}

/// The files while they are changed towards an advised job.
class FileSearch {
 public:
  FileSearch(const Question& question, const json& given)
      : original_(question.files), question_(question), ledger_(import_files(question)) {
    for (SourceFile& file : original_)
      if (file.content.is_string()) file.text = file.content.get<std::string>();
    if (!given.is_null()) overlay_ = patch_between(ledger_.job, given);
    for (const importers::Taken& taken : ledger_.taken)
      if (!taken.is_default && main_.empty()) main_ = taken.file;
  }

  const Ledger& ledger() const { return ledger_; }
  json job() const { return with_overlay(ledger_); }

  /// The files with a merge patch of the job in their words; none where they have none for a part of it.
  std::optional<FileChange> say(const json& patch) {
    const json now = job();
    const json wanted = patched(now, patch);
    Files changed = original_;
    FileChange result;
    json reached = now;
    bool is_expandable = false;
    for (const std::string& pointer : differences(now, wanted)) {
      const json value = at(wanted, pointer);
      if (at(now, pointer).is_null() && (value == "none" || value == json::object())) continue;
      if (pointer == kExpandable || (pointer == "/runtime" && value == json{{"expandable_segments", true}})) {
        is_expandable = true;
        continue;
      }
      if (at(reached, pointer) == value || (at(reached, pointer) != at(now, pointer) && value.is_object())) continue;
      if (!take_step(changed, result.edits, reached, pointer, value, at(now, pointer))) return std::nullopt;
    }
    if (result.edits.empty()) return std::nullopt;
    if (is_expandable) {
      reached["runtime"]["expandable_segments"] = true;
      result.words.emplace_back("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment");
    }
    const std::optional<Trial> trial = try_job(reached);
    if (!trial) return std::nullopt;
    result.trial = *trial;
    if (differences(reached, wanted).empty()) result.label = "as advised";
    for (const Edit& edit : result.edits)
      result.words.insert(result.words.end() - (is_expandable ? 1 : 0), words_of(*file_of(changed, edit.file), edit));
    for (std::size_t i = 0; i < changed.size(); ++i) {
      const SourceFile &before = original_[i], &after = changed[i];
      if (before.text.empty()) continue;
      if (std::string diff = importers::patch_of(before.name, before.text, after.text); !diff.empty())
        result.patches.push_back(std::move(diff));
    }
    return result;
  }

 private:
  json with_overlay(const Ledger& ledger) const { return patched(ledger.job, overlay_); }

  /// One more edit, that brings a place of the job to a value or, where the trainer has no words for just that one,
  /// to another one than before.
  bool take_step(Files& changed, std::vector<Edit>& edits, json& reached, const std::string& pointer, const json& value,
                 const json& before) {
    std::vector<Edit> candidates;
    const auto add = [&](const std::string& file, const std::string& key, json said) {
      candidates.push_back({file.empty() ? main_ : file, key, std::move(said)});
    };
    for (const importers::Word& word : importers::words_for(ledger_.trainer, pointer, value))
      add("", word.key, *parse_json(word.said));
    const bool is_switch = value.is_boolean() || pointer == "/training/activation_checkpointing";
    for (const importers::Taken& taken : ledger_.taken) {
      const bool is_near = (pointer + "/").starts_with(taken.pointer + "/") || taken.pointer.starts_with(pointer + "/");
      if (!is_near || taken.key.empty()) continue;
      if (!value.is_object()) add(taken.file, taken.key, value);
      for (const bool flag : {true, false})
        if (is_switch) add(taken.file, taken.key, flag);
    }
    std::optional<std::pair<Files, Edit>> best;
    json best_job;
    for (const Edit& edit : candidates) {
      Files trial = changed;
      SourceFile* const file = file_of(trial, edit.file);
      if (file == nullptr || !apply(*file, edit)) continue;
      question_.files = trial;
      const Ledger ledger = import_files(question_);
      if (!is_usable(ledger) || ledger.missing.size() > ledger_.missing.size()) continue;
      json job = with_overlay(ledger);
      const json there = at(job, pointer);
      if (there == before && there != value) continue;
      const bool is_exact = there == value;
      if (best && !is_exact) continue;
      best.emplace(std::move(trial), edit);
      best_job = std::move(job);
      if (is_exact) break;
    }
    if (!best) return false;
    changed = std::move(best->first);
    edits.push_back(std::move(best->second));
    reached = std::move(best_job);
    return true;
  }

  Files original_;
  Question question_;  ///< of the files that are tried: its catalogue is long to copy
  Ledger ledger_;
  json overlay_ = json::object();  ///< what the asked job has beyond the files'
  std::string main_;               ///< the file that says most
};

json edit_json(const Edit& edit) { return {{"file", edit.file}, {"key", edit.key}, {"value", edit.value}}; }

}  // namespace

std::vector<FileChange> advise_files(const Question& question, const json& given, const Advice* known) {
  FileSearch search(question, given);
  if (!is_usable(search.ledger())) return {};
  const json job = search.job();
  const std::optional<Trial> before = try_job(job);
  const Result<Advice> advice = known ? Result<Advice>(*known) : advise(text_of(job));
  if (!before || !advice) return {};
  std::vector<FileChange> told;
  const auto tell = [&](const std::string& patch, const std::string& label, const std::string& costs) {
    std::optional<FileChange> change = search.say(*parse_json(patch));
    if (!change) return;
    change->saves = before->total - change->trial.total;
    const bool is_known =
        std::any_of(told.begin(), told.end(), [&](const FileChange& other) { return other.words == change->words; });
    if (change->saves <= 0 || is_known) return;
    change->label = change->label.empty() ? "" : label;
    change->costs = costs;
    told.push_back(*std::move(change));
  };
  for (const TriedChange& change : advice->changes) tell(change.change, change.label, change.costs);
  for (const Combination& combination : advice->combinations) {
    std::string label, costs;
    for (const Combination::Part& part : combination.parts) {
      label += (label.empty() ? "" : ", ") + part.label;
      costs += (costs.empty() ? "" : "; ") + part.costs;
    }
    tell(combination.change, label, costs);
  }
  std::stable_sort(told.begin(), told.end(),
                   [](const FileChange& a, const FileChange& b) { return a.saves > b.saves; });
  return told;
}

json to_json(const std::vector<FileChange>& changes) {
  json out = json::array();
  for (const FileChange& change : changes) {
    json edits = json::array();
    for (const Edit& edit : change.edits) edits.push_back(edit_json(edit));
    out.push_back({{"label", change.label},
                   {"costs", change.costs},
                   {"edits", edits},
                   {"words", change.words},
                   {"patches", change.patches},
                   {"peak", change.trial.total},
                   {"verdict", verdict_name(change.trial.verdict)},
                   {"saves", change.saves}});
  }
  return out;
}

std::optional<FileComparison> compare_files(const Ledger& first, const Ledger& second) {
  FileComparison comparison{first, second, {}, {}, {}, 0};
  if (!is_usable(first) || !is_usable(second)) return std::nullopt;
  const std::optional<Trial> a = try_job(first.job), b = try_job(second.job);
  if (!a || !b) return std::nullopt;
  comparison.first_trial = *a;
  comparison.second_trial = *b;
  const auto key_of = [](const Ledger& ledger, const std::string& pointer) {
    for (const importers::Taken& taken : ledger.taken)
      if ((pointer + "/").starts_with(taken.pointer + "/") || taken.pointer.starts_with(pointer + "/"))
        return taken.key;
    return std::string();
  };
  // A place of one job with what the other has there, and nothing where that has nothing.
  const auto with = [](json job, const std::string& pointer, const json& value) {
    const json::json_pointer place(pointer);
    if (!value.is_null()) {
      job[place] = value;
    } else if (job.contains(place)) {
      job[place.parent_pointer()].erase(place.back());
    }
    return job;
  };
  comparison.together = b->total - a->total;
  for (const std::string& pointer : differences(first.job, second.job)) {
    FileDifference one{pointer,
                       at(first.job, pointer),
                       at(second.job, pointer),
                       key_of(first, pointer),
                       key_of(second, pointer),
                       std::nullopt,
                       std::nullopt};
    if (const std::optional<Trial> trial = try_job(with(first.job, pointer, one.second)))
      one.alone = trial->total - a->total;
    if (const std::optional<Trial> trial = try_job(with(second.job, pointer, one.first)))
      one.on_the_top = b->total - trial->total;
    comparison.together -= one.alone.value_or(0);
    comparison.differences.push_back(std::move(one));
  }
  const auto weight = [](const FileDifference& one) {
    const auto size = [](std::int64_t bytes) { return bytes < 0 ? -bytes : bytes; };
    return std::max(size(one.alone.value_or(0)), size(one.on_the_top.value_or(0)));
  };
  std::stable_sort(comparison.differences.begin(), comparison.differences.end(),
                   [&](const FileDifference& x, const FileDifference& y) { return weight(x) > weight(y); });
  return comparison;
}

json to_json(const FileComparison& comparison) {
  const auto side = [](const Ledger& ledger, const Trial& trial) {
    return json{{"trainer", ledger.trainer}, {"peak", trial.total}, {"verdict", verdict_name(trial.verdict)}};
  };
  const auto bytes = [](const std::optional<std::int64_t>& size) { return size ? json(*size) : json(); };
  json out = {{"first", side(comparison.first, comparison.first_trial)},
              {"second", side(comparison.second, comparison.second_trial)},
              {"differences", json::array()},
              {"together", comparison.together}};
  for (const FileDifference& one : comparison.differences)
    out["differences"].push_back({{"pointer", one.pointer},
                                  {"first", one.first},
                                  {"second", one.second},
                                  {"first_key", one.first_key},
                                  {"second_key", one.second_key},
                                  {"alone", bytes(one.alone)},
                                  {"on_the_top", bytes(one.on_the_top)}});
  return out;
}

std::string compared_json(const Ledger& first, const Ledger& second, const std::optional<FileComparison>& comparison) {
  const auto parsed = [](const Ledger& ledger) { return *parse_json(importers::to_json(ledger)); };
  return text_of(
      {{"comparison", comparison ? to_json(*comparison) : json()}, {"imports", {parsed(first), parsed(second)}}});
}

std::string advise_files_json(std::string_view text) {
  const Result<Question> question = importers::read_question(text);
  return question ? text_of({{"changes", to_json(advise_files(*question))}}) : error_json(question.error());
}

std::string compare_files_json(std::string_view text) {
  const Result<Question> question = importers::read_question(text);
  if (!question) return error_json(question.error());
  const std::vector<Question> trainings = importers::trainings_of(*question);
  if (trainings.size() != 2) return text_of({{"comparison", nullptr}, {"imports", json::array()}});
  const Ledger first = import_files(trainings[0]), second = import_files(trainings[1]);
  return compared_json(first, second, compare_files(first, second));
}

}  // namespace oometer
