#include "cases.h"
#include "distributed/strategy.h"
#include "models/model.h"
#include "trace/same_log.h"
#include "train/objectives/preference.h"

/// A policy that trains and a frozen reference of it in one run, as tools/two_models.py records it.
namespace oometer {
namespace {

Log run_two_models(const Job& job, const Behaviours& behaviours, bool repeats = true) {
  Context context(behaviours, {job.gpu.major, job.gpu.minor, static_cast<int>(job.gpu.sm_count)});
  context.repeats = repeats;
  context.begin_phase(PhaseName::init, 0);
  {
    const ModelOptions options{weight_dtype(job.training.precision), job.training.attention, job.training.checkpointing,
                               job.training.liger};
    const std::unique_ptr<Model> policy = build_model(context, job.model.config, job.data, options);
    const std::size_t root = context.log.modules.size();
    const std::unique_ptr<Model> reference = build_model(context, job.model.config, job.data, options);
    context.log.modules[root].name = "reference";
    for (const Parameter& parameter : reference->parameters) parameter.tensor->leaf_requires_grad = false;
    const PreferenceLoss objective(*reference);
    const std::unique_ptr<TrainingStrategy> strategy =
        make_strategy(context, *policy, job.training, job.parallel, job.gpu.usable_bytes);
    run_training(context, *policy, *strategy, objective, job.training, job.data);
    REQUIRE_FALSE(policy->refusal);
    REQUIRE_FALSE(reference->refusal);
  }
  REQUIRE_FALSE(context.repetition_failed);
  return std::move(context.log);
}

TEST_CASE("Every phase of a run of two models is real PyTorch's to the byte", "[reference]") {
  const std::vector<ReferenceCase> cases = read_cases("two_models.jsonl", Groups::as_the_job_says);
  REQUIRE(cases.size() == 3);
  for (const ReferenceCase& c : cases) {
    INFO(c.name);
    const Behaviours behaviours = resolve_behaviours(c.job.runtime);
    const Log log = run_two_models(c.job, behaviours);
    CHECK(difference(log, run_two_models(c.job, behaviours, false)) == "");
    const Replay blocks = replay(log, allocator_options(behaviours, c.job.runtime));
    const std::vector<std::int64_t> requested = requested_peaks(log);
    for (std::size_t i = 0; i < log.phases.size(); ++i) {
      const PhaseMark& phase = log.phases[i];
      if (phase.iteration == 0) continue;
      CAPTURE(phase.iteration, phase_name(phase.name));
      const nlohmann::json& truth =
          c.truth["iterations"][static_cast<unsigned>(phase.iteration - 1)]["phases"][phase_name(phase.name)];
      const MemoryStats peak = phase_peak(log, blocks, phase.iteration, phase.name);
      CHECK(requested[i] == truth["requested"]);
      CHECK(peak.allocated == truth["allocated"]);
      CHECK(peak.reserved == truth["reserved"]);
    }
  }
}

TEST_CASE("A second model has a root and paths of its own", "[reference]") {
  const ReferenceCase c = read_cases("two_models.jsonl", Groups::as_the_job_says).front();
  const Log log = run_two_models(c.job, resolve_behaviours(c.job.runtime));
  ModuleId root = 1;
  while (!log.is_root(root)) ++root;
  CHECK(module_path(log, root) == "reference");
  CHECK(module_path(log, root + 1) == "reference.model");
  CHECK(module_path(log, 1) == "model");
  std::int64_t of_reference = 0, of_policy = 0;
  for (const StorageRecord& storage : log.storages)
    if (storage.role == Role::parameter) (storage.module < root ? of_policy : of_reference) += storage.bytes;
  CHECK(of_reference == of_policy);
}

}  // namespace
}  // namespace oometer
