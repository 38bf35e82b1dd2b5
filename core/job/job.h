#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/unmodelled.h"
#include "cuda/outside.h"
#include "distributed/config.h"
#include "generation/config.h"
#include "models/data.h"
#include "models/family.h"
#include "runtime/behaviours.h"
#include "train/config.h"
#include "train/samples.h"

/// A job (version 1): what a person asks oometer about, fully resolved and validated.
namespace oometer {

enum class Task : std::uint8_t { train, inference };

/// What a policy is compared with: as the trainer decides, a second model, the policy without its adapters, or numbers
/// that were computed before.
enum class Reference : std::uint8_t { of_trainer, copy, shared, precomputed };

struct ModelChoice {
  std::string preset;       ///< id of presets/models, or ""
  std::string name;         ///< for people: the job's `model.name`, else the preset's title, else the class
  std::string given_name;   ///< `model.name` as the job gave it
  std::string config_json;  ///< the job's own `model.config` (overrides where there is a preset), canonical; "" if none
  ModelConfig config;
  Reference reference = Reference::of_trainer;  ///< of a preference loop
  std::optional<DType> reference_dtype;         ///< of its weights, where it is a model of its own; none: the policy's

  bool operator==(const ModelChoice&) const = default;
};

/// The node that a part of the job runs on.
struct HostConfig {
  std::optional<std::int64_t> memory;        ///< bytes; none: no verdict about them
  std::int64_t gpus = 8;                     ///< at most so many processes are on one
  std::int64_t data_workers = 0;             ///< of each process
  DType checkpoint_dtype = DType::bfloat16;  ///< of the weights' safetensors files

  bool operator==(const HostConfig&) const = default;
};

/// What a person pays for a GPU, and how far the training goes.
struct CostConfig {
  std::optional<double> watts;           ///< of one GPU, as the job draws them
  std::optional<double> price_per_hour;  ///< of one GPU, in any currency
  std::optional<std::int64_t> tokens;    ///< of the whole training, by which time and price are told

  bool operator==(const CostConfig&) const = default;
};

struct Job {
  ModelChoice model;
  Task task = Task::train;
  DataConfig data;          ///< one micro-batch; where they differ, the largest
  SamplesConfig samples;    ///< what micro-batches are made of, where the job says it
  TrainingConfig training;  ///< of inference: precision and attention only
  InferenceConfig inference;
  ParallelConfig parallel;
  Gpu gpu;
  HostConfig host;
  Runtime runtime;
  Calibration calibration;
  CostConfig cost;
  std::string ds_config_json;  ///< `parallel.ds_config` as the job gave it, canonical; "" if none

  std::vector<std::string> assumptions;  ///< defaults that the answer rests on and the job did not say
  std::vector<Unmodelled> unmodelled;    ///< what the input asks for and the answer leaves out, each with its pointer

  bool operator==(const Job&) const = default;
};

}  // namespace oometer
