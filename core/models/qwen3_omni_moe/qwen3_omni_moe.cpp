#include "models/qwen3_omni_moe/qwen3_omni_moe.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/kit/recurrent.h"
#include "models/kit/thinker.h"
#include "models/qwen3_vl/qwen3_vl.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

class Qwen3OmniAudioEncoder final : public AudioTower {
 public:
  Qwen3OmniAudioEncoder(const Builder& builder, const Qwen3OmniConfig& config, const ModelOptions& options)
      : config_(config),
        positional_embedding_(make_sinusoids(builder, config.audio.max_source_positions, config.audio.hidden_size)),
        blocks_(builder),
        checkpointing_(options.checkpointing),
        module_(builder.module) {
    const std::int64_t width = config.audio.hidden_size, channels = config.downsample_hidden_size;
    layers_.reserve(static_cast<std::size_t>(config.audio.num_hidden_layers));
    for (std::int32_t i = 0; i < config.audio.num_hidden_layers; ++i) {
      layers_.emplace_back(builder.child("layers", "Qwen3OmniMoeAudioEncoderLayer", i), config.audio,
                           "Qwen3OmniMoeAudioAttention", true, options.attention);
      blocks_.add_block(builder);
    }
    ln_post_ = LayerNorm(builder.child("ln_post", "LayerNorm"), width);
    downsample_ = Downsampling(builder, config.audio.num_mel_bins, channels, width, options.checkpointing);
    proj1_ = Linear(builder.child("proj1", "Linear"), width, width, true);
    proj2_ = Linear(builder.child("proj2", "Linear"), width, config.output_dim, true);
  }

  BlockStack& block_stack() override { return blocks_; }

  // Qwen3OmniMoeThinkerModel.get_audio_features
  Tensor features(const Tensor& input_features, const Tensor& feature_attention_mask,
                  const DataConfig& data) const override {
    const AudioChunks chunks = config_.chunks_of(data.audios(), data.audio_seconds);
    Tensor given;
    const Tensor feature_lens = frames_of_audios(feature_attention_mask);
    given = without_padding(input_features, feature_attention_mask, chunks);
    return forward(given, feature_lens, chunks);
  }

 private:
  Tensor forward(const Tensor& argument, const Tensor& feature_lens, const AudioChunks& chunks) const {
    Context& context = argument.context();
    ModuleCall call(context, module_);
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor layer_outputs, hidden_states, positional_embedding, padded_embed;
    TensorList padded_embeds;
    PatchSequences sequences;
    Tensor its_valid_indices;
    PaddedFeatures padded = chunk_and_pad_features(call.argument(argument), chunks);
    {
      const Tensor feature_lens_after_cnn = states_of_lengths(padded.chunk_lengths);
      its_valid_indices = valid_indices(feature_lens_after_cnn, chunks);
    }
    sequences = audio_windows(padded.chunk_lengths, feature_lens, chunks, config_.n_window_infer / config_.chunk());
    padded.padded_feature = to(unsqueeze(padded.padded_feature, 1), downsample_.conv2d1.weight.dtype());
    for (std::int64_t begin = 0; begin < chunks.count(); begin += config_.conv_chunksize) {
      const std::int64_t count = std::min(config_.conv_chunksize, chunks.count() - begin);
      padded_embed = downsample_(slice(padded.padded_feature, 0, begin, count));
      padded_embeds.push_back(padded_embed);
    }
    padded_embed = cat(padded_embeds, 0);
    padded_embed = downsample_.project(padded_embed);
    positional_embedding =
        to(unsqueeze(slice(positional_embedding_, 0, 0, padded_embed.size(1)), 0), padded_embed.dtype());
    padded_embed = add(padded_embed, positional_embedding);
    {
      const Tensor rows = reshape(padded_embed, {padded_embed.size(0) * padded_embed.size(1), padded_embed.size(2)});
      hidden_states = index_select(rows, 0, its_valid_indices);
    }
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], sequences](const Tensor& hidden) { return layer(hidden, sequences); };
    };
    hidden_states = blocks_.run(0, layers_.size(), std::move(hidden_states), checkpointing_, block);
    layer_outputs = hidden_states;
    hidden_states = ln_post_(hidden_states);
    hidden_states = proj1_(hidden_states);
    hidden_states = activate(config_.audio.hidden_act, hidden_states);
    hidden_states = proj2_(hidden_states);
    return call.result(hidden_states);
  }

  Qwen3OmniConfig config_;
  Tensor positional_embedding_;
  std::vector<ChunkedAudioLayer> layers_;
  BlockStack blocks_;
  LayerNorm ln_post_;
  Downsampling downsample_;
  Linear proj1_, proj2_;
  CheckpointingConfig checkpointing_;
  ModuleId module_;
};

class Qwen3OmniThinker final : public ThinkerModel {
 public:
  Qwen3OmniThinker(Context& context, const Qwen3OmniConfig& config, const DataConfig& data, const ModelOptions& options)
      : ThinkerModel(context, kQwen3OmniMoe.class_name, data, options, config.grids.vision.patch_elements(), false) {
    const Builder model = root_.child("model", kQwen3OmniMoe.model);
    model_ = model.module;
    const TextConfig& text = config.grids.text;
    ThinkerParts parts;
    parts.audio_tower = std::make_unique<Qwen3OmniAudioEncoder>(
        model.child("audio_tower", "Qwen3OmniMoeAudioEncoder", Modality::vision), config, options);
    parts.visual =
        make_qwen3_vision(model.child("visual", kQwen3OmniMoe.tower, Modality::vision), config.grids, options);
    parts.num_mel_bins = config.audio.num_mel_bins;
    parts.positions = DType::float32;
    parts.frames = whole_frames;  // its processor pads to the longest
    DecoderParts decoder = kQwen3OmniMoe.make_parts(text, options);
    complete_parts(decoder, text);
    make_decoder(model.child("language_model", text.names->model, Modality::language), text, options,
                 std::move(decoder));
    set_towers(std::move(parts));
    make_head(root_, text, config.grids.tie_word_embeddings);
  }

 private:
  bool text_positions_come_first() const override { return true; }
};

}  // namespace

std::unique_ptr<Model> build_qwen3_omni_moe(Context& context, const Qwen3OmniConfig& config, const DataConfig& data,
                                            const ModelOptions& options) {
  return std::make_unique<Qwen3OmniThinker>(context, config, data, options);
}

}  // namespace oometer
