#pragma once

#include <cstdint>
#include <memory>

#include "config/activation.h"
#include "models/model.h"

namespace oometer {

class ConfigReader;

/// transformers 5.23, models/parakeet/configuration_parakeet.py, classes ParakeetEncoderConfig and ParakeetCTCConfig:
/// the fields that decide memory.
struct ParakeetConfig {
  std::int64_t vocab_size = 1025;
  std::int64_t hidden_size = 1024;
  std::int64_t num_hidden_layers = 24;
  std::int64_t num_attention_heads = 8;
  std::int64_t intermediate_size = 4096;
  std::int64_t head_dim = 128;
  Activation hidden_act = Activation::silu;
  bool attention_bias = true, convolution_bias = true;
  std::int64_t conv_kernel_size = 9;
  std::int64_t subsampling_layers = 3;  ///< log2(subsampling_factor)
  std::int64_t subsampling_conv_channels = 256, subsampling_conv_kernel_size = 3, subsampling_conv_stride = 2;
  std::int64_t num_mel_bins = 80;
  double dropout = 0.1, dropout_positions = 0, activation_dropout = 0.1, attention_dropout = 0.1;
  bool ctc_mean = true;  ///< ctc_loss_reduction: "mean", else "sum"
  bool ctc_zero_infinity = true;

  /// Frames of 10 ms that ParakeetFeatureExtractor makes; all but the last one attend.
  static std::int64_t frames(double seconds) { return attended_frames(seconds) + 1; }
  static std::int64_t attended_frames(double seconds);
  /// What a convolution of the subsampling leaves of so many frames or bins, and all of them.
  std::int64_t convolved(std::int64_t length) const {
    return (length + (subsampling_conv_kernel_size - 1) / 2 * 2 - subsampling_conv_kernel_size) /
               subsampling_conv_stride +
           1;
  }
  std::int64_t subsampled(std::int64_t length) const {
    for (std::int64_t i = 0; i < subsampling_layers; ++i) length = convolved(length);
    return length;
  }

  bool operator==(const ParakeetConfig&) const = default;
};

/// ParakeetEncoderConfig's fields, into a config whose vocab_size and loss stay as they are. It starts as the class's
/// own defaults; `usual_layerdrop`: those of who reads it.
void read_parakeet_encoder(ConfigReader& reader, ParakeetConfig& config, double usual_layerdrop = 0.1);
/// Of its encoder.
double largest_tensor_of(const ParakeetConfig& config, std::int64_t batch, double audio_seconds);

/// class ParakeetEncoder, which others have, too.
class ParakeetStates {
 public:
  virtual ~ParakeetStates() = default;
  /// `output_mask`: of the states, which is returned beside them.
  virtual Tensor operator()(const Tensor& input_features, const Tensor& mask, Tensor& output_mask) const = 0;
};
std::unique_ptr<ParakeetStates> make_parakeet_encoder(const Builder& builder, const ParakeetConfig& config,
                                                      const ModelOptions& options);

/// ParakeetForCTC (models/parakeet/modeling_parakeet.py).
std::unique_ptr<Model> build_parakeet(Context& context, const ParakeetConfig& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
