#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace oometer {

/// What classes of transformers 5.23 call their output embeddings (get_output_embeddings): Whisper proj_out, others
/// lm_head.
inline constexpr std::array<std::string_view, 2> kOutputEmbeddings{"lm_head", "proj_out"};

inline bool is_output_embeddings(std::string_view name) {
  return std::find(kOutputEmbeddings.begin(), kOutputEmbeddings.end(), name) != kOutputEmbeddings.end();
}

}  // namespace oometer
