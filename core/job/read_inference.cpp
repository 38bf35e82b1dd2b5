#include <string>

#include "job/names.h"
#include "job/read.h"
#include "models/registry.h"
#include "train/step.h"

namespace oometer {

namespace {

constexpr Range kNewTokens{1, 1 << 20};
constexpr Range kTurns{1, 100};

/// mp_headinfer (headinfer/mp.py) knows Llama's and Qwen2's classes; Mistral's attention is Llama's, LLaVA holds one.
void check_headinfer(ConfigReader& cache, const Job& job) {
  const LlamaConfig* const language = language_of(job.model.config);
  if (!language) {
    cache.fail_found("implementation", "inconsistent",
                     "HeadInfer is for attention of Llama's kind, which " + std::string(class_name(job.model.config)) +
                         " has not: another cache belongs here");
  } else if (language->qkv_bias && language->names == &kLlamaClassNames) {
    cache.fail_found("implementation", "inconsistent",
                     "HeadInfer cuts a Llama's weights by heads and leaves its biases whole: it cannot run a model "
                     "with attention_bias");
  }
}

}  // namespace

InferenceConfig read_inference(ConfigReader reader, const Job& job) {
  InferenceConfig inference;
  const auto refuse = [&](const char* key, const char* why) {
    if (reader.has(key))
      reader.fail_found(key, "inconsistent", class_name(job.model.config) + std::string(why) + ": leave it out");
  };
  const bool generates = model_traits(job.model.config).generates;  // else a forward alone
  if (!generates) refuse("new_tokens", " does not generate");
  if (!generates || std::holds_alternative<NanoVlmConfig>(job.model.config))
    for (const char* key : {"turns", "turn_tokens", "prefill_chunk_size", "logits", "cache"})
      refuse(key, generates ? "'s own generate() has no choice of it" : " does not generate");
  inference.new_tokens = reader.integer("new_tokens", inference.new_tokens, kNewTokens);
  inference.turns = reader.integer("turns", 1, kTurns);
  inference.turn_tokens = reader.integer("turn_tokens", inference.turn_tokens, kNewTokens);
  inference.prefill_chunk_size = reader.optional_integer("prefill_chunk_size", kLength).value_or(0);
  if (inference.prefill_chunk_size != 0 && job.data.images() > 0)
    reader.fail_found("prefill_chunk_size", "not-modelled", "a prompt with images is run at once: leave it out");
  inference.logits = reader.choice("logits", inference.logits, kLogits);
  ConfigReader cache = reader.object("cache");
  inference.cache.implementation = cache.choice("implementation", inference.cache.implementation, kCaches);
  inference.cache.max_cache_len = cache.optional_integer("max_cache_len", kLength).value_or(0);
  if (inference.cache.max_cache_len != 0 && inference.cache.implementation != CacheImplementation::static_)
    cache.fail_found("max_cache_len", "inconsistent", "only a static cache reads it: leave it out");
  if (inference.turns > 1 && inference.cache.implementation == CacheImplementation::static_)
    reader.fail_found("turns", "not-modelled", "several turns are modelled with a dynamic cache: 1 belongs here");
  CacheConfig& config = inference.cache;
  const bool is_paged = config.implementation == CacheImplementation::paged;
  config.block_size = cache.integer("block_size", config.block_size, {1, 1 << 16});
  config.gpu_memory_utilization = cache.number("gpu_memory_utilization", config.gpu_memory_utilization, 0.01, 1.0);
  config.max_num_batched_tokens = cache.optional_integer("max_num_batched_tokens", kLength).value_or(0);
  config.shared_prefix = cache.integer("shared_prefix", 0, {0, kLength.max});
  const CacheConfig defaults;
  const auto is_vllms = [&](const char* key, bool differs) {
    if (differs && !is_paged)
      cache.fail_found(key, "inconsistent", "only a paged cache, vLLM's, reads it: leave it out");
  };
  is_vllms("block_size", config.block_size != defaults.block_size);
  is_vllms("gpu_memory_utilization", config.gpu_memory_utilization != defaults.gpu_memory_utilization);
  is_vllms("max_num_batched_tokens", config.max_num_batched_tokens != 0);
  is_vllms("shared_prefix", config.shared_prefix != 0);
  if (config.shared_prefix > job.data.sequence_length)
    cache.fail_found("shared_prefix", "inconsistent", "at most the prompt's tokens, data.sequence_length, belong here");
  if (is_paged && inference.logits == Logits::all)
    reader.fail_found("logits", "inconsistent", "vLLM computes the last token's: \"last\" belongs here");
  if (config.implementation == CacheImplementation::static_ && inference.prefill_chunk_size != 0)
    reader.fail_found("prefill_chunk_size", "not-modelled", "a static cache's prompt is run at once: leave it out");
  if (is_paged && inference.prefill_chunk_size != 0)
    reader.fail_found("prefill_chunk_size", "inconsistent",
                      "vLLM's is max_num_batched_tokens of the cache: leave it out");
  if (config.implementation == CacheImplementation::headinfer) check_headinfer(cache, job);
  const bool is_mtla = config.implementation == CacheImplementation::mtla;
  config.stride = cache.integer("stride", config.stride, {2, 1024});
  if (config.stride != defaults.stride && !is_mtla)
    cache.fail_found("stride", "inconsistent", "only MTLA's cache reads it: leave it out");
  if (is_mtla && !std::holds_alternative<DeepseekConfig>(job.model.config))
    cache.fail_found("implementation", "inconsistent",
                     "MTLA merges the latents of latent attention, which " + std::string(class_name(job.model.config)) +
                         " has not: another cache belongs here");
  if (is_mtla && inference.turns > 1)
    reader.fail_found("turns", "inconsistent", "MTLA's cache takes one prompt, then single tokens: 1 belongs here");
  if (is_mtla && inference.prefill_chunk_size != 0)
    reader.fail_found("prefill_chunk_size", "inconsistent", "MTLA's cache takes one prompt at once: leave it out");
  cache.finish();
  reader.finish();
  return inference;
}

TrainingConfig read_training_of_inference(ConfigReader reader, const Job& job) {
  TrainingConfig training;
  const bool is_nanovlm = std::holds_alternative<NanoVlmConfig>(job.model.config);
  if (is_nanovlm) training.precision = Precision::fp32;
  training.precision = reader.choice("precision", training.precision, kPrecisions);
  if (is_nanovlm && training.precision != Precision::fp32)
    reader.fail_found("precision", "inconsistent",
                      "fp32 belongs here: nanoVLM's rotary embeddings stay in float32, and attention takes one type");
  if (uses_autocast(training.precision))
    reader.fail_found("precision", "not-modelled", "weights are loaded as fp32, bf16 or fp16, which belong here");
  training.attention = reader.choice("attention", training.attention, kAttentions);
  check_attention(reader, training.attention, training.precision, job.gpu, job.runtime);
  if (is_nanovlm && training.attention == AttentionKind::eager)
    reader.fail_found("attention", "not-modelled", "nanoVLM's own code does not have it: leave it out");
  if (job.inference.cache.implementation == CacheImplementation::paged && training.attention == AttentionKind::eager)
    reader.fail_found("attention", "inconsistent", "vLLM's attention is a kernel: \"sdpa\" stands for it here");
  if (job.inference.cache.implementation == CacheImplementation::headinfer) {
    if (training.attention != AttentionKind::sdpa && training.attention != AttentionKind::sdpa_flash)
      reader.fail_found("attention", "inconsistent",
                        "HeadInfer runs flash attention: \"sdpa\" or \"sdpa-flash\" belongs here");
    check_attention(reader, AttentionKind::sdpa_flash, training.precision, job.gpu, job.runtime);
  }
  for (const char* key : {"stage", "freeze", "train_only", "no_grad", "optimizer", "activation_checkpointing",
                          "max_grad_norm", "gradient_accumulation_steps", "keep_outputs", "loss", "lora", "ia3",
                          "liger", "chunked_cross_entropy", "save_on_cpu", "quantization"})
    if (reader.has(key))
      reader.fail_found(key, "inconsistent", "inference reads precision and attention only: leave it out");
  reader.finish();
  return training;
}

}  // namespace oometer
