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
  if (job.training.loop.has_fused_head() && job.model.config.traits().balances_experts)
    reader.object("training")
        .fail("loop", "not-modelled",
              "found a trainer of TRL, which adds the loss that balances experts; that is not "
              "supported yet: expected transformers.Trainer or \"step\"");
}

}  // namespace oometer
