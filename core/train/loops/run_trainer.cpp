#include "train/loops/run_trainer.h"

#include "train/loops/custom_dpo_trainer.h"
#include "train/loops/custom_kto_trainer.h"
#include "train/loops/dpo_trainer.h"
#include "train/loops/hf_trainer.h"
#include "train/loops/kto_trainer.h"
#include "train/loops/llava_trainer.h"
#include "train/loops/orpo_trainer.h"
#include "train/loops/pairwise_trainer.h"
#include "train/loops/reward_trainer.h"
#include "train/loops/sft_trainer.h"

namespace oometer {

void run_trainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                 const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                 const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation) {
  switch (training.loop.name) {
    case LoopName::step:
      return;
    case LoopName::trainer:
      return HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation).train();
    case LoopName::llava:
      return LlavaTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation).train();
    case LoopName::sft:
      return SftTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation).train();
    case LoopName::dpo:
      return DpoTrainer(context, model, reference, strategy, objective, training, data, micro_batches, evaluation)
          .train();
    case LoopName::kto:
      return KtoTrainer(context, model, reference, strategy, objective, training, data, micro_batches, evaluation)
          .train();
    case LoopName::reward:
      return RewardTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation).train();
    case LoopName::orpo:
      return OrpoTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation).train();
    case LoopName::pairwise:
      return PairwiseTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation).train();
    case LoopName::custom_dpo:
      return CustomDpoTrainer(context, model, reference, strategy, objective, training, data, micro_batches, evaluation)
          .train();
    case LoopName::custom_kto:
      return CustomKtoTrainer(context, model, reference, strategy, objective, training, data, micro_batches, evaluation)
          .train();
  }
}

}  // namespace oometer
