#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "models/loss_function.h"
#include "train/config.h"

namespace oometer {

/// The loss of logits[..., :-1, :] and labels[..., 1:], both copied (models up to 4.44, loss_utils.py up to 4.50).
Tensor shifted_loss(const Tensor& logits, const Tensor& labels);

/// ForCausalLMLoss, transformers 5.23, loss/loss_utils.py. `liger`: with F.cross_entropy replaced.
/// `num_items_in_batch`: fixed_cross_entropy divides the sum by it; null: the mean.
Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels, bool liger = false,
                      const Tensor& num_items_in_batch = {});

/// The same cut along the sequence, of which one piece at a time is float32: torchtune 0.6's CEWithChunkedOutputLoss
/// (modules/loss/ce_chunked_output_loss.py) in the place that Axolotl gives it in transformers
/// (monkeypatch/loss/chunked.py, of LOSS_MAPPING's ForCausalLM; here of ForConditionalGeneration too), not compiled.
/// logits [b, s, classes], labels [b, s].
Tensor chunked_causal_lm_loss(const Tensor& logits, const Tensor& labels, std::int64_t chunks);

/// Whether Axolotl's fork of cut_cross_entropy patches that class (cut_cross_entropy/transformers/patch.py), and the
/// run was compared.
bool has_cut_cross_entropy(std::string_view class_name);

/// A ForCausalLM's own, or what Liger, the chunks or cut_cross_entropy put in its place.
std::unique_ptr<LossFunction> make_causal_lm_loss(const TrainingConfig& training);

/// "Shift so that tokens < n predict n", by the attention mask where there is one: of classes that have these lines in
/// their forward.
class ShiftedLoss : public LossFunction {
 public:
  Tensor operator()(const Tensor& logits, const Tensor& labels, const Tensor& attention_mask) const override;
};

}  // namespace oometer
