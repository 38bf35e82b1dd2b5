#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "result.h"

namespace oometer {

/// Says `training.optimizer` in the job's own keys: a text, a name of transformers' `optim` and the path of a class
/// ("torch.optim.AdamW") become a name, an implementation and the arguments that decide memory, with the class's own
/// defaults. An error at the JSON pointer of what is wrong: an unknown class (with the nearest one that is known), an
/// argument that the class does not have, or one that is not modelled.
std::optional<Error> spell_out_optimizer(nlohmann::json& job);

/// Trainer.get_optimizer_cls_and_kwargs (transformers 5.23, trainer_optimizer.py): the optimizer of `optim`, in the
/// words of `training.optimizer`. `optim_args`: "momentum=0.9,centered=true". An error's pointer is the argument's
/// name.
Result<nlohmann::json> optimizer_of_optim(const std::string& optim, const std::string& optim_args);

/// Whether weight decay changes what an optimizer of `training.optimizer` allocates.
bool copies_for_weight_decay(const nlohmann::json& optimizer);

}  // namespace oometer
