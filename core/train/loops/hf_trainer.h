#pragma once

#include <cstddef>
#include <vector>

#include "autograd/offload_activations.h"
#include "models/model.h"
#include "train/objectives/fused_lm_head.h"
#include "train/objectives/objective.h"
#include "train/step.h"

namespace oometer {

/// transformers.Trainer of 5.23 on one GPU or under DDP, with accelerate 1.15 around the model (trainer.py: _run_epoch,
/// training_step, compute_loss, evaluation_loop; accelerate/accelerator.py: prepare_model, backward). Members are the
/// names that Python holds from one step to the next.
class HfTrainer {
 public:
  HfTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
            const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
            const std::vector<DataConfig>& evaluation);
  virtual ~HfTrainer() = default;
  void train();

 protected:
  struct Prediction {
    Tensor loss;
    TensorList logits;
    Tensor labels;
  };
  /// `returned`: the outputs that the caller keeps; null: it keeps none.
  virtual Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned);
  virtual Prediction prediction_step(const ModelInputs& inputs, bool prediction_loss_only);
  /// What SFTTrainer, DPOTrainer and KTOTrainer of trl have in its place: their first output is the logits.
  Prediction predict(const ModelInputs& inputs, const Tensor& labels, bool prediction_loss_only);
  /// The batch on the device, as the collator made it.
  virtual ModelInputs make_batch() { return objective_.prepare(model_); }
  /// What a fused head has returned beside the model's loss; null: the model has a head of its own.
  virtual FusedCausalLMOutput* fused_output() { return nullptr; }
  /// A model as accelerate has prepared it: forward under autocast, what it returns in float32.
  ModelOutputs call_model(Model& model, const ModelInputs& inputs);
  /// Accelerator.gather: every process's, end to end; of one process, the tensor itself.
  Tensor gather(const Tensor& tensor) const;
  bool autocasts() const { return strategy_.autocasts() && autocast_dtype(training_.precision); }
  bool refused() const { return strategy_.stops(); }
  virtual void run_step(int step);
  void set_data(const DataConfig& batch);
  /// A step's micro-batch, by its number in it.
  const DataConfig& micro_batch(int step, std::size_t i) const;

  Context& context_;
  Model& model_;
  TrainingStrategy& strategy_;
  const LoopConfig& args_;
  const TrainingConfig& training_;
  const DataConfig* batch_ = nullptr;  ///< what the next batch is like
  bool is_last_ = true;                ///< of a step's micro-steps, the one whose gradients are reduced
  ModelInputs inputs_;
  Tensor tr_loss_, tr_loss_step_;

 private:
  void get_batch_samples(int step);
  Tensor count_items(const std::vector<ModelInputs>& batches) const;
  void training_step(const ModelInputs& inputs, int step, bool is_last);
  void track_tokens(const ModelInputs& inputs) const;
  ModelOutputs call_prepared(Model& model, const ModelInputs& inputs);
  void return_outputs(ModelOutputs& outputs);
  void compare_shapes(const Tensor& tensor) const;
  void evaluate(int step);

  const Objective& objective_;
  const DataConfig& data_;                        ///< a full micro-batch
  const std::vector<DataConfig>& micro_batches_;  ///< of all steps; empty: full ones
  const std::vector<DataConfig>& evaluation_;     ///< the batches of an evaluation; empty: there is none

  const Handle<OffloadActivations> offload_activations_;
  std::vector<ModelInputs> batch_samples_;
  Tensor num_items_in_batch_;
  Tensor passed_on_;  ///< what checkpointed blocks keep of the model's keyword arguments until they have run again
};

}  // namespace oometer
