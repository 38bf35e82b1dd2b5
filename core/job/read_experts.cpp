#include "job/names.h"
#include "job/read.h"

namespace oometer {

void check_experts(ConfigReader& reader, const Job& job) {
  if (job.runtime.experts != ExpertsImplementation::grouped_mm)
    reader.object("runtime").fail("experts", "not-modelled",
                                  "found " + name_of(job.runtime.experts, kExperts) +
                                      "; expected grouped_mm: other implementations are not supported yet");
  // SFTTrainer.__init__, DPOTrainer.__init__, KTOTrainer.__init__ (trl 1.16): on where the config has a
  // router_aux_loss_coef.
  const LoopConfig& loop = job.training.loop;
  const ModelTraits& traits = job.model.config.traits();
  const bool adds_loss =
      loop.has_fused_head() ? traits.balances_experts : loop.is_trl() && traits.outputs_router_logits;
  if (loop.has_fused_head() && !traits.counts_experts)
    reader.object("training")
        .fail("loop", "inconsistent",
              "found a trainer of TRL 1.16, which stops with " + traits.class_name +
                  ": it asks the config for num_experts, which is not there (trl/trainer/utils.py, _fused_forward); "
                  "expected transformers.Trainer, or router_aux_loss_coef 0 in the model's config");
  else if (adds_loss && (!loop.has_fused_head() || traits.takes_images ||
                         (loop.name != LoopName::sft && (loop.name != LoopName::dpo || traits.outputs_router_logits))))
    reader.object("training")
        .fail("loop", "not-modelled",
              "found a trainer of TRL, which adds the loss that balances experts; that is supported with SFTTrainer "
              "and DPOTrainer (TRL 1.15 or later) and models of text only: expected that, transformers.Trainer or "
              "\"step\"");
  // Such evaluations were 512 bytes above the recorded ones, and it is not known yet why.
  if ((adds_loss || traits.outputs_router_logits) && loop.is_trainer() && loop.eval_strategy != Every::no)
    reader.object("training")
        .fail("loop", "not-modelled",
              "found evaluations and the loss that balances experts, which are not supported together yet: leave one "
              "of them out");
  if (traits.outputs_router_logits && (job.task == Task::inference || traits.classifies))
    reader.fail("model", "not-modelled",
                "found output_router_logits in its config, which is supported with the training of language models "
                "only; expected false");
}

}  // namespace oometer
