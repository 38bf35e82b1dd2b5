#pragma once

#include "models/kit/text_family.h"

/// transformers 5.23, models/lfm3/modeling_lfm3.py, also inside another model.
namespace oometer {

/// class Lfm3Config.
struct Lfm3Config : TextConfig {
  bool use_sandwich_norm = true, use_attention_gate = true;

  bool operator==(const Lfm3Config&) const = default;
};

Lfm3Config read_lfm3_config(ConfigReader& reader);
/// What Lfm3Model has of its own.
DecoderParts lfm3_text_parts(const Lfm3Config& config, const ModelOptions& options);

}  // namespace oometer
