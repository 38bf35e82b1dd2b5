#include "job/names.h"
#include "job/read.h"

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
  if (training.liger != LigerConfig()) refuse("liger", "Liger's kernels");
  if (training.ia3) refuse("ia3", "(IA)³");
  if (!training.peft.empty()) refuse("peft", "a method other than LoRA");
  if (job.parallel.strategy == Strategy::fsdp1 || job.parallel.strategy == Strategy::fsdp2) refuse("loop", "FSDP");
}

}  // namespace oometer
