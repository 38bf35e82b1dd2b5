#include <string>

#include "job/names.h"
#include "job/read.h"
#include "train/step.h"

namespace oometer {

void check_llava_trainer(ConfigReader& training, ConfigReader& args, const Runtime& runtime, const LoopConfig& loop) {
  constexpr const char* kKey = "loop";
  if (runtime.framework != Framework::llava)
    training.fail_found(kKey, "inconsistent",
                        "it trains the model of LLaVA's own code; expected \"framework\": \"llava\" in runtime");
  const auto refuse = [&](const char* key) {
    args.fail_found(key, "not-modelled", "it is not supported yet with LLaVATrainer: leave it out");
  };
  if (loop.project != LoopProject::none) training.fail_found(kKey, "inconsistent", "project is of other trainers");
  if (loop.label_smoothing_factor != 0) refuse("label_smoothing_factor");
  if (loop.neftune_noise_alpha) refuse("neftune_noise_alpha");
  if (loop.include_num_input_tokens_seen != TokensSeen::none) refuse("include_num_input_tokens_seen");
  if (loop.torch_empty_cache_steps != 0) refuse("torch_empty_cache_steps");
  if (loop.activation_offloading) refuse("activation_offloading");
  if (loop.eval_strategy != Every::no || loop.compute_metrics)
    training.fail_found(kKey, "inconsistent", "train.py gives it no data to evaluate: leave out eval_strategy");
}

void check_llava_job(ConfigReader& reader, const Job& job) {
  const TrainingConfig& training = job.training;
  ConfigReader at = reader.object("training");
  const std::int64_t groups = training.optimizer.param_groups;
  if (groups == 3 || (groups == 4 && training.loop.name != LoopName::llava))
    return at.object("optimizer")
        .fail_found("param_groups", "inconsistent", "expected 1 or 2; 4 are LLaVATrainer's with mm_projector_lr");
  const auto refuse = [&](const char* key, const std::string& found) {
    at.fail(key, "not-modelled", "found " + found + " under LLaVATrainer, which is not supported yet");
  };
  if (job.samples.evaluation) refuse("loop", "an evaluation");
  if (job.samples.are_given()) refuse("loop", "samples of different lengths");
  if (job.data.images_per_sample > 1)
    reader.object("data").fail_found("images_per_sample", "inconsistent",
                                     "LLaVA's data set (LazySupervisedDataset) takes one image a sample");
  if (weight_dtype(training.precision) != DType::bfloat16)
    refuse("precision", "other weights than bf16 (\"bf16\": true), beside which the tower is in fp16,");
  if (training.optimizer.name != OptimizerName::adamw || training.optimizer.is_bitsandbytes())
    refuse("optimizer", "another optimizer than adamw_torch");
  if (training.stage != Stage::finetune && training.stage != Stage::pretrain)
    refuse("stage", "another choice of what trains than \"finetune\" and \"pretrain\" (tune_mm_mlp_adapter)");
  const bool keeps_projector = training.stage == Stage::pretrain;
  if (job.parallel.strategy == Strategy::deepspeed && training.loop.save_strategy != Every::no &&
      (job.parallel.deepspeed.zero_stage < 3 || keeps_projector))
    refuse("loop", std::string("checkpoints (save_strategy) ") +
                       (keeps_projector ? "of the projector alone with DeepSpeed" : "with ZeRO-1 and 2"));
  if (training.liger != LigerConfig()) refuse("liger", "Liger's kernels");
  if (training.ia3) refuse("ia3", "(IA)³");
  if (!training.peft.empty()) refuse("peft", "a method other than LoRA");
  if (job.parallel.strategy == Strategy::fsdp1 || job.parallel.strategy == Strategy::fsdp2) refuse("loop", "FSDP");
}

}  // namespace oometer
