#include "models/audioflamingo3/audioflamingo3.h"

#include <utility>

#include "models/kit/hearing.h"
#include "models/masking.h"
#include "models/voxtral/voxtral.h"
#include "ops/integers.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

constexpr WhisperClassNames kAudioFlamingo3Encoder{"AudioFlamingo3Encoder", "AudioFlamingo3EncoderLayer",
                                                   "AudioFlamingo3Attention", WhisperClassNames::Positions::added, 2};

/// (lengths - of) // 2 + 1
Tensor halved(Context& context, const Shape& windows) {
  Tensor lengths = integers(context, Op::sub, windows);
  lengths = integers(context, Op::floor_divide, windows);
  return integers(context, Op::add, windows);
}

/// torch.arange(length) < lengths[:, None]
Tensor are_valid(Context& context, std::int64_t windows, std::int64_t length) {
  const Tensor positions = integers(context, Op::arange, {length});
  return empty(context, Op::lt, {windows, length}, DType::boolean);
}

class AudioFlamingo3 final : public HearingModel {
 public:
  AudioFlamingo3(Context& context, const AudioFlamingo3Config& config, const DataConfig& data,
                 const ModelOptions& options)
      : HearingModel(context, "AudioFlamingo3ForConditionalGeneration", Modality::none, data, options),
        config_(config),
        masked_(masked_by(options.attention)) {
    const Builder model = root_.child("model", "AudioFlamingo3Model");
    model_ = model.module;
    ModelOptions of_tower = options;
    // The model's main input is text: enable_input_require_grads reaches the tower's first convolution, too.
    of_tower.checkpointing.input_require_grads = options.checkpointing.mode != CheckpointMode::none;
    audio_tower_ = WhisperEncoder(model.child("audio_tower", kAudioFlamingo3Encoder.encoder, Modality::vision),
                                  config.audio, kAudioFlamingo3Encoder, of_tower);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = audio_tower_.layers.size();
    projector_ = VoxtralMultiModalProjector(
        model.child("multi_modal_projector", "AudioFlamingo3MultiModalProjector", Modality::projector),
        config.audio.hidden_size, config.text.hidden_size, config.projector_bias, config.projector_hidden_act);
    make_head(root_, config.text, false);
  }

  void make_audios(ModelInputs& batch) override {
    if (data_.audios() == 0) return;
    const std::int64_t windows = checked_product(data_.audios(), config_.windows(data_.audio_seconds));
    batch.input_features =
        input({windows, config_.audio.num_mel_bins, config_.audio.frames()}, data_.pixel_dtype.value_or(dtype_));
    batch.pixel_attention_mask = input({windows, config_.audio.frames()}, DType::int32);  // input_features_mask
  }

 private:
  Tensor audio_features(const ModelInputs& inputs) const override {
    const Tensor& input_features_mask = inputs.pixel_attention_mask;
    const std::int64_t windows = input_features_mask.size(0);
    // Python's locals, and what get_audio_features returns
    const Tensor last_hidden_state = encode(inputs.input_features, input_features_mask);
    const Tensor audio_embeds = projector_(last_hidden_state);
    const Tensor input_lengths = sum(input_features_mask, {1}, false);
    const Tensor states = halved(context_, {windows}), post_lengths = halved(context_, {windows});
    const Tensor valid_mask = are_valid(context_, windows, audio_embeds.size(1));
    return index_mask(audio_embeds, valid_mask, checked_product(data_.audios(), config_.tokens(data_.audio_seconds)));
  }

  // AudioFlamingo3Encoder.forward
  Tensor encode(const Tensor& input_features, Tensor input_features_mask) const {
    const std::int64_t windows = input_features.size(0), states = config_.audio.max_source_positions;
    Tensor input_features_lengths;
    Rows rows;
    {
      const ModuleScope scope(context_, audio_tower_.module);
      input_features_lengths = sum(input_features_mask, {1}, false);
      input_features_lengths = halved(context_, {windows});
      input_features_mask = are_valid(context_, windows, states);
    }
    rows.has_mask = true;
    const std::int64_t of_each = config_.windows(data_.audio_seconds);
    for (std::int64_t i = 1; i <= windows; ++i)
      rows.documents.push_back({i % of_each == 0 ? config_.last_states(data_.audio_seconds) : states});
    MaskArguments given;
    given.attention_mask = input_features_mask;
    given.rows = &rows;
    return audio_tower_(input_features, [&](const Tensor& hidden_states) {
      return create_bidirectional_mask(hidden_states, given, masked_);
    });
  }

  AudioFlamingo3Config config_;
  MaskedBy masked_;
  WhisperEncoder audio_tower_;
  VoxtralMultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_audioflamingo3(Context& context, const AudioFlamingo3Config& config,
                                            const DataConfig& data, const ModelOptions& options) {
  return std::make_unique<AudioFlamingo3>(context, config, data, options);
}

}  // namespace oometer
