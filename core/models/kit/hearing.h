#pragma once

#include "models/kit/decoder.h"

/// An encoder of audio, a projector and a language model, in whose embeddings the features of audio take the places of
/// the audio tokens: VoxtralModel, AudioFlamingo3Model and their kin (transformers 5.23).
namespace oometer {

class HearingModel : public LanguageModel {
 public:
  ModelOutputs forward(const ModelInputs& inputs) override;

 protected:
  using LanguageModel::LanguageModel;
  /// get_audio_features, of which pooler_output goes on.
  virtual Tensor audio_features(const ModelInputs& inputs) const = 0;

  ModuleId model_ = 0;

 private:
  void complete(ModelInputs& batch) override { make_audios(batch); }
  Tensor model_forward(const ModelInputs& inputs, Tensor& audio_embeds) const;
};

}  // namespace oometer
