#include "models/voxtral/voxtral.h"

#include <utility>

#include "models/kit/hearing.h"
#include "nn/activation.h"
#include "ops/ops.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

VoxtralMultiModalProjector::VoxtralMultiModalProjector(const Builder& builder, std::int64_t in_features,
                                                       std::int64_t out_features, bool bias, Activation activation)
    : linear_1(builder.child("linear_1", "Linear"), in_features, out_features, bias),
      linear_2(builder.child("linear_2", "Linear"), out_features, out_features, bias),
      act(activation),
      module(builder.module) {}

Tensor VoxtralMultiModalProjector::operator()(const Tensor& audio_features) const {
  ModuleCall call(audio_features.context(), module);
  Tensor hidden_states = linear_1(call.argument(audio_features));
  hidden_states = activate(act, hidden_states);
  return call.result(linear_2(hidden_states));
}

namespace {

constexpr WhisperClassNames kVoxtralEncoder{"VoxtralEncoder", "VoxtralEncoderLayer", "VoxtralAttention",
                                            WhisperClassNames::Positions::added_in_float32};

class Voxtral : public HearingModel {
 public:
  Voxtral(Context& context, const VoxtralConfig& config, const DataConfig& data, const ModelOptions& options)
      : HearingModel(context, "VoxtralForConditionalGeneration", Modality::none, data, options), config_(config) {
    const Builder model = root_.child("model", "VoxtralModel");
    model_ = model.module;
    ModelOptions of_tower = options;
    // The model's main input is text: enable_input_require_grads reaches the tower's first convolution, too.
    of_tower.checkpointing.input_require_grads |= options.checkpointing.mode != CheckpointMode::none;
    audio_tower_ = WhisperEncoder(model.child("audio_tower", kVoxtralEncoder.encoder, Modality::vision), config.audio,
                                  kVoxtralEncoder, of_tower);
    make_decoder(model.child("language_model", config.text.names->model, Modality::language), config.text, options);
    language_model_.blocks.first_block = audio_tower_.layers.size();
    projector_ = VoxtralMultiModalProjector(
        model.child("multi_modal_projector", "VoxtralMultiModalProjector", Modality::projector),
        config.audio.intermediate_size, config.text.hidden_size, false, config.projector_hidden_act);
    make_head(root_, config.text, false);
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    if (dtype_ == DType::float16 || (context_.autocast.enabled && context_.autocast.dtype == DType::float16))
      context_.refusal = Error{"not-modelled", "/training/precision",
                               "found float16, in which the encoder's layers clamp what is infinite; this is not "
                               "supported yet: expected bfloat16"};
    return HearingModel::forward(inputs);
  }

  void make_audios(ModelInputs& batch) override {
    if (data_.audios() == 0) return;
    batch.input_features = input({checked_product(data_.audios(), config_.windows(data_.audio_seconds)),
                                  config_.audio.num_mel_bins, config_.audio.frames()},
                                 data_.pixel_dtype.value_or(dtype_));
  }

 private:
  Tensor audio_features(const ModelInputs& inputs) const override {
    Tensor audio_hidden_states = audio_tower_(inputs.input_features);
    const std::int64_t width = config_.audio.intermediate_size;
    const Tensor last_hidden_state = audio_hidden_states;
    audio_hidden_states = view(audio_hidden_states, {audio_hidden_states.numel() / width, width});
    return projector_(audio_hidden_states);
  }

  VoxtralConfig config_;
  WhisperEncoder audio_tower_;
  VoxtralMultiModalProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_voxtral(Context& context, const VoxtralConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<Voxtral>(context, config, data, options);
}

}  // namespace oometer
