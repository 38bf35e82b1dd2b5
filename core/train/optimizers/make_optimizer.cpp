#include "train/optimizers/classes.h"

namespace oometer {

std::unique_ptr<Optimizer> make_optimizer(Context& context, const OptimizerConfig& config) {
  if (config.in_backward) return make_in_backward(context, config);
  if (!config.rest.empty()) return make_with_rest(context, config);
  if (config.name == OptimizerName::galore_adamw_8bit) return make_galore_8bit(context, config);
  if (config.is_bitsandbytes()) return make_bitsandbytes(context, config);
  switch (config.name) {
    case OptimizerName::adamw:
    case OptimizerName::adam:
      break;
    case OptimizerName::sgd:
      return make_sgd(context, config);
    case OptimizerName::adadelta:
      return make_adadelta(context, config);
    case OptimizerName::adafactor:
      return make_adafactor(context, config);
    case OptimizerName::adagrad:
      return make_adagrad(context, config);
    case OptimizerName::adamax:
      return make_adamax(context, config);
    case OptimizerName::asgd:
      return make_asgd(context, config);
    case OptimizerName::ademamix:
    case OptimizerName::lion:
    case OptimizerName::lamb:
      return make_bitsandbytes(context, config);
    case OptimizerName::hf_adafactor:
      return make_hf_adafactor(context, config);
    case OptimizerName::apollo_adamw:
      return make_apollo(context, config);
    case OptimizerName::galore_adamw:
    case OptimizerName::galore_adafactor:
      return make_galore(context, config);
    case OptimizerName::lomo:
    case OptimizerName::adalomo:
      return make_lomo(context, config);
    case OptimizerName::grokadamw:
      return make_grokadamw(context, config);
    case OptimizerName::schedule_free_adamw:
    case OptimizerName::schedule_free_radam:
    case OptimizerName::schedule_free_sgd:
      return make_schedule_free(context, config);
    case OptimizerName::stable_adamw:
      return make_stable_adamw(context, config);
    case OptimizerName::muon:
      return make_muon(context, config);
    case OptimizerName::torchao_adamw_8bit:
    case OptimizerName::torchao_adamw_4bit:
    case OptimizerName::torchao_adamw_fp8:
      return make_torchao(context, config);
    case OptimizerName::flash_adamw:
    case OptimizerName::flash_lion:
      return make_flash(context, config);
    case OptimizerName::te_fused_adam:
      return make_te_fused_adam(context, config);
    case OptimizerName::optimi_adamw:
    case OptimizerName::optimi_lion:
      return make_optimi(context, config);
    case OptimizerName::lion_pytorch:
      return make_lion_pytorch(context, config);
    case OptimizerName::came:
      return make_came(context, config);
    case OptimizerName::galore_adamw_8bit:
      return make_galore_8bit(context, config);
    case OptimizerName::prodigy:
      return make_prodigy(context, config);
    case OptimizerName::adopt:
      return make_adopt(context, config);
    case OptimizerName::adam_mini:
      return make_adam_mini(context, config);
    case OptimizerName::deepspeed_lion:
    case OptimizerName::deepspeed_lamb:
      return make_deepspeed(context, config);
    case OptimizerName::nadam:
      return make_nadam(context, config);
    case OptimizerName::radam:
      return make_radam(context, config);
    case OptimizerName::rmsprop:
      return make_rmsprop(context, config);
    case OptimizerName::rprop:
      return make_rprop(context, config);
  }
  return make_adam(context, config);
}

}  // namespace oometer
