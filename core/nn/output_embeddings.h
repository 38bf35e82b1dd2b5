#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace oometer {

/// What classes of transformers 5.23 call their output embeddings (get_output_embeddings): Whisper proj_out, encoders
/// with a head of masked tokens decoder, DistilBERT vocab_projector, ELECTRA generator_lm_head, others lm_head.
inline constexpr std::array<std::string_view, 5> kOutputEmbeddings{"lm_head", "proj_out", "decoder", "vocab_projector",
                                                                   "generator_lm_head"};

inline bool is_output_embeddings(std::string_view name) {
  return std::find(kOutputEmbeddings.begin(), kOutputEmbeddings.end(), name) != kOutputEmbeddings.end();
}

}  // namespace oometer
