#pragma once

#include <memory>

#include "models/mistral3/config.h"
#include "models/model.h"

namespace oometer {

/// Bytes of the largest tensor of tower and projector.
double largest_tensor_of_pixtral(const Mistral3Config& config, const DataConfig& data);
/// An image's cells, each a token of the text, by PixtralImageProcessor's rule.
void read_pixtral_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data);
/// Mistral3ForConditionalGeneration of transformers 5.23 (models/mistral3/modeling_mistral3.py).
std::unique_ptr<Model> build_mistral3(Context& context, const Mistral3Config& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
