#pragma once

#include <functional>

#include "models/kit/decoder.h"
#include "models/model.h"

/// A tower, a connector and a language model, in whose embeddings the features of images take the places of the image
/// tokens: LlavaModel.forward, as it is copied in transformers 5.23 (InternVLModel, Mistral3Model, ...).
namespace oometer {

/// Tiles of so many pixels a side, of `least` to `most`, whose grid is nearest to the shape of an image; of several
/// those that are not twice as large as it (get_optimal_tiled_canvas, models/got_ocr2/image_processing_got_ocr2.py).
std::int64_t nearest_tiles(std::int64_t height, std::int64_t width, std::int64_t side, std::int64_t most,
                           std::int64_t least = 1);

/// What get_image_features gives. All of it lives until the model's forward returns.
struct ImageFeatures {
  TensorList pooler_output;  ///< of all images, or a tensor an image
  TensorList others;         ///< the tower's own outputs
};

/// get_placeholder_mask
Tensor placeholder_mask(const Tensor& input_ids);
/// The same of classes that look at the embeddings of the tokens that it finds: [b, s, hidden].
Tensor checked_placeholder_mask(const Tensor& input_ids, const Tensor& inputs_embeds, const Tensor& features);

class ImageTextModel : public LanguageModel {
 public:
  void make_images(ModelInputs& batch, std::int64_t images_per_sample) override;
  TensorList encoded_images(const ModelInputs& batch) override;
  ModelOutputs forward(const ModelInputs& inputs) override;

 protected:
  using LanguageModel::LanguageModel;
  virtual Shape pixel_sizes() const = 0;
  virtual ImageFeatures image_features(const ModelInputs& batch) const = 0;
  /// Runs the language model on embeddings that have the images in them.
  virtual Tensor run_language(const Tensor& inputs_embeds, const ModelInputs& inputs) const {
    return run_decoder(inputs_embeds, {inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q});
  }
  /// How many tensors pooler_output has.
  virtual std::size_t features_of(std::int64_t) const { return 1; }
  /// They are joined, however many there are.
  virtual bool joins_features() const { return features_of(2) > 1; }

  /// get_placeholder_mask
  virtual Tensor find_placeholders(const Tensor& input_ids, [[maybe_unused]] const Tensor& inputs_embeds,
                                   [[maybe_unused]] const Tensor& features) const {
    return placeholder_mask(input_ids);
  }
  /// Its outputs have the features of images (image_hidden_states).
  virtual bool gives_features() const { return true; }

  ModuleId model_ = 0;  ///< the class without the head

  /// position_ids that the class itself makes before the features of images; null: the language model makes them.
  virtual Tensor make_positions(Context&, std::int64_t) const { return {}; }

 private:
  void complete(ModelInputs& batch) override { make_images(batch, data_.images_per_sample); }
  Tensor model_forward(const ModelInputs& inputs, Tensor& image_hidden_states) const;
};

}  // namespace oometer
