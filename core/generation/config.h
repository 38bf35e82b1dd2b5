#pragma once

#include <cstdint>

namespace oometer {

/// generate()'s cache_implementation (transformers 5.23).
enum class CacheImplementation : std::uint8_t {
  dynamic_,   ///< DynamicCache: grows by torch.cat
  static_,    ///< StaticCache: there in full from the first token on
  offloaded,  ///< DynamicCache(offloading=True): in host memory, but for the layer that runs and the next one
  headinfer,  ///< HeadInfer's OffloadedCache: in host memory, but for the key head that runs and its neighbours
  mtla,       ///< MTLA's TemporalLatentCache: one latent for `stride` tokens
  quantized,  ///< QuantizedCache
  paged,      ///< vLLM's pool of blocks
};

/// cache_config's backend: who quantises.
enum class CacheBackend : std::uint8_t { quanto, hqq, fp8 };

struct CacheConfig {
  CacheImplementation implementation = CacheImplementation::dynamic_;
  std::int64_t max_cache_len = 0;  ///< of a static cache, at least; 0: what the tokens need
  std::int64_t stride = 2;         ///< of MTLA's, tokens: its down_rate
  // Of a quantized cache, by QuantizedCache's names
  CacheBackend backend = CacheBackend::quanto;
  std::int64_t nbits = 4;
  std::int64_t axis_key = 0, axis_value = 0;
  std::int64_t q_group_size = 64;      ///< elements that share a scale
  std::int64_t residual_length = 128;  ///< tokens that may wait in full precision
  // vLLM's, by its names
  std::int64_t block_size = 16;             ///< tokens
  double gpu_memory_utilization = 0.9;      ///< of the GPU, for all that vLLM does
  std::int64_t max_num_batched_tokens = 0;  ///< in one forward; 0: as many as vLLM's server takes for the GPU
  std::int64_t shared_prefix = 0;           ///< tokens with which every prompt begins: kept once (prefix caching)

  bool operator==(const CacheConfig&) const = default;
};

/// Whose logits a forward computes: generate() keeps the last token's (logits_to_keep=1).
enum class Logits : std::uint8_t { last, all };

/// A conversation by greedy generate(): `turns` answers of `new_tokens` each. The first prompt is the job's sequence;
/// each later one brings `turn_tokens`, and finds what was said before in the cache.
struct InferenceConfig {
  std::int64_t new_tokens = 256;
  std::int64_t turns = 1;
  std::int64_t turn_tokens = 128;
  std::int64_t turn_images = 0;         ///< that each later prompt brings, a sample; their tokens are among its own
  std::int64_t prefill_chunk_size = 0;  ///< tokens of a prompt that are run at once; 0: all
  Logits logits = Logits::last;
  CacheConfig cache;

  /// Tokens in the cache when the last one was generated, which itself is not.
  std::int64_t cached_tokens(std::int64_t prompt) const {
    return prompt + turns * new_tokens + (turns - 1) * turn_tokens - 1;
  }

  bool operator==(const InferenceConfig&) const = default;
};

/// What a generation was, beside its log.
struct Generated {
  bool skipped = false;          ///< not every token was decoded in full
  std::int64_t host_bytes = 0;   ///< of an offloaded cache
  std::int64_t blocks = 0;       ///< of a paged cache: those that its conversations need
  std::int64_t block_bytes = 0;  ///< in all layers
};

}  // namespace oometer
