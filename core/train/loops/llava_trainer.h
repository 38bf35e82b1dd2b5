#pragma once

#include "train/loops/hf_trainer.h"

namespace oometer {

/// LLaVATrainer of haotian-liu/LLaVA 1.2.2 (llava/train/llava_trainer.py), on transformers 4.37.2's Trainer
/// (trainer.py, _inner_training_loop and training_step) and accelerate 0.21's data loader. It evaluates nothing.
class LlavaTrainer : public HfTrainer {
 public:
  using HfTrainer::HfTrainer;

 private:
  void run_step(int step) override;
  void training_step(int step);
};

}  // namespace oometer
