#include "models/kit/attended_loss.h"

#include <string>
#include <utility>

#include "ops/ops.h"

namespace oometer {

ModelOutputs attended_outputs(const Tensor& hidden_states, const Linear& lm_head, const ModelInputs& inputs,
                              const DataConfig& data, const char* class_name) {
  ModelOutputs outputs;
  Tensor logits = lm_head(hidden_states);
  const std::int64_t rows = inputs.labels.size(0), shorter = inputs.labels.size(1) - 1;
  const bool are_padded = inputs.rows->are_padded(shorter + 1);
  const std::int64_t tokens = are_padded ? inputs.rows->tokens() - rows : checked_product(rows, shorter);
  if (are_padded && data.scored != tokens)
    logits.context().refusal =
        Error{"not-modelled", "/data/lengths",
              std::string("found samples that are padded on the left, or of which some labels alone are scored; this "
                          "is not supported yet with ") +
                  class_name};
  const Tensor shift_attention_mask = slice(inputs.attention_mask, 1, 1, shorter);
  const auto attended = [&](const Tensor& shifted) {
    const Tensor is_attended = pointwise(Op::ne, {&shift_attention_mask}, DType::boolean);
    return index_mask(shifted, is_attended, tokens);
  };
  const Tensor shift_logits = attended(slice(logits, 1, 0, shorter));
  const Tensor shift_labels = attended(slice(inputs.labels, 1, 1, shorter));
  outputs.loss = cross_entropy(shift_logits, shift_labels);
  outputs.others.push_back(std::move(logits));
  return outputs;
}

}  // namespace oometer
