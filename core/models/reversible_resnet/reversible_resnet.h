#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/kit/encoder.h"

/// Reversible layers for speaker embeddings (arXiv 2412.01195). Made from our own PyTorch model of the paper,
/// tools/revnet.py; names and order of steps are that file's.
namespace oometer {

inline constexpr const char* kReversibleResNetAssumption =
    "the network is a PyTorch model of our own (tools/revnet.py), with which it was compared, not the paper's code: "
    "reversible blocks are as in RevNet and RevTorch, the first block of each later stage is an ordinary one, and the "
    "head over the speakers is a linear layer";

struct ReversibleResNetConfig : EncoderConfig {
  std::int64_t feat_dim = 80;  ///< mel bins
  std::int64_t m_channels = 32;
  std::vector<std::int64_t> num_blocks{3, 4, 6, 3};
  std::int64_t embed_dim = 256;

  /// Of a stage.
  std::int64_t planes(std::size_t stage) const { return m_channels << stage; }
  /// Mel bins that the last stage still tells apart.
  std::int64_t rows() const;
  static std::int64_t frames(double seconds);  ///< one in 10 ms
  bool operator==(const ReversibleResNetConfig&) const = default;
};

std::unique_ptr<Model> build_reversible_resnet(Context& context, const ReversibleResNetConfig& config,
                                               const DataConfig& data, const ModelOptions& options);

}  // namespace oometer
