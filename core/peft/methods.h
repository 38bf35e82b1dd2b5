#pragma once

#include "peft/method.h"

/// How each config class is read; where its key is not modelled, an error.
namespace oometer {

/// A probability of dropout: 1 would drop everything.
inline constexpr double kDropout = 0.999999;

using ReadPeftMethod = std::shared_ptr<const PeftMethod>(ConfigReader& reader, const PeftDefaults& defaults);

ReadPeftMethod read_adalora, read_beft, read_boft, read_deft, read_delora, read_glora, read_gralora, read_hira,
    read_hra, read_ia3_method, read_lily, read_ln_tuning, read_loha, read_lokr, read_lora_method, read_miss, read_oft,
    read_osf, read_p_tuning, read_peanut, read_prefix_tuning, read_prompt_tuning, read_psoft, read_pvera, read_randlora,
    read_road, read_shira, read_supertuning, read_tinylora, read_trainable_tokens, read_unilora, read_vblora, read_vera,
    read_waveft;

}  // namespace oometer
