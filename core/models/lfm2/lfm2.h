#pragma once

#include <functional>
#include <memory>

#include "models/kit/causal_conv.h"
#include "models/kit/recurrent.h"

/// transformers 5.23, models/lfm2/modeling_lfm2.py: what LFM2-MoE's classes copy.
namespace oometer {

/// Lfm2MLP: LlamaMLP with names of its own.
struct Lfm2MLP {
  Lfm2MLP(const Builder& builder, std::int64_t hidden_size, std::int64_t intermediate_size);
  Tensor operator()(const Tensor& x) const;

  Linear w1, w3, w2;
  ModuleId module = 0;
};

/// Lfm2ShortConv, in attention's place.
std::function<AttentionOutputs(const Tensor&, const PositionEmbeddings&, const Tensor&)> make_short_conv(
    const Builder& builder, const TextConfig& config);

/// Lfm2DecoderLayer: a short convolution or attention, and what `make_feed_forward` makes behind it.
using MakeFeedForward = std::function<std::function<Tensor(const Tensor&)>(const Builder& layer)>;
std::unique_ptr<DecoderLayer> make_lfm2_layer(const Builder& builder, const TextConfig& config,
                                              const ModelOptions& options, std::size_t index, const char* short_conv,
                                              const MakeFeedForward& make_feed_forward);

/// The fields that both configs have.
TextConfig read_lfm2_text(ConfigReader& reader, const TextConfig& defaults);
DecoderParts lfm2_parts(DecoderParts parts);

/// LFM2 itself, also inside another model.
TextConfig read_lfm2_config(ConfigReader& reader);
DecoderParts lfm2_text_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
