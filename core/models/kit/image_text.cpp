#include "models/kit/image_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/ops.h"

namespace oometer {

std::int64_t nearest_tiles(std::int64_t height, std::int64_t width, std::int64_t side, std::int64_t most,
                           std::int64_t least) {
  const double aspect_ratio = static_cast<double>(width) / static_cast<double>(height);
  const double area = static_cast<double>(width) * static_cast<double>(height);
  double best_difference = std::numeric_limits<double>::infinity();
  std::int64_t best = least;
  // In the order of Python's stable sort: by the number of tiles, then by width.
  for (std::int64_t tiles = least; tiles <= most; ++tiles)
    for (std::int64_t columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const double difference =
          std::abs(aspect_ratio - static_cast<double>(columns) / static_cast<double>(tiles / columns));
      const double edge = static_cast<double>(side);
      if (difference < best_difference ||
          (difference == best_difference && area > 0.5 * edge * edge * static_cast<double>(tiles)))
        best = tiles;
      best_difference = std::min(best_difference, difference);
    }
  return best;
}

void ImageTextModel::make_images(ModelInputs& batch, std::int64_t images_per_sample) {
  data_.images_per_sample = images_per_sample;
  if (data_.images() > 0) batch.pixel_values = input(pixel_sizes(), data_.pixel_dtype.value_or(dtype_));
}

TensorList ImageTextModel::encoded_images(const ModelInputs& batch) {
  if (!batch.pixel_values) return {};
  ImageFeatures image = image_features(batch);
  TensorList outputs = std::move(image.pooler_output);
  for (Tensor& other : image.others) outputs.push_back(std::move(other));
  return outputs;
}

ModelOutputs ImageTextModel::forward(const ModelInputs& inputs) {
  Tensor image_hidden_states;
  const Tensor hidden_states = model_forward(inputs, image_hidden_states);
  if (!gives_features()) image_hidden_states.reset();
  ModelOutputs outputs =
      causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function, language_model_.parts.logits);
  if (image_hidden_states) outputs.others.push_back(image_hidden_states);
  return outputs;
}

Tensor placeholder_mask(const Tensor& input_ids) {
  const Tensor special_image_mask = pointwise(Op::eq, {&input_ids}, DType::boolean);
  const Tensor n_image_tokens = sum_all(special_image_mask);
  const Tensor elements = mul_scalar(n_image_tokens);
  const Tensor matches = pointwise(Op::eq, {&elements}, DType::boolean);
  return unsqueeze(special_image_mask, -1);
}

Tensor checked_placeholder_mask(const Tensor& input_ids, const Tensor& inputs_embeds, const Tensor& features) {
  Tensor special_image_mask = pointwise(Op::eq, {&input_ids}, DType::boolean);
  const Tensor n_image_tokens = sum_all(special_image_mask);
  special_image_mask = expand(unsqueeze(special_image_mask, -1), inputs_embeds.sizes());
  { const Tensor taken = index_mask(inputs_embeds, special_image_mask, features.numel()); }
  return special_image_mask;
}

Tensor ImageTextModel::model_forward(const ModelInputs& inputs, Tensor& image_hidden_states) const {
  ModuleCall call(context_, model_);
  Tensor inputs_embeds = language_model_.embed(inputs.input_ids);
  ModelInputs positioned;
  if (!inputs.position_ids)
    if (Tensor position_ids = make_positions(context_, inputs_embeds.size(1))) {
      positioned = inputs;
      positioned.position_ids = std::move(position_ids);
    }
  ImageFeatures image;
  Tensor special_image_mask;  // bound until forward returns
  if (has_images(inputs)) {
    if (inputs.images)
      for (std::size_t i = 0; i < features_of(data_.images()); ++i) image.pooler_output.push_back((*inputs.images)[i]);
    else
      image = image_features(inputs);
    Tensor features =
        image.pooler_output.size() > 1 || joins_features() ? cat(image.pooler_output, 0) : image.pooler_output.front();
    features = to(features, inputs_embeds.dtype());
    special_image_mask = find_placeholders(inputs.input_ids, inputs_embeds, features);
    inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, features);
    image_hidden_states = features;
  }
  return call.result(run_language(inputs_embeds, positioned.position_ids ? positioned : inputs));
}

}  // namespace oometer
