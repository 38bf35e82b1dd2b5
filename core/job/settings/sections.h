#pragma once

#include "job/job.h"
#include "job/settings/setting.h"

/// The objects of a job: training.cpp, inference.cpp and parallel.cpp have theirs, job.cpp the others.
namespace oometer::settings {

extern const SectionOf<Job> job_section;
extern const SectionOf<ModelChoice> model_section;
extern const SectionOf<DataConfig> data_section;
extern const SectionOf<TrainingConfig> training_section;
extern const SectionOf<LoopConfig> loop_section, trainer_arguments_section;
extern const SectionOf<Precision> precision_section;
extern const SectionOf<OptimizerConfig> optimizer_section;
extern const SectionOf<OptimizerArgs> optimizer_arguments_section;
extern const SectionOf<CheckpointingConfig> checkpointing_section;
extern const SectionOf<LigerConfig> liger_section;
extern const SectionOf<LoraConfig> lora_section;
extern const SectionOf<Ia3Config> ia3_section;
extern const SectionOf<QuantizationConfig> quantization_section;
extern const SectionOf<InferenceConfig> inference_section;
extern const SectionOf<CacheConfig> cache_section;
extern const SectionOf<ParallelConfig> parallel_section;
extern const SectionOf<DdpConfig> ddp_section;
extern const SectionOf<FsdpConfig> fsdp_section;
extern const SectionOf<Gpu> gpu_section;
extern const SectionOf<HostConfig> host_section;
extern const SectionOf<Runtime> runtime_section;
extern const SectionOf<Kernels> kernels_section;
extern const SectionOf<Calibration> calibration_section;
extern const SectionOf<CostConfig> cost_section;

extern const SectionWords job_words, model_words, data_words, training_words, loop_words, trainer_arguments_words,
    precision_words, optimizer_words, optimizer_arguments_words, checkpointing_words, liger_words, lora_words,
    ia3_words, quantization_words, inference_words, cache_words, parallel_words, ddp_words, fsdp_words, gpu_words,
    host_words, runtime_words, kernels_words, calibration_words, cost_words;

}  // namespace oometer::settings
