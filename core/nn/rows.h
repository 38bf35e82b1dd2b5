#pragma once

#include <cstdint>
#include <vector>

namespace oometer {

/// What stands in the rows of a micro-batch, as far as a program reads it there: which tokens are padding, where
/// position_ids begin anew.
struct Rows {
  /// Of each row, the tokens of each document in it, one behind the other; what a row is longer is padding. Empty:
  /// each row is one document that fills it.
  std::vector<std::vector<std::int64_t>> documents;
  bool has_mask = false;       ///< an attention_mask comes with them
  bool has_positions = false;  ///< position_ids come with them, which begin anew with each document
  bool has_bounds = false;     ///< so do cu_seq_lens and seq_idx, as TRL's collator gives them beside position_ids

  bool are_padded(std::int64_t length) const;
  bool are_packed() const;       ///< some row holds several documents
  std::int64_t tokens() const;   ///< without padding
  std::int64_t count() const;    ///< of documents
  std::int64_t longest() const;  ///< tokens of a document
  std::int64_t pairs() const;    ///< of tokens of the same document
  bool operator==(const Rows&) const = default;
};

}  // namespace oometer
