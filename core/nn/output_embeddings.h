#pragma once

#include <array>
#include <string_view>

namespace oometer {

/// What classes of transformers 5.23 call their output embeddings (get_output_embeddings), the last of a path's names:
/// Whisper proj_out, encoders with a head of masked tokens decoder, DistilBERT vocab_projector, ELECTRA
/// generator_lm_head, BioGPT output_projection, T5Gemma one in its lm_head, others lm_head.
inline constexpr std::array<std::string_view, 7> kOutputEmbeddings{
    "lm_head", "proj_out", "decoder", "vocab_projector", "generator_lm_head", "output_projection", "lm_head.out_proj"};

/// Whether a layer of that name is one, where it stands: Whisper's is the model's own, Janus has another deeper in it.
inline bool is_output_embeddings(std::string_view name, bool is_at_top) { return is_at_top || name != "proj_out"; }

}  // namespace oometer
