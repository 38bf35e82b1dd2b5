#pragma once

#include <string>

#include "config/reader.h"
#include "job/job.h"

/// How a job's JSON spells enumerators: the one place, for reading and for writing.
namespace oometer {

inline constexpr Name<Task> kTasks[] = {{"train", Task::train}, {"inference", Task::inference}};
inline constexpr Name<CacheImplementation> kCaches[] = {
    {"dynamic", CacheImplementation::dynamic_},    {"static", CacheImplementation::static_},
    {"offloaded", CacheImplementation::offloaded}, {"headinfer", CacheImplementation::headinfer},
    {"mtla", CacheImplementation::mtla},           {"quantized", CacheImplementation::quantized},
    {"paged", CacheImplementation::paged}};
inline constexpr Name<CacheBackend> kCacheBackends[] = {
    {"quanto", CacheBackend::quanto}, {"hqq", CacheBackend::hqq}, {"fp8", CacheBackend::fp8}};
inline constexpr Name<Logits> kLogits[] = {{"last", Logits::last}, {"all", Logits::all}};
inline constexpr Name<Stage> kStages[] = {
    {"pretrain", Stage::pretrain}, {"finetune", Stage::finetune}, {"full", Stage::full}, {"custom", Stage::custom}};
inline constexpr Name<Precision> kPrecisions[] = {{"fp32", Precision::fp32},
                                                  {"bf16", Precision::bf16},
                                                  {"fp16", Precision::fp16},
                                                  {"amp-bf16", Precision::amp_bf16},
                                                  {"amp-fp16", Precision::amp_fp16}};
inline constexpr Name<OptimizerName> kOptimizers[] = {
    {"adamw", OptimizerName::adamw}, {"adam", OptimizerName::adam}, {"sgd", OptimizerName::sgd}};
inline constexpr Name<OptimizerImplementation> kImplementations[] = {
    {"foreach", OptimizerImplementation::foreach_},    {"fused", OptimizerImplementation::fused},
    {"for-loop", OptimizerImplementation::for_loop},   {"bnb-8bit", OptimizerImplementation::bnb_8bit},
    {"bnb-32bit", OptimizerImplementation::bnb_32bit}, {"deepspeed-fused", OptimizerImplementation::deepspeed_fused}};
inline constexpr Name<AttentionKind> kAttentions[] = {
    {"eager", AttentionKind::eager},           {"sdpa", AttentionKind::sdpa},
    {"sdpa-flash", AttentionKind::sdpa_flash}, {"sdpa-efficient", AttentionKind::sdpa_efficient},
    {"sdpa-math", AttentionKind::sdpa_math},   {"sdpa-cudnn", AttentionKind::sdpa_cudnn}};
inline constexpr Name<CheckpointMode> kCheckpointModes[] = {{"none", CheckpointMode::none},
                                                            {"non-reentrant", CheckpointMode::non_reentrant},
                                                            {"reentrant", CheckpointMode::reentrant}};
inline constexpr Name<SavesOn> kSavesOn[] = {
    {"none", SavesOn::device}, {"pageable", SavesOn::pageable}, {"pinned", SavesOn::pinned}};
inline constexpr Name<LoraBias> kLoraBiases[] = {
    {"none", LoraBias::none}, {"all", LoraBias::all}, {"lora_only", LoraBias::lora_only}};
inline constexpr Name<Strategy> kStrategies[] = {{"none", Strategy::none},
                                                 {"ddp", Strategy::ddp},
                                                 {"deepspeed", Strategy::deepspeed},
                                                 {"fsdp1", Strategy::fsdp1},
                                                 {"fsdp2", Strategy::fsdp2}};
inline constexpr Name<Framework> kFrameworks[] = {{"transformers", Framework::transformers},
                                                  {"llava", Framework::llava}};
inline constexpr Name<ExpertsImplementation> kExperts[] = {{"grouped_mm", ExpertsImplementation::grouped_mm},
                                                           {"batched_mm", ExpertsImplementation::batched_mm},
                                                           {"eager", ExpertsImplementation::eager}};

inline constexpr Name<DType> kFloats[] = {
    {"fp32", DType::float32}, {"bf16", DType::bfloat16}, {"fp16", DType::float16}};
/// The classes that transformers does not split, which accelerate wraps by default (`_no_split_modules`).
inline constexpr const char* kBlocks[] = {
    "LlamaDecoderLayer",   "MistralDecoderLayer", "Qwen2DecoderLayer",       "Qwen3DecoderLayer",
    "Qwen2VLDecoderLayer", "Qwen2VLVisionBlock",  "Qwen2_5_VLDecoderLayer",  "Qwen2_5_VLVisionBlock",
    "CLIPEncoderLayer",    "SiglipEncoderLayer",  "Idefics3VisionAttention", "SmolVLMVisionAttention"};
inline constexpr Name<FsdpConfig::Sharding> kShardings[] = {{"FULL_SHARD", FsdpConfig::Sharding::full_shard},
                                                            {"SHARD_GRAD_OP", FsdpConfig::Sharding::shard_grad_op},
                                                            {"NO_SHARD", FsdpConfig::Sharding::no_shard}};
inline constexpr Name<FsdpConfig::BackwardPrefetch> kPrefetches[] = {
    {"BACKWARD_PRE", FsdpConfig::BackwardPrefetch::pre},
    {"BACKWARD_POST", FsdpConfig::BackwardPrefetch::post},
    {"NO_PREFETCH", FsdpConfig::BackwardPrefetch::none}};  // accelerate's name for None

template <typename T, std::size_t N>
std::string name_of(T value, const Name<T> (&names)[N]) {
  for (const Name<T>& name : names) {
    if (name.value == value) return std::string(name.text);
  }
  return "";
}

}  // namespace oometer
