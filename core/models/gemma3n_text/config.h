#pragma once

#include <cstdint>
#include <vector>

#include "models/gemma4_text/config.h"

namespace oometer {

/// transformers 5.23, models/gemma3n/configuration_gemma3n.py, class Gemma3nTextConfig: what Gemma 4's class has, its
/// heads all of one size, and AltUp.
struct Gemma3nTextConfig : Gemma4TextConfig {
  std::vector<std::int64_t> intermediate_sizes;  ///< by layer
  std::vector<bool> sparse;                      ///< layers whose MLP keeps the largest gates alone
  std::int64_t altup_num_inputs = 4;             ///< states of a token
  std::int64_t laurel_rank = 64;
  bool altup_correct_scale = true;  ///< a layer scales the state that it has computed

  bool operator==(const Gemma3nTextConfig&) const = default;
};

Gemma3nTextConfig read_gemma3n_text_config(ConfigReader& reader);

}  // namespace oometer
