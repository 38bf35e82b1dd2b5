#pragma once

#include <algorithm>
#include <vector>

#include "models/swin/swin.h"

/// transformers 5.23, models/swinv2/modeling_swinv2.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kSwinv2{"Swinv2Model",
                                       "Swinv2Embeddings",
                                       "Swinv2PatchEmbeddings",
                                       "Swinv2Layer",
                                       "Swinv2Attention",
                                       "Swinv2Intermediate",
                                       "swinv2",
                                       false};

/// class Swinv2Config (models/swinv2/configuration_swinv2.py)
struct Swinv2Config : SwinConfig {
  /// Patches each way of a stage's windows: no more than it has.
  std::int64_t window(std::size_t stage) const { return std::min(window_size, side(stage)); }
};

std::unique_ptr<Model> build_swinv2(Context& context, const Swinv2Config& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
