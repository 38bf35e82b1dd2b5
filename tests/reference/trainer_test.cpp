#include "cases.h"

/// Loops that people run: HF Trainer, TRL's trainers, a loop by hand, as tools/trainer.py records them.
namespace oometer {
namespace {

/// The peaks of each optimizer step, from its begin to its end.
std::vector<MemoryStats> step_peaks(const Log& log, const Replay& replay) {
  std::vector<MemoryStats> steps;
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    const PhaseMark& phase = log.phases[i];
    if (phase.name != PhaseName::forward && phase.name != PhaseName::backward && phase.name != PhaseName::optimizer)
      continue;
    if (std::ssize(steps) < phase.iteration) steps.emplace_back();
    steps.back() = highest(steps.back(), replay.phases[i]);
  }
  return steps;
}

std::vector<MemoryStats> peaks_named(const Log& log, const Replay& replay, PhaseName name) {
  std::vector<MemoryStats> peaks;
  for (std::size_t i = 0; i < log.phases.size(); ++i)
    if (log.phases[i].name == name) peaks.push_back(replay.phases[i]);
  return peaks;
}

/// Of a loop that runs fewer steps than were recorded the last one stands for the others.
void check_truth(const std::vector<MemoryStats>& peaks, const nlohmann::json& truth) {
  REQUIRE_FALSE(peaks.empty());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    CAPTURE(i);
    const MemoryStats& peak = peaks[std::min(i, peaks.size() - 1)];
    CHECK(peak.allocated == truth[i]["allocated"]);
    CHECK(peak.reserved == truth[i]["reserved"]);
  }
}

void check_cases(const char* file, std::size_t count) {
  const std::vector<ReferenceCase> cases = read_cases(std::filesystem::path("trainer") / file, Groups::as_the_job_says);
  CHECK(cases.size() == count);
  for (const ReferenceCase& c : cases) {
    INFO(c.name);
    const Run r = run(c.job);
    REQUIRE_FALSE(r.simulation.refusal);
    const Log& log = r.simulation.log;
    check_truth(step_peaks(log, r.replay), c.truth["steps"]);
    if (c.truth.contains("evals")) check_truth(peaks_named(log, r.replay, PhaseName::evaluation), c.truth["evals"]);
    if (c.truth.contains("saves")) check_truth(peaks_named(log, r.replay, PhaseName::saving), c.truth["saves"]);
  }
}

TEST_CASE("Loops by hand are real PyTorch's to the byte: weights and autocast apart, use_cache",
          "[reference][trainer]") {
  check_cases("step.jsonl", 54);
}

TEST_CASE("Steps, evaluations and checkpoints of HF Trainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("hf_trainer.jsonl", 203);
}

TEST_CASE("Steps of LLaMA-Factory's trainers of preferences are the real ones' to the byte", "[reference][trainer]") {
  check_cases("llamafactory.jsonl", 27);
}

TEST_CASE("Steps and checkpoints of LLaVA's own trainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("llava.jsonl", 38);
}

TEST_CASE("Trainers' steps and evaluations under DDP are the real ones' to the byte", "[reference][trainer]") {
  check_cases("ddp.jsonl", 44);
}

TEST_CASE("Trainers' steps under DeepSpeed's ZeRO are the real ones' to the byte", "[reference][trainer]") {
  check_cases("deepspeed.jsonl", 122);
}

TEST_CASE("Trainers' steps and evaluations under FSDP1 and FSDP2 are the real ones' to the byte",
          "[reference][trainer]") {
  check_cases("fsdp.jsonl", 186);
}

TEST_CASE("Trainers' steps with 4-bit weights under FSDP1 and FSDP2 are the real ones' to the byte",
          "[reference][trainer]") {
  check_cases("fsdp_qlora.jsonl", 44);
}

TEST_CASE("Trainers' steps with 4-bit weights are the real ones' to the byte", "[reference][trainer]") {
  check_cases("qlora.jsonl", 17);
}

TEST_CASE("Trainers' steps of models with images or audio are the real ones' to the byte, padded and not",
          "[reference][trainer]") {
  check_cases("vision.jsonl", 498);
}

TEST_CASE("HF Trainer's steps of models that read images or videos alone are the real ones' to the byte",
          "[reference][trainer]") {
  check_cases("images_alone.jsonl", 18);
}

TEST_CASE("Steps and evaluations of TRL's SFTTrainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("sft.jsonl", 164);
}

TEST_CASE("Steps with noise on the embeddings are the real ones' to the byte", "[reference][trainer]") {
  check_cases("neftune.jsonl", 17);
}

TEST_CASE("Steps with activation_offloading are the real ones' to the byte", "[reference][trainer]") {
  check_cases("activation_offloading.jsonl", 51);
}

TEST_CASE("Axolotl's adapters, its offloading and its DPO are the real ones' to the byte", "[reference][trainer]") {
  check_cases("axolotl.jsonl", 38);
}

TEST_CASE("Steps of NeMo Automodel's recipe are the real ones' to the byte", "[reference][trainer]") {
  check_cases("automodel.jsonl", 34);
}

TEST_CASE("Steps and evaluations of older TRL's SFTTrainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("sft_older.jsonl", 23);
}

TEST_CASE("Steps and evaluations of TRL's DPOTrainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("dpo.jsonl", 61);
}

TEST_CASE("Steps and evaluations of TRL's RewardTrainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("reward.jsonl", 18);
}

TEST_CASE("Steps and evaluations of TRL's KTOTrainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("kto.jsonl", 12);
}

TEST_CASE("Steps and evaluations of TRL's ORPOTrainer are the real one's to the byte", "[reference][trainer]") {
  check_cases("orpo.jsonl", 8);
}

TEST_CASE("Steps of heads that classify or find answers are the real ones' to the byte", "[reference][trainer]") {
  check_cases("classification.jsonl", 51);
}

TEST_CASE("Steps of adapters of all of peft's methods are real PyTorch's to the byte", "[reference][trainer][peft]") {
  check_cases("adapters.jsonl", 176);
}

TEST_CASE("Optimizers of every kind are the real ones' to the byte, in a trainer and in a loop by hand",
          "[reference][trainer][optimizers]") {
  check_cases("optimizers.jsonl", 127);
}

TEST_CASE("A trainer's job is the same when it was written and read again", "[reference][trainer]") {
  for (const char* file : {"step.jsonl", "hf_trainer.jsonl", "ddp.jsonl", "deepspeed.jsonl", "sft.jsonl", "dpo.jsonl",
                           "kto.jsonl", "orpo.jsonl", "reward.jsonl", "classification.jsonl", "fsdp.jsonl",
                           "qlora.jsonl", "adapters.jsonl", "optimizers.jsonl", "sft_older.jsonl", "vision.jsonl",
                           "neftune.jsonl", "activation_offloading.jsonl", "axolotl.jsonl"})
    for (const ReferenceCase& c : read_cases(std::filesystem::path("trainer") / file, Groups::as_the_job_says)) {
      INFO(c.name);
      const Result<Job> again = parse_job(to_json(c.job));
      REQUIRE(again);
      CHECK(to_json(*again) == to_json(c.job));
      CHECK(again->training == c.job.training);
      CHECK(again->data == c.job.data);
      CHECK(again->samples == c.job.samples);
    }
}

}  // namespace
}  // namespace oometer
