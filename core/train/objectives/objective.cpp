#include "train/objectives/objective.h"

#include <string>
#include <utility>

#include "ops/losses.h"
#include "ops/ops.h"
#include "train/objectives/causal_lm.h"
#include "train/objectives/contrastive.h"
#include "train/objectives/masked_cross_entropy.h"

namespace oometer {

namespace {

/// F.cross_entropy of what the class hands it.
class CrossEntropy : public LossFunction {
 public:
  Tensor operator()(const Tensor& logits, const Tensor& labels, const Tensor&) const override {
    return cross_entropy(logits, labels);
  }
};

/// ForMaskedLMLoss (transformers 5.23, loss/loss_utils.py).
class ForMaskedLMLoss : public LossFunction {
 public:
  Tensor operator()(const Tensor& logits_in, const Tensor& labels, const Tensor&) const override {
    const Tensor logits = to(logits_in, DType::float32);
    const Tensor loss = cross_entropy(logits, labels);
    return num_items_in_batch ? div(loss, num_items_in_batch) : loss;
  }
};

/// ForSequenceClassificationLoss (transformers 5.23, loss/loss_utils.py) of other problems than one label: a mean,
/// whatever there is beside.
template <Tensor (*loss)(const Tensor& input, const Tensor& target)>
class OfSamples : public LossFunction {
 public:
  Tensor operator()(const Tensor& logits, const Tensor& labels, const Tensor&) const override {
    const bool is_column = logits.ndim() == 2 && labels.ndim() == 1;
    return loss(is_column ? view(logits, labels.sizes()) : logits, labels);
  }
};

std::unique_ptr<LossFunction> make_loss_function(const TrainingConfig& training, LossType own) {
  if (training.loop.project == LoopProject::automodel && own != LossType::none) return make_masked_cross_entropy();
  switch (own) {
    case LossType::causal_lm:
      return make_causal_lm_loss(training);
    case LossType::shifted:
      return std::make_unique<ShiftedLoss>();
    case LossType::cross_entropy:
      return std::make_unique<CrossEntropy>();
    case LossType::masked_lm:
      return std::make_unique<ForMaskedLMLoss>();
    case LossType::mse:
      return std::make_unique<OfSamples<mse_loss>>();
    case LossType::binary_cross_entropy:
      return std::make_unique<OfSamples<binary_cross_entropy_with_logits>>();
    case LossType::contrastive:
      return std::make_unique<ImageTextContrastiveLoss>();
    case LossType::none:
      break;
  }
  return nullptr;
}

/// The loss that forward itself returns.
class OwnLoss : public Objective {
 public:
  explicit OwnLoss(std::unique_ptr<LossFunction> loss_function) : loss_function_(std::move(loss_function)) {}
  LossFunction* loss_function() const override { return loss_function_.get(); }
  ModelInputs prepare(Model& model) const override { return model.make_inputs(true); }
  Tensor loss(const CallModel& model, ModelInputs& batch) const override { return model(batch).loss; }

 private:
  std::unique_ptr<LossFunction> loss_function_;
};

/// The mean of an output in float32, by its name; of a class without a loss of its own.
class MeanOfOutput : public Objective {
 public:
  explicit MeanOfOutput(std::string name) : name_(std::move(name)) {}
  ModelInputs prepare(Model& model) const override { return model.make_inputs(false); }
  Tensor loss(const CallModel& model, ModelInputs& batch) const override {
    const ModelOutputs& outputs = model(batch);
    if (outputs.others.empty()) return {};
    // Of CLIPVisionModel last_hidden_state is the other output; a class without a pooler has no choice.
    const bool is_other = name_ == "last_hidden_state" || !outputs.pooler_output;
    const Tensor as_float = to(is_other ? outputs.others.front() : outputs.pooler_output, DType::float32);
    return mean_all(as_float);
  }

 private:
  std::string name_;
};

}  // namespace

std::unique_ptr<Objective> make_objective(const TrainingConfig& training, LossType own) {
  if (!training.loss.empty()) return std::make_unique<MeanOfOutput>(training.loss);
  return std::make_unique<OwnLoss>(make_loss_function(training, own));
}

}  // namespace oometer
