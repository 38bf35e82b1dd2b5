#pragma once

#include "job/settings/setting.h"

/// The objects of a job: training.cpp, inference.cpp and parallel.cpp have theirs, job.cpp the others.
namespace oometer::settings {

extern const Section job_section, model_section, data_section, training_section, optimizer_section,
    checkpointing_section, liger_section, lora_section, ia3_section, quantization_section, inference_section,
    cache_section, parallel_section, ddp_section, fsdp_section, gpu_section, runtime_section, calibration_section;

extern const SectionWords job_words, model_words, data_words, training_words, optimizer_words, checkpointing_words,
    liger_words, lora_words, ia3_words, quantization_words, inference_words, cache_words, parallel_words, ddp_words,
    fsdp_words, gpu_words, runtime_words, calibration_words;

}  // namespace oometer::settings
