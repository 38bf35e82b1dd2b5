#include "job/names.h"
#include "job/read.h"

namespace oometer {

void check_llamafactory(ConfigReader& reader, const Job& job) {
  const TrainingConfig& training = job.training;
  const ModelTraits& traits = job.model.config.traits();
  ConfigReader at = reader.object("training");
  const auto refuse = [&](const char* key, const std::string& found) {
    at.fail(key, "not-modelled",
            "found " + found + " under " + name_of(training.loop.name, kLoops) + ", which is not supported yet");
  };
  if (traits.classifies) at.fail("loop", "inconsistent", traits.class_name + " has no head that predicts tokens");
  if (traits.takes_images || traits.max_audios > 0) refuse("loop", "a model that sees or hears");
  if (traits.has_experts) refuse("loop", "a mixture of experts");
  if (training.loop.eval_strategy != Every::no || job.samples.evaluation) refuse("loop", "an evaluation");
  if (job.parallel.strategy != Strategy::none) refuse("loop", "several GPUs");
  if (training.liger != LigerConfig()) refuse("liger", "Liger's kernels");
  if (training.ia3) refuse("ia3", "(IA)³");
  if (!training.peft.empty()) refuse("peft", "a method other than LoRA");
  if (training.quantization) refuse("quantization", "quantized weights");
  // check_reference has let go what says the same as the trainer's own way.
  if (training.loop.precompute_ref_log_probs || job.model.reference == Reference::copy)
    reader.object("model").fail_found(
        "reference", "inconsistent",
        "its trainers compare a policy with adapters with itself, and another with a copy: leave it out");
}

}  // namespace oometer
