#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "models/kit/encoder.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "nn/checkpointing.h"

/// transformers 5.23, models/whisper/modeling_whisper.py. Names and order of steps are that file's.
namespace oometer {

/// What the classes of an encoder of spectrograms are called, and do otherwise: Whisper's, and its copies.
struct WhisperClassNames {
  /// Of the encoder's positions: looked up, or the table itself is added, which may stay float32
  /// (_keep_in_fp32_modules_strict).
  enum class Positions : std::uint8_t { looked_up, added, added_in_float32 };

  const char *encoder, *layer, *attention;
  Positions positions = Positions::looked_up;
  std::int64_t pool = 1;  ///< states of the last layer that are averaged to one (avg_pooler)
};
inline constexpr WhisperClassNames kWhisperEncoder{"WhisperEncoder", "WhisperEncoderLayer", "WhisperAttention"};

/// class WhisperConfig: the fields that decide memory. What EncoderConfig says is the encoder's; its
/// max_position_embeddings are the decoder's (max_target_positions).
struct WhisperConfig : EncoderConfig {
  std::int64_t num_mel_bins = 80;
  std::int64_t max_source_positions = 1500;  ///< states of the encoder, one for two frames of 10 ms
  std::int64_t decoder_layers = 4, decoder_attention_heads = 6, decoder_ffn_dim = 1536;
  double dropout = 0, attention_dropout = 0, activation_dropout = 0;
  /// MEFT (reversible.h): F of a reversible layer is the layer with an adapter, or an adapter alone; none: it is usual.
  enum class Reversible : std::uint8_t { none, layer, adapter };
  Reversible f_arch = Reversible::none;
  std::int64_t adapter_bottleneck_dim = 0;
  /// Ladder Side Tuning (ladder.h), by the names of its authors' code.
  struct Ladder {
    std::int64_t task_reduction_factor = 0;                    ///< the backbone's widths in the side network's; 0: none
    std::vector<std::int64_t> encoder_layers, decoder_layers;  ///< beside which of the backbone's layers it has some
    bool has_bias = true, is_gated = true, merges_last = false;

    bool operator==(const Ladder&) const = default;
  };
  Ladder ladder;
  std::int64_t classifier_proj_size = 256;  ///< of WhisperForAudioClassification

  std::int64_t frames() const { return 2 * max_source_positions; }
  std::int64_t side_size() const { return hidden_size / ladder.task_reduction_factor; }
  double window_seconds() const { return static_cast<double>(frames()) / 100; }
  bool operator==(const WhisperConfig&) const = default;
};

/// WhisperAttention, of the encoder, of the decoder, and between both.
struct WhisperAttention {
  WhisperAttention(const Builder& builder, const WhisperConfig& c, std::int64_t heads, const ModelOptions& options,
                   bool is_causal);
  /// `key_value_states`: null in self-attention.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& key_value_states, const Tensor& mask) const;

  Linear k_proj, v_proj, q_proj, out_proj;
  AttentionCall call;
  std::int64_t head_dim;
  ModuleId module;
};

/// MEFT's, as in the authors' modules.py.
struct WhisperAdapter {
  WhisperAdapter(const Builder& builder, const WhisperConfig& c);
  Tensor operator()(const Tensor& argument) const;

  Linear dense1, dense2;
  double hidden_dropout;
  Activation activation_fn;
  ModuleId module;
};

/// WhisperEncoderLayer, WhisperDecoderLayer: the second has attention to what the encoder gave, too.
struct WhisperLayer {
  WhisperLayer(const Builder& builder, const WhisperConfig& c, const char* attention, const ModelOptions& options,
               bool is_decoder);
  /// `encoder_hidden_states`: of a decoder's layer.
  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& encoder_hidden_states) const;

  WhisperAttention self_attn;
  LayerNorm self_attn_layer_norm;
  std::optional<WhisperAttention> encoder_attn;
  LayerNorm encoder_attn_layer_norm;
  Linear fc1, fc2;
  LayerNorm final_layer_norm;
  std::optional<WhisperAdapter> ffn_adapter, rev_adapter;
  double hidden_dropout, activation_dropout;
  Activation activation_fn;
  bool clamps_float16;  ///< in the encoder
  ModuleId module;
};

/// nn.Conv1d with a kernel of 3 and a padding of 1.
struct SpectrogramConv {
  SpectrogramConv() = default;
  SpectrogramConv(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, std::int64_t its_stride);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  std::int64_t stride = 1;
  ModuleId module = 0;
};

struct SideNetwork;

/// Convolutions, fixed positions and layers.
struct WhisperEncoder {
  WhisperEncoder() = default;
  WhisperEncoder(const Builder& builder, const WhisperConfig& c, const WhisperClassNames& names,
                 const ModelOptions& options);
  /// input_features [b, num_mel_bins, frames] to [b, max_source_positions / pool, d]. `attention_mask`: what the layers
  /// get; null: none.
  Tensor operator()(const Tensor& input_features, const Tensor& attention_mask = {}) const;
  /// Where the encoder itself makes the mask, of its first layer's states.
  using MakeMask = std::function<Tensor(const Tensor& hidden_states)>;
  /// `side_states`: what `side` has at the end.
  Tensor operator()(const Tensor& input_features, const MakeMask& make_mask, Tensor* side_states = nullptr) const;

  SpectrogramConv conv1, conv2;
  Embedding embed_positions;
  std::vector<WhisperLayer> layers;
  BlockStack blocks;
  LayerNorm layer_norm;
  std::shared_ptr<const SideNetwork> side;  ///< null: none
  double hidden_dropout = 0;
  WhisperClassNames::Positions positions = WhisperClassNames::Positions::looked_up;
  std::int64_t pool = 1;
  CheckpointingConfig checkpointing;
  WhisperConfig::Reversible reversible = WhisperConfig::Reversible::none;
  ModuleId module = 0;
};

/// The fields of the encoder alone, which its copies have under the same names.
void read_whisper_encoder(ConfigReader& reader, WhisperConfig& config);
WhisperConfig read_whisper_config(ConfigReader& reader);
/// Bytes of about the largest tensor that the encoder makes of so many audios.
double largest_tensor_of_whisper_encoder(const WhisperConfig& config, std::int64_t audios);
/// WhisperForConditionalGeneration; with labels of whole audios WhisperForAudioClassification.
std::unique_ptr<Model> build_whisper(Context& context, const WhisperConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
