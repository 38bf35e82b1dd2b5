#include "advice/file_advice.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "importers/question.h"

using nlohmann::json;
using namespace oometer;
using namespace oometer::importers;

namespace {

Question question_of(std::vector<SourceFile> files) { return {std::move(files), hub(), "", 0}; }

SourceFile llamafactory() {
  const json keys = {{"model_name_or_path", "Qwen/Qwen3-0.6B"},
                     {"stage", "sft"},
                     {"finetuning_type", "full"},
                     {"cutoff_len", 512},
                     {"per_device_train_batch_size", 4},
                     {"bf16", true},
                     {"disable_gradient_checkpointing", true}};
  std::string text;
  for (const auto& [key, value] : keys.items())
    text += key + ": " + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
  return {"train.yaml", keys, text};
}

const FileChange* said(const std::vector<FileChange>& changes, const std::string& words) {
  const auto found = std::find_if(changes.begin(), changes.end(),
                                  [&](const FileChange& change) { return change.words == std::vector{words}; });
  return found == changes.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("What the advisor would change is said in the file's own words", "[advice][importers]") {
  const std::vector<FileChange> changes = advise_files(question_of({llamafactory()}));
  const FileChange* const checkpoints = said(changes, "disable_gradient_checkpointing: false");
  REQUIRE(checkpoints != nullptr);
  CHECK(checkpoints->saves > 0);
  REQUIRE(checkpoints->patches.size() == 1);
  CHECK(checkpoints->patches[0].starts_with("--- train.yaml\n+++ train.yaml\n"));
  CHECK(checkpoints->patches[0].find("\n-disable_gradient_checkpointing: true\n") != std::string::npos);
  CHECK(checkpoints->patches[0].find("\n+disable_gradient_checkpointing: false\n") != std::string::npos);
  CHECK(said(changes, "pure_bf16: true") != nullptr);
  CHECK(said(changes, "finetuning_type: lora") != nullptr);
  CHECK(said(changes, "enable_liger_kernel: true") != nullptr);

  // The figure is that of the changed file.
  SourceFile changed = llamafactory();
  REQUIRE(apply(changed, checkpoints->edits[0]));
  const std::optional<FileComparison> comparison =
      compare_files(import_files(question_of({llamafactory()})), import_files(question_of({changed})));
  REQUIRE(comparison);
  CHECK(comparison->first_trial.total - comparison->second_trial.total == checkpoints->saves);
  CHECK(comparison->second_trial.total == checkpoints->trial.total);
  REQUIRE(comparison->differences.size() == 1);
  CHECK(comparison->differences[0].pointer == "/training/activation_checkpointing");
  CHECK(comparison->differences[0].first_key == "disable_gradient_checkpointing");
  CHECK(comparison->differences[0].alone == -checkpoints->saves);
  CHECK(comparison->differences[0].on_the_top == -checkpoints->saves);
  CHECK(comparison->together == 0);
}

TEST_CASE("A file that makes no job has no advice and no other side", "[advice][importers]") {
  CHECK(advise_files(question_of({{"a.yaml", {{"stage", "sft"}, {"model_name_or_path", "no/such"}}, ""}})).empty());
  CHECK_FALSE(compare_files(import_files(question_of({llamafactory()})), Ledger()));
}

TEST_CASE("Two files that each say what is trained are two trainings", "[advice][importers]") {
  const SourceFile axolotl{"axolotl.yaml",
                           {{"base_model", "Qwen/Qwen3-0.6B"},
                            {"sequence_len", 512},
                            {"micro_batch_size", 4},
                            {"bf16", true},
                            {"datasets", json::array()}},
                           ""};
  const SourceFile zero{"zero.json", {{"zero_optimization", {{"stage", 2}}}}, ""};
  const std::vector<Question> two = trainings_of(question_of({llamafactory(), zero, axolotl}));
  REQUIRE(two.size() == 2);
  CHECK(two[0].files.size() == 2);  // the file that is none by itself belongs to both
  CHECK(two[1].files[0].name == "axolotl.yaml");
  const SourceFile script{"run.sh", "llamafactory-cli train train.yaml\n", ""};
  CHECK(trainings_of(question_of({script, llamafactory()})).size() == 1);

  const std::optional<FileComparison> comparison =
      compare_files(import_files(question_of({llamafactory()})), import_files(question_of({axolotl})));
  REQUIRE(comparison);
  // Each by itself, and what only all of them make, is the whole difference.
  std::int64_t sum = comparison->together;
  for (const FileDifference& one : comparison->differences) sum += one.alone.value_or(0);
  CHECK(sum == comparison->second_trial.total - comparison->first_trial.total);
  CHECK(comparison->differences[0].pointer == "/training/precision");  // bf16 weights beside float32 ones
}
