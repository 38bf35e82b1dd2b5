#pragma once

#include <memory>

#include "train/optimizer.h"

/// What `make_optimizer` makes: a function for each file.
namespace oometer {

std::unique_ptr<Optimizer> make_adadelta(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adafactor(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adagrad(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adam(Context& context, const OptimizerConfig& config);  ///< and AdamW
std::unique_ptr<Optimizer> make_adamax(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adam_mini(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adopt(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_apollo(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_asgd(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_bitsandbytes(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_came(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_deepspeed(Context& context, const OptimizerConfig& config);  ///< FusedLion, FusedLamb
std::unique_ptr<Optimizer> make_flash(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_galore(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_galore_8bit(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_grokadamw(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_hf_adafactor(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_in_backward(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_lion_pytorch(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_lomo(Context& context, const OptimizerConfig& config);  ///< and AdaLomo
std::unique_ptr<Optimizer> make_muon(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_nadam(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_optimi(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_prodigy(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_radam(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_rmsprop(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_rprop(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_schedule_free(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_sgd(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_stable_adamw(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_te_fused_adam(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_torchao(Context& context, const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_with_rest(Context& context, const OptimizerConfig& config);

}  // namespace oometer
