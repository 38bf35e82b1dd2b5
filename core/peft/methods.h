#pragma once

#include "peft/method.h"

/// How each config class is read; where its key is not modelled, an error.
namespace oometer {

/// A probability of dropout: 1 would drop everything.
inline constexpr double kDropout = 0.999999;

using ReadPeftMethod = std::shared_ptr<const PeftMethod>(ConfigReader& reader, const PeftDefaults& defaults);

ReadPeftMethod read_lora_method, read_ia3_method, read_ln_tuning, read_miss, read_trainable_tokens, read_vera;

}  // namespace oometer
