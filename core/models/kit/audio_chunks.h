#pragma once

#include <cstdint>
#include <vector>

#include "models/kit/grids.h"
#include "models/whisper/whisper.h"

/// Encoders of spectrograms that are cut into chunks, whose states attend within windows: Qwen2.5-Omni's and
/// Qwen3-Omni's (transformers 5.23, models/qwen2_5_omni/modeling_qwen2_5_omni.py,
/// models/qwen3_omni_moe/modeling_qwen3_omni_moe.py). Names and order of steps are those files'.
namespace oometer {

/// Frames of 10 ms of an audio that a WhisperFeatureExtractor does not pad: begun ones too, or whole ones only.
std::int64_t begun_frames(double seconds);
std::int64_t whole_frames(double seconds);

/// What the encoder makes of a batch's audios, which are all as long.
struct AudioChunks {
  std::int64_t audios = 0;
  std::int64_t frames = 0;  ///< of an audio, without padding
  std::int64_t chunk = 0;   ///< frames
  int halvings = 1;         ///< convolutions, each of which halves a chunk

  std::int64_t states_of(std::int64_t chunk_frames) const;
  /// Of one audio.
  std::vector<std::int64_t> frames_of_chunks() const;
  std::int64_t states() const;
  std::int64_t count() const { return checked_product(audios, (frames + chunk - 1) / chunk); }
  std::int64_t longest() const { return frames < chunk ? frames : chunk; }
};

/// torch.sum(feature_attention_mask, dim=1): frames of each audio.
Tensor frames_of_audios(const Tensor& feature_attention_mask);
/// The batch's spectrograms without their padding [mel bins, frames of all] (get_audio_features).
Tensor without_padding(const Tensor& input_features, const Tensor& feature_attention_mask, const AudioChunks& chunks);

/// chunk_and_pad_features: [chunks, mel bins, frames of the longest], and the chunks' lengths.
struct PaddedFeatures {
  Tensor padded_feature, chunk_lengths;
};
PaddedFeatures chunk_and_pad_features(const Tensor& input_features, const AudioChunks& chunks);

/// The last lines of get_valid_indices, of the chunks' states.
Tensor valid_indices(const Tensor& states_of_chunks, const AudioChunks& chunks);

/// (lengths - of) // 2 + 1
Tensor halved_lengths(const Tensor& lengths);

/// SinusoidsPositionEmbedding: a table that stays float32.
Tensor make_sinusoids(const Builder& encoder, std::int64_t length, std::int64_t channels);

/// _get_feat_extract_output_lengths of Qwen3-Omni: states of so many frames, 13 of a whole chunk.
Tensor states_of_lengths(const Tensor& input_lengths);
/// Its get_audio_cu_seqlens: the states of `n_window_ratio` chunks attend to one another.
PatchSequences audio_windows(const Tensor& chunk_lengths, const Tensor& feature_lens, const AudioChunks& chunks,
                             std::int64_t n_window_ratio);

/// nn.Conv2d(in_channels, out_channels, 3, 2, padding=1)
struct HalvingConv {
  HalvingConv() = default;
  HalvingConv(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
};

/// Fields of Qwen3-Omni's encoder, and of Qwen3-ASR's, which is a copy.
struct ConvolvedAudioConfig {
  WhisperConfig audio;                        ///< its max_source_positions: of the table of positions
  std::int64_t n_window = 50;                 ///< half of a chunk's frames
  std::int64_t n_window_infer = 800;          ///< frames whose states attend to one another
  std::int64_t downsample_hidden_size = 480;  ///< channels of its convolutions
  std::int64_t output_dim = 3584;

  std::int64_t chunk() const { return 2 * n_window; }
  /// Three convolutions halve both a chunk's frames and its mel bins.
  AudioChunks chunks_of(std::int64_t audios, double seconds) const {
    return {audios, whole_frames(seconds), chunk(), 3};
  }
  bool operator==(const ConvolvedAudioConfig&) const = default;
};
/// Those beside the encoder's own, and what its class wants of them. `positions`: the key of max_source_positions;
/// `counts`: who takes a chunk to have 13 states, whatever it has.
void read_convolved_audio(ConfigReader& reader, ConvolvedAudioConfig& config, const char* positions,
                          const char* counts);
double largest_tensor_of_audio(const ConvolvedAudioConfig& config, const DataConfig& data);

/// conv2d1 to conv2d3 and conv_out of Qwen3-Omni's encoder, which are made in this order.
struct Downsampling {
  Downsampling() = default;
  Downsampling(const Builder& encoder, std::int64_t num_mel_bins, std::int64_t channels, std::int64_t width,
               const CheckpointingConfig& checkpointing);
  /// [chunks, 1, mel bins, frames] to [chunks, channels, bins, states].
  Tensor operator()(const Tensor& chunk) const;
  /// These to [chunks, states, width].
  Tensor project(const Tensor& convolved) const;

  HalvingConv conv2d1, conv2d2, conv2d3;
  Linear conv_out;
  CheckpointingConfig checkpointing;
};

/// Qwen2_5OmniAudioEncoderLayer, Qwen3OmniMoeAudioEncoderLayer.
struct ChunkedAudioLayer {
  /// `attention`: its class; `key_bias`: of k_proj.
  ChunkedAudioLayer(const Builder& builder, const WhisperConfig& c, const char* attention, bool key_bias,
                    AttentionKind kind);
  Tensor operator()(const Tensor& hidden_in, const PatchSequences& sequences) const;

  PatchAttention self_attn;
  LayerNorm self_attn_layer_norm;
  Linear fc1, fc2;
  LayerNorm final_layer_norm;
  Activation activation_fn;
  ModuleId module;
};

}  // namespace oometer
