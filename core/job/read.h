#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "config/reader.h"
#include "job/job.h"

/// The parts that a job is read from (`parse_job`), each its own object of the JSON. What is wrong is noted in the
/// reader's findings; what comes back then is not to be used.
namespace oometer {

/// The GPU of a job that names none.
inline constexpr const char* kDefaultGpu = "h100-80gb";
/// Of a key that the core has no code for, and that can be left out.
inline constexpr const char* kNotYet = "not supported yet: leave it out";

Runtime read_runtime(ConfigReader reader);
Calibration read_calibration(ConfigReader reader);
Gpu read_gpu(ConfigReader reader);
HostConfig read_host(ConfigReader reader);
CostConfig read_cost(ConfigReader reader);

/// The job's model, and the sequence length that its preset is used with (0: no preset or none).
/// `scores`: what is trained is a reward model of it.
std::pair<ModelChoice, std::int64_t> read_model(ConfigReader reader, Framework framework, bool scores = false);

/// One full micro-batch, or the largest; and what the run's micro-batches are made of, if the job says so.
/// `max_length`: of the loop, which cuts longer samples.
std::pair<DataConfig, SamplesConfig> read_data(ConfigReader reader, const ModelConfig& model, bool infers,
                                               std::int64_t usual_length, std::optional<std::int64_t> max_length);
/// What `data` says of a sample's images, all of one size.
void read_images(ConfigReader& data_reader, const ModelConfig& model, DataConfig& data);
/// How many images a sample has by `image_sizes`, which is there; of images_per_sample, where that is there, too.
std::int64_t count_image_sizes(ConfigReader& data);
/// What `image_sizes` says, of so many images.
void read_image_sizes(ConfigReader& data_reader, const ModelConfig& model, DataConfig& data);
void write_video(const Video& video, nlohmann::json& out);
/// Of images that differ.
void write_image_sizes(const DataConfig& data, const ModelTraits& traits, nlohmann::json& out);
/// `lengths`, `packed` and their kin.
SamplesConfig read_samples(ConfigReader& data, const ModelTraits& traits);
/// What samples make of the sizes of a full micro-batch. `length`: the job's own sequence_length, if it has one.
void take_sizes(ConfigReader& data, const SamplesConfig& samples, std::optional<std::int64_t> length,
                std::int64_t usual_length, DataConfig& full);
/// The keys of `data` that say the same.
nlohmann::json write_samples(const SamplesConfig& samples);

TrainingConfig read_training(ConfigReader reader, const ModelConfig& model, const DataConfig& data, const Gpu& gpu,
                             const Runtime& runtime);
/// The model's own where the job says none.
Precision read_precision(ConfigReader& training, const ModelTraits& traits, bool infers);
/// PyTorch's and transformers' refusals of a forced kernel (sdp_utils.cpp: check_sm_version, check_tensor_dtype).
void check_attention(ConfigReader& reader, AttentionKind attention, Precision precision, const Gpu& gpu,
                     const Runtime& runtime);

/// `data.routing`.
ExpertLoad read_routing(ConfigReader& data, const ModelTraits& traits);
void write_routing(const ExpertLoad& routing, nlohmann::json& data);
/// What a model with experts cannot run with yet.
void check_experts(ConfigReader& reader, const Job& job);
/// What installed packages of kernels (Runtime::kernels) cannot run yet, and what of them is not in the numbers.
void check_kernels(ConfigReader& reader, Job& job);
/// What LLaVATrainer cannot do, or cannot yet: of its arguments, and of a job that runs it.
void check_llava_trainer(ConfigReader& training, ConfigReader& args, const Runtime& runtime, const LoopConfig& loop);
void check_llava_job(ConfigReader& reader, const Job& job);
/// What LLaMA-Factory's trainers of preferences cannot do, or cannot yet.
void check_llamafactory(ConfigReader& reader, const Job& job);

InferenceConfig read_inference(ConfigReader reader, const Job& job);
/// transformers' BitsAndBytesConfig, by its own names, of the member `quantization`; none of LLM.int8, which is
/// answered as if the weights were not quantized.
std::optional<QuantizationConfig> read_quantization(ConfigReader& training, Task task, const ModelConfig& model,
                                                    const Runtime& runtime);
/// What a training section may say of a job that infers: in which type the weights are, whether in 4
/// bits, and how attention runs.
TrainingConfig read_training_of_inference(ConfigReader reader, const Job& job);

/// FullyShardedDataParallel's and fully_shard's arguments: each takes some that the other has not.
FsdpConfig read_fsdp(ConfigReader fsdp, const Job& job, const ParallelConfig& so_far);

/// The optimizer of a ds_config, which is in the place of the trainer's.
OptimizerConfig read_ds_optimizer(ConfigReader& ds, const Runtime& runtime);

struct Parallel {
  ParallelConfig config;
  std::string ds_config_json;
  std::optional<OptimizerConfig> optimizer;  ///< the ds_config's, which HF Trainer then takes
};

Parallel read_parallel(ConfigReader reader, const Job& job);

}  // namespace oometer
