#pragma once

#include <cstdint>
#include <memory>

#include "models/deepseek/config.h"
#include "models/model.h"

/// transformers 5.23, models/hy_v4/modeling_hy_v4.py.
namespace oometer {

inline constexpr DeepseekClassNames kHyV4{{"HYV4ForCausalLM", "HYV4Model", "HYV4DecoderLayer", "HYV4Attention",
                                           "HYV4MLP", "HYV4RMSNorm", "HYV4RotaryEmbedding"},
                                          "HYV4MoE",
                                          "HYV4Experts",
                                          "HYV4TopkRouter",
                                          {.is_v3 = true,
                                           .has_layer_types = true,
                                           .biases_float32 = true,
                                           .indexer = IndexerRotary::halves,
                                           .shares_topk = true},
                                          "HYV4Indexer"};

/// DeepSeek-V3.2's, and how many states of a token layers hand on.
struct HyV4Config : DeepseekConfig {
  std::int64_t hc_mult = 4;

  bool operator==(const HyV4Config&) const = default;
};

std::unique_ptr<Model> build_hy_v4(Context& context, const HyV4Config& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
