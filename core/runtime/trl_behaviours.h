#pragma once

#include <cstdint>

#include "runtime/behaviours.h"

/// What versions of TRL do around the model that is trained (trainer/sft_trainer.py; read: 0.29.1, 1.0.0 to 1.16.0).
namespace oometer {

/// From what SFTTrainer computes the entropy and the token accuracy that it logs.
enum class SftMetrics : std::uint8_t {
  with_head,    ///< the fused head gives them; 1.15 and later
  of_logits,    ///< entropy of all logits, accuracy of a copy of them that is shifted; up to 1.2
  of_copies,    ///< each of a shifted copy of its own; 1.3 - 1.5
  of_one_view,  ///< both of the shifted logits, not copied; 1.6 - 1.14
};

/// How the loss "chunked_nll" (1.4 - 1.14) brings the scored tokens together.
enum class ChunkedTokens : std::uint8_t {
  none,            ///< there is no such loss
  selected,        ///< by their mask; logits are products in float32; 1.4 - 1.7
  sorted,          ///< all tokens, those first, in whole chunks; 1.8 - 1.12
  sorted_in_type,  ///< the same, logits are products in the hidden states' type; 1.13 - 1.14
};

struct TrlBehaviours {
  SftMetrics metrics = SftMetrics::with_head;
  /// add_fused_lm_head: the model makes no logits (1.15 and later).
  bool fused_head = true;
  ChunkedTokens chunked = ChunkedTokens::none;
  /// SFTConfig's loss_type is chunked_nll unless something else is said (1.7 - 1.14).
  bool chunks_by_default = false;
  /// entropy_from_logits is a Triton kernel (1.14; 1.15 and later have it for other trainers).
  bool fuses_entropy = false;
  /// Rows of documents come with cu_seq_lens and seq_idx (1.16).
  bool collates_bounds = true;
  /// The other trainers are known as this version has them.
  bool knows_preferences = true;

  bool operator==(const TrlBehaviours&) const = default;
};

inline TrlBehaviours resolve_trl_behaviours(const Version& trl) {
  TrlBehaviours b;
  b.metrics = trl >= Version{1, 15, 0}  ? SftMetrics::with_head
              : trl >= Version{1, 6, 0} ? SftMetrics::of_one_view
              : trl >= Version{1, 3, 0} ? SftMetrics::of_copies
                                        : SftMetrics::of_logits;
  b.fused_head = trl >= Version{1, 15, 0};
  b.chunks_by_default = trl >= Version{1, 7, 0} && trl < Version{1, 15, 0};
  b.fuses_entropy = trl >= Version{1, 14, 0};
  b.chunked = b.fused_head || trl < Version{1, 4, 0} ? ChunkedTokens::none
              : trl < Version{1, 8, 0}               ? ChunkedTokens::selected
              : trl < Version{1, 13, 0}              ? ChunkedTokens::sorted
                                                     : ChunkedTokens::sorted_in_type;
  b.collates_bounds = b.knows_preferences = trl >= Version{1, 16, 0};
  return b;
}

}  // namespace oometer
