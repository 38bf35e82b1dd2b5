#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "job/names.h"
#include "job/read.h"
#include "job/settings/fields.h"
#include "train/step.h"

namespace oometer {

namespace {

/// Why a step cannot quantise so many tokens; empty: it can. `axis`: axis_key or axis_value.
/// quanto: group (optimum-quanto 0.2.7, tensor/grouped.py). HQQ: Quantizer.quantize and BitPack (hqq 0.2.8), which
/// joins as many rows as a byte holds.
std::string cannot_quantise(const Job& job, const CacheConfig& config, const TextShape& text, std::int64_t axis,
                            std::int64_t tokens) {
  const std::int64_t group = config.q_group_size, batch = job.data.micro_batch_size;
  const std::int64_t of_token = checked_product(text.num_key_value_heads, text.head_dim);
  if (config.backend == CacheBackend::quanto) {
    // As many as one index of the axis stands for: the first is the batch, the last the head's elements.
    const std::int64_t elements = checked_product(tokens, axis == 0 ? of_token : batch * text.num_key_value_heads);
    if (elements % group == 0) return {};
    return "expected a divisor of " + std::to_string(elements) + ", the elements of an axis of the " +
           std::to_string(tokens) + " tokens that quanto quantizes at once";
  }
  const std::int64_t elements = checked_product(checked_product(tokens, of_token), batch);
  if (elements % group != 0)
    return "expected a divisor of " + std::to_string(elements) + ", the elements of the " + std::to_string(tokens) +
           " tokens that HQQ quantizes at once";
  const std::int64_t rows = axis == 1 ? elements / group : group;
  if (config.nbits == 3 || rows % (8 / config.nbits) == 0) return {};
  return "HQQ packs " + std::to_string(8 / config.nbits) + " rows of integers into one, and " + std::to_string(tokens) +
         " tokens give " + std::to_string(rows) + " rows; expected another group size";
}

/// A cache's libraries refuse what their groups do not divide, at each step that quantises.
void check_groups(ConfigReader& cache, const Job& job, const InferenceConfig& inference, const TextShape& text) {
  const CacheConfig& config = inference.cache;
  const std::int64_t wait = std::max<std::int64_t>(config.residual_length, 1);
  std::int64_t total = 0, residual = -1;
  const auto divides = [&](std::int64_t tokens) {
    for (const std::int64_t axis : {config.axis_key, config.axis_value}) {
      const std::string reason = cannot_quantise(job, config, text, axis, tokens);
      if (reason.empty()) continue;
      cache.fail_found("q_group_size", "inconsistent", reason);
      return false;
    }
    return true;
  };
  const auto update = [&](std::int64_t tokens) {
    total += tokens;
    const bool quantises = residual < 0 || residual + tokens >= config.residual_length;
    residual = quantises ? 0 : residual + tokens;
    return !quantises || divides(total);
  };
  for (std::int64_t turn = 1; turn <= inference.turns; ++turn) {
    std::int64_t prompt = turn == 1 ? job.data.sequence_length : inference.turn_tokens + 1;
    const std::int64_t chunk = inference.prefill_chunk_size != 0 ? inference.prefill_chunk_size : prompt;
    for (; prompt > 0; prompt -= chunk)
      if (!update(std::min(prompt, chunk))) return;
    // Then one by one: each time `wait` have come. What divides comes back after as many as a packed group.
    const std::int64_t tokens = inference.new_tokens - 1, first = std::max<std::int64_t>(wait - residual, 1);
    for (std::int64_t i = 0; i < 8 * config.q_group_size && first + i * wait <= tokens; ++i)
      if (!divides(total + first + i * wait)) return;
    total += tokens;
    residual = tokens < first ? residual + tokens : (tokens - first) % wait;
  }
}

/// cache_config of cache_implementation="quantized".
void read_quantized(ConfigReader& cache, const Job& job, InferenceConfig& inference) {
  CacheConfig& config = inference.cache;
  const bool is_quantized = config.implementation == CacheImplementation::quantized;
  const CacheConfig defaults;
  const bool is_fp8 = is_quantized && config.backend == CacheBackend::fp8;
  const auto is_read = [&](const char* key, bool differs) {
    if (differs && !is_quantized)
      cache.fail_found(key, "inconsistent", "only a quantized cache reads it: leave it out");
    else if (is_fp8 && cache.has(key) && std::string_view(key) != "backend")
      cache.fail_found(key, "inconsistent", "the fp8 backend has one scale for all and does not take it: leave it out");
  };
  is_read("backend", config.backend != defaults.backend);
  is_read("nbits", config.nbits != defaults.nbits);
  is_read("axis_key", config.axis_key != 0);
  is_read("axis_value", config.axis_value != 0);
  is_read("q_group_size", config.q_group_size != defaults.q_group_size);
  is_read("residual_length", config.residual_length != defaults.residual_length);
  if (!is_quantized || !cache.ok()) return;
  const ModelTraits& traits = job.model.config.traits();
  if (const auto refusal = traits.refusal(Feature::quantized_cache))
    return cache.fail_found("implementation", refusal->code, refusal->why);
  if (is_fp8) return;
  // QuantoQuantizedLayer.__init__ and HQQQuantizedLayer.__init__
  const bool is_quanto = config.backend == CacheBackend::quanto;
  const std::int64_t last_axis = is_quanto ? -1 : 1, bits = config.nbits;
  if (is_quanto ? bits != 2 && bits != 4 : bits > 4 && bits < 8)
    cache.fail_found("nbits", "inconsistent",
                     is_quanto ? "expected 2 or 4 with the quanto backend" : "expected 1, 2, 3, 4 or 8 with HQQ");
  if (config.axis_key == -last_axis || config.axis_value == -last_axis)
    cache.fail_found(config.axis_key == -last_axis ? "axis_key" : "axis_value", "inconsistent",
                     "expected 0 or " + std::to_string(last_axis) + " with this backend");
  if (!is_quanto && bits == 3 && (config.axis_key == 1 || config.axis_value == 1))
    cache.fail_found("nbits", "inconsistent",
                     "HQQ dequantizes 3 bits along axis 1 for matrices only, and a cache is none; expected another "
                     "number, or axis 0");
  if (cache.ok()) check_groups(cache, job, inference, traits.text);
}

/// Images of a later prompt: like the first one's, and with room for their tokens.
void check_turn_images(ConfigReader& reader, const Job& job, const InferenceConfig& inference) {
  if (const auto refusal = job.model.config.traits().refusal(Feature::turn_images)) {
    reader.fail_found("turn_images", refusal->code, refusal->why);
  } else if (job.data.images() == 0) {
    reader.fail_found("turn_images", "inconsistent",
                      "their size is the first prompt's, which has none; expected data.images_per_sample above 0, or 0 "
                      "here");
  } else if (!job.data.sample_images.empty()) {
    reader.fail_found("turn_images", "not-modelled",
                      "with image_sizes that differ this is not supported yet; expected equal sizes, or 0 here");
  } else if (const std::int64_t tokens = checked_product(inference.turn_images, job.data.tokens_per_image);
             inference.turn_tokens < tokens) {
    reader.fail_found("turn_images", "inconsistent",
                      "expected turn_tokens of at least their " + std::to_string(tokens) + " tokens, or fewer images");
  }
}

}  // namespace

InferenceConfig read_inference(ConfigReader reader, const Job& job) {
  InferenceConfig inference;
  const ModelTraits& traits = job.model.config.traits();
  if (!traits.generates && reader.has("new_tokens"))  // a forward alone
    reader.fail_found("new_tokens", "inconsistent", traits.class_name + " does not generate: leave it out");
  if (const auto refusal = traits.refusal(Feature::generate_options))
    for (const char* key : {"turns", "turn_tokens", "turn_images", "prefill_chunk_size", "logits", "cache"})
      if (reader.has(key)) reader.fail_found(key, refusal->code, refusal->why);
  read_fields(reader, settings::inference_section, inference);
  if (inference.turn_images > 0) check_turn_images(reader, job, inference);
  if (inference.prefill_chunk_size != 0 && (job.data.images() > 0 || job.data.audios() > 0))
    reader.fail_found("prefill_chunk_size", "not-modelled",
                      "a prompt with images or audio is run at once: leave it out");
  ConfigReader cache = reader.object("cache");
  read_fields(cache, settings::cache_section, inference.cache);
  if (inference.cache.max_cache_len != 0 && inference.cache.implementation != CacheImplementation::static_)
    cache.fail_found("max_cache_len", "inconsistent", "only a static cache reads it: leave it out");
  read_quantized(cache, job, inference);
  CacheConfig& config = inference.cache;
  const bool is_paged = config.implementation == CacheImplementation::paged;
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
    cache.fail_found("shared_prefix", "inconsistent", "expected at most data.sequence_length, the prompt's tokens");
  if (const std::int64_t window = traits.text.sliding_window; window != 0) {
    if (is_paged && inference.cached_tokens(job.data.sequence_length) >= window)
      cache.fail("implementation", "not-modelled",
                 "found more tokens than the model's sliding_window (" + std::to_string(window) +
                     "), whose older blocks vLLM frees; expected a shorter answer, or another cache");
    if (window == 1)  // keys[:, :, -sliding_window + 1 :] is all of them
      reader.fail("cache", "inconsistent",
                  "found a model whose sliding_window is 1: transformers' cache then keeps what its mask leaves out, "
                  "and the model fails; expected a longer window in model.config");
  }
  if (is_paged && inference.logits == Logits::all)
    reader.fail_found("logits", "inconsistent", "vLLM computes the last token's only; expected \"last\"");
  if (config.implementation == CacheImplementation::static_ && inference.prefill_chunk_size != 0)
    reader.fail_found("prefill_chunk_size", "not-modelled", "a static cache's prompt is run at once: leave it out");
  if (is_paged && inference.prefill_chunk_size != 0)
    reader.fail_found("prefill_chunk_size", "inconsistent",
                      "vLLM's is max_num_batched_tokens of the cache: leave it out");
  const bool is_mtla = config.implementation == CacheImplementation::mtla;
  for (const auto& [implementation, feature] : {std::pair(CacheImplementation::headinfer, Feature::headinfer),
                                                std::pair(CacheImplementation::mtla, Feature::mtla)})
    if (const auto refusal = traits.refusal(feature); refusal && config.implementation == implementation)
      cache.fail_found("implementation", refusal->code, refusal->why);
  if (config.stride != defaults.stride && !is_mtla)
    cache.fail_found("stride", "inconsistent", "only MTLA's cache reads it: leave it out");
  if (is_mtla && inference.turns > 1)
    reader.fail_found("turns", "inconsistent", "MTLA's cache takes one prompt, then single tokens; expected 1");
  if (is_mtla && inference.prefill_chunk_size != 0)
    reader.fail_found("prefill_chunk_size", "inconsistent", "MTLA's cache takes one prompt at once: leave it out");
  cache.finish();
  reader.finish();
  return inference;
}

TrainingConfig read_training_of_inference(ConfigReader reader, const Job& job) {
  TrainingConfig training;
  const ModelConfig& model = job.model.config;
  training.precision = read_precision(reader, model.traits(), true);
  if (autocast_dtype(training.precision))
    reader.fail_found("precision", "not-modelled", "expected fp32, bf16 or fp16, as weights are loaded");
  // vLLM has kernels of its own, whatever transformers' class has.
  const bool has_own_kernels = job.inference.cache.implementation == CacheImplementation::paged;
  if (!has_own_kernels && !model.traits().can(Feature::sdpa)) training.attention = AttentionKind::eager;
  training.attention = reader.choice("attention", training.attention, kAttentions);
  if (const auto refusal = model.traits().refusal(Feature::sdpa);
      refusal && !has_own_kernels && training.attention != AttentionKind::eager)
    reader.fail_found("attention", refusal->code, refusal->why);
  check_attention(reader, training.attention, training.precision, job.gpu, job.runtime);
  if (const auto refusal = model.traits().refusal(Feature::eager_attention);
      refusal && training.attention == AttentionKind::eager)
    reader.fail_found("attention", refusal->code, refusal->why);
  if (is_flash_attention(training.attention))
    reader.fail_found("attention", "not-modelled", "it is supported in training only: expected sdpa-flash");
  if (has_own_kernels && training.attention == AttentionKind::eager)
    reader.fail_found("attention", "inconsistent", "vLLM's attention is a kernel: \"sdpa\" stands for it here");
  if (job.inference.cache.implementation == CacheImplementation::headinfer) {
    if (training.attention != AttentionKind::sdpa && training.attention != AttentionKind::sdpa_flash)
      reader.fail_found("attention", "inconsistent",
                        "HeadInfer runs flash attention; expected \"sdpa\" or \"sdpa-flash\"");
    check_attention(reader, AttentionKind::sdpa_flash, training.precision, job.gpu, job.runtime);
  }
  constexpr std::string_view kRead[] = {"precision", "attention", "quantization"};
  for (const Field& field : settings::training_section.fields)
    if (std::find(std::begin(kRead), std::end(kRead), field.key) == std::end(kRead) && reader.has(field.key))
      reader.fail_found(field.key, "inconsistent",
                        "inference reads precision, attention and quantization only: leave it out");
  if (reader.has("quantization")) {
    training.quantization = read_quantization(reader, Task::inference, model, job.runtime);
    const CacheImplementation cache = job.inference.cache.implementation;
    if (cache == CacheImplementation::paged || cache == CacheImplementation::headinfer ||
        cache == CacheImplementation::mtla)
      reader.fail_found("quantization", "not-modelled",
                        "it is supported with transformers' own caches only yet; expected another inference.cache");
  }
  reader.finish();
  return training;
}

}  // namespace oometer
