#pragma once

#include <memory>
#include <utility>

#include "models/kit/audio_chunks.h"
#include "models/kit/grids.h"
#include "models/vision_language.h"

/// Language models that see grids and hear spectrograms: the thinkers of Qwen2.5-Omni and Qwen3-Omni (transformers
/// 5.23, models/qwen2_5_omni/modeling_qwen2_5_omni.py, models/qwen3_omni_moe/modeling_qwen3_omni_moe.py).
namespace oometer {

/// An encoder of spectrograms.
class AudioTower {
 public:
  virtual ~AudioTower() = default;
  /// get_audio_features, of a batch's input_features and feature_attention_mask: [tokens of all audios, hidden].
  virtual Tensor features(const Tensor& input_features, const Tensor& feature_attention_mask,
                          const DataConfig& data) const = 0;
  virtual BlockStack& block_stack() = 0;
};

/// What a family builds; `frames`: of a spectrogram as the processor gives it, padding too.
struct ThinkerParts {
  std::unique_ptr<AudioTower> audio_tower;
  std::unique_ptr<GridTower> visual;
  std::int64_t num_mel_bins = 0;
  std::int64_t (*frames)(double seconds) = nullptr;
  DType positions = DType::int64;  ///< of tokens counted by an attention_mask
};

class ThinkerModel : public GridLanguageModel {
 public:
  ModelOutputs forward(const ModelInputs& inputs) override;

 protected:
  using GridLanguageModel::GridLanguageModel;
  /// The blocks of the towers come before the language model's.
  void set_towers(ThinkerParts parts);

 private:
  void complete(ModelInputs& batch) override;
  GridOutputs run_tower(const Tensor& pixel_values) const override { return (*parts_.visual)(pixel_values, data_); }
  const Tensor& first_of_tower() const override { return parts_.visual->first_parameter(); }
  Tensor thinker_forward(const ModelInputs& inputs);
  Tensor count_positions(const ModelInputs& inputs);

  ThinkerParts parts_;
  Tensor mrope_position_deltas_;  ///< the model's rope_deltas, until it finds others
};

/// What such a class has of its language model, and what it has not yet.
ModelTraits thinker_traits(const char* class_name, const LlamaConfig& text, bool ties_embeddings);
/// What a tower gives, its config's `key`, is as wide as the language model.
void check_width(ConfigReader& tower, const char* key, std::int64_t width, const LlamaConfig& text);
/// No videos, of what read_grid has read.
void check_one_frame(ConfigReader& reader, const DataConfig& data);

}  // namespace oometer
