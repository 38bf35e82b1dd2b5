#pragma once

#include "models/gemma4_text/config.h"
#include "models/kit/decoder.h"
#include "models/kit/norms.h"
#include "nn/module.h"

/// transformers 5.23, models/gemma4/modeling_gemma4.py and models/gemma3n/modeling_gemma3n.py.
namespace oometer {

/// The table of Gemma 4's and Gemma 3n's text models, and the projection that is added to what it gives.
class Gemma4PerLayerTable : public PerLayerInputs {
 public:
  /// `embedding_class`: the scaled embedding's.
  Gemma4PerLayerTable(const Builder& decoder, const Gemma4TextConfig& config, const char* embedding_class);

 protected:
  /// The scaled embeddings of tokens [b, s], by layer.
  Tensor look_up(const Tensor& input_ids) const;
  /// [b, s, layers, width]
  Tensor by_layer(const Tensor& x) const;

  Linear per_layer_model_projection_;
  Norm per_layer_projection_norm_;
  ModuleId module_;

 private:
  Embedding embed_tokens_per_layer_;
  Tensor embed_scale_;
  std::int64_t layers_, width_;
};

}  // namespace oometer
