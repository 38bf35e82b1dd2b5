#include "job/settings/choices.h"
#include "job/settings/sections.h"

namespace oometer::settings {

namespace {

constexpr Range kTokens{1, 1 << 20};
constexpr Range kLengths{1, 1 << 24};

constexpr Condition kHasTurns{.setting = "/inference/turns", .is_not = "1"};
constexpr Condition kIsPaged{.setting = "/inference/cache/implementation", .is = "paged"};
constexpr Condition kIsQuantized{.setting = "/inference/cache/implementation", .is = "quantized"};
constexpr Condition kHasGroups{.setting = "/inference/cache/backend", .is_not = "fp8"};

constexpr Remedy kPrefillInChunks[] = {
    {"1024", Price::time, 1, "Prefill in chunks of 1,024 tokens", "slightly slower: the prompt runs piece by piece"},
};
constexpr Remedy kLastLogits[] = {
    {"\"last\"", Price::nothing, 1, "Logits of the last token", "no cost: generate() needs no others"},
};
constexpr Remedy kCache[] = {
    {"\"offloaded\"", Price::time, 5, "KV cache in host memory", "slower: keys and values are copied for each layer"},
    {"\"quantized\"", Price::numerics, 1, "KV cache in 4 bits",
     "precision and time: keys and values are quantized; needs optimum-quanto"},
};

constexpr Setting kInferenceRows[] = {
    {.key = "new_tokens",
     .takes = in<&InferenceConfig::new_tokens>(kTokens),
     .words = "max_new_tokens of generate(): tokens of each answer",
     .unit = "tokens",
     .option = "--new-tokens",
     .label = "New tokens",
     .link = "newtokens"},
    {.key = "turns",
     .takes = in<&InferenceConfig::turns>(Range{1, 100}),
     .words = "Prompts with their answers, one after another; the cache keeps what was said before",
     .option = "--turns",
     .label = "Turns",
     .link = "turns",
     .applies = {{.setting = "/inference/cache/implementation", .is_not = "mtla"}}},
    {.key = "turn_tokens",
     .takes = in<&InferenceConfig::turn_tokens>(kTokens),
     .words = "Tokens of each prompt after the first",
     .unit = "tokens",
     .option = "--turn-tokens",
     .label = "Tokens of later prompts",
     .link = "turntokens",
     .applies = {kHasTurns}},
    {.key = "turn_images",
     .takes = in<&InferenceConfig::turn_images>(Range{0, 1 << 20}),
     .words =
         "Images of each prompt after the first, per sample, of the size of the first prompt's; turn_tokens includes "
         "their tokens",
     .unit = "images",
     .option = "--turn-images",
     .label = "Images of later prompts",
     .link = "turnimages",
     .applies = {kHasTurns}},
    {.key = "prefill_chunk_size",
     .takes = in_or_zero<&InferenceConfig::prefill_chunk_size>(kLengths),
     .words = "prefill_chunk_size of generate(): tokens of a prompt that run at once; null: all",
     .unit = "tokens",
     .option = "--prefill-chunk-size",
     .label = "Prefill",
     .link = "chunk",
     .offers = "null 16384 4096 1024",
     .applies = {{.setting = "/inference/cache/implementation", .is_not = "static mtla paged"}},
     .remedies = kPrefillInChunks},
    {.key = "logits",
     .takes = one_of<kLogits, &InferenceConfig::logits>(),
     .words = "The tokens of a prompt whose logits are computed",
     .option = "--logits",
     .label = "Logits",
     .link = "logits",
     .remedies = kLastLogits},
    {.key = "cache", .takes = any(0) | cache_section, .words = "The KV cache: where keys and values are kept"},
};

constexpr Setting kCacheRows[] = {
    {.key = "implementation",
     .takes = one_of<kCaches, &CacheConfig::implementation>(),
     .words = "The kind of KV cache",
     .option = "--cache",
     .label = "KV cache",
     .link = "cache",
     .remedies = kCache},
    {.key = "max_cache_len",
     .takes = in_or_zero<&CacheConfig::max_cache_len>(kLengths),
     .words = "Tokens that a static cache has room for at least; null: as many as are needed",
     .unit = "tokens",
     .label = "Cache length",
     .link = "cacheroom",
     .applies = {{.setting = "/inference/cache/implementation", .is = "static"}}},
    {.key = "stride",
     .takes = in<&CacheConfig::stride>(Range{2, 1024}),
     .words = "down_rate of MTLA: tokens that share one entry of the cache",
     .unit = "tokens",
     .label = "Merged tokens",
     .link = "stride",
     .offers = "2 3 4 8",
     .applies = {{.setting = "/inference/cache/implementation", .is = "mtla"}}},
    {.key = "backend",
     .takes = one_of<kCacheBackends, &CacheConfig::backend>(),
     .words = "What quantizes the cache: backend of cache_config",
     .option = "--cache-backend",
     .label = "Quantized by",
     .link = "cachebackend",
     .applies = {kIsQuantized}},
    {.key = "nbits",
     .takes = in<&CacheConfig::nbits>(Range{1, 8}),
     .words = "Bits per element of a quantized cache; quanto: 2 or 4, HQQ: 1, 2, 3, 4 or 8",
     .unit = "bits",
     .option = "--cache-nbits",
     .label = "Bits of the cache",
     .link = "cachebits",
     .offers = "4 2",
     .applies = {kIsQuantized, kHasGroups}},
    {.key = "axis_key",
     .takes = in<&CacheConfig::axis_key>(Range{-1, 1}),
     .words = "The axis along which a quantized cache groups keys; quanto: 0 or -1, HQQ: 0 or 1",
     .option = "--cache-axis-key",
     .applies = {kIsQuantized, kHasGroups}},
    {.key = "axis_value",
     .takes = in<&CacheConfig::axis_value>(Range{-1, 1}),
     .words = "The axis along which a quantized cache groups values; as axis_key",
     .option = "--cache-axis-value",
     .applies = {kIsQuantized, kHasGroups}},
    {.key = "q_group_size",
     .takes = in<&CacheConfig::q_group_size>(positive),
     .words = "Elements of a quantized cache that share a scale",
     .unit = "elements",
     .option = "--cache-q-group-size",
     .label = "Group of the cache",
     .link = "cachegroup",
     .offers = "64 32 128",
     .applies = {kIsQuantized, kHasGroups}},
    {.key = "residual_length",
     .takes = in<&CacheConfig::residual_length>(non_negative),
     .words = "Recent tokens that a quantized cache keeps in full precision",
     .unit = "tokens",
     .option = "--cache-residual-length",
     .label = "Residual length",
     .link = "cacheresidual",
     .applies = {kIsQuantized, kHasGroups}},
    {.key = "block_size",
     .takes = in<&CacheConfig::block_size>(Range{1, 1 << 16}),
     .words = "Tokens of a block of vLLM's cache",
     .unit = "tokens",
     .label = "Tokens of a block",
     .link = "block",
     .applies = {kIsPaged}},
    {.key = "gpu_memory_utilization",
     .takes = in<&CacheConfig::gpu_memory_utilization>(0.01, 1),
     .words = "The share of the GPU that vLLM may use for weights, activations and cache together",
     .option = "--gpu-memory-utilization",
     .label = "vLLM's share of the GPU",
     .link = "pool",
     .offers = "0.9 0.95 0.8 0.7 0.5",
     .applies = {kIsPaged}},
    {.key = "max_num_batched_tokens",
     .takes = in_or_zero<&CacheConfig::max_num_batched_tokens>(kLengths),
     .words = "Tokens of one forward of vLLM; null: as its server chooses for the GPU",
     .unit = "tokens",
     .label = "Tokens of a forward",
     .link = "batched",
     .applies = {kIsPaged}},
    {.key = "shared_prefix",
     .takes = in<&CacheConfig::shared_prefix>(Range{0, 1 << 24}),
     .words = "Tokens that all prompts begin with, which vLLM keeps once (prefix caching, in whole blocks)",
     .unit = "tokens",
     .label = "Shared prefix",
     .link = "prefix",
     .applies = {kIsPaged}},
};

}  // namespace

constexpr SectionOf<InferenceConfig> inference_section{
    {"/inference", fields<InferenceConfig, kInferenceRows>, remedies<kInferenceRows>}};
constexpr SectionOf<CacheConfig> cache_section{
    {"/inference/cache", fields<CacheConfig, kCacheRows>, remedies<kCacheRows>}};

constexpr SectionWords inference_words{
    inference_section,
    "A conversation by transformers' generate(), greedy: data.sequence_length is the "
    "first prompt, images included, data.micro_batch_size the prompts that run at "
    "once; of training only precision and attention are read",
    kInferenceRows, defaults_of<InferenceConfig>};
constexpr SectionWords cache_words{cache_section, "The KV cache", kCacheRows, defaults_of<CacheConfig>};

}  // namespace oometer::settings
