#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "result.h"

namespace oometer {

/// A regular expression as Python's `re` reads it, matched as `re.fullmatch` does: what peft takes for the names of
/// modules. Groups, alternatives, classes, quantifiers and lookaheads; not what says more than "matches" (captures,
/// back-references, lookbehind). Places in the text are a set that each part moves on, so that no pattern takes more
/// than a few passes over it: one that would hang a backtracking engine does not.
class Pattern {
 public:
  /// Longer texts match nothing. Paths of modules have some 60 characters.
  static constexpr std::size_t kLongestText = 255;

  /// The error says what is not understood, and where.
  static Result<Pattern> parse(std::string_view text);

  bool matches(std::string_view text) const;

 private:
  /// Of a text that is shorter than `Size` characters.
  template <std::size_t Size>
  using Places = std::bitset<Size>;
  using Characters = std::bitset<256>;
  enum class Kind {
    empty,
    text,
    one_of,
    sequence,
    alternatives,
    repeat,
    lookahead,
    not_lookahead,
    begin,
    end,
    boundary
  };
  struct Node {
    Kind kind = Kind::empty;
    std::string text;                 ///< of `text`
    Characters characters;            ///< of `one_of`
    std::vector<Node> parts;          ///< of what has any
    std::size_t least = 0, most = 0;  ///< of `repeat`
  };
  class Parser;

  template <std::size_t Size>
  static Places<Size> advance(const Node& node, std::string_view text, const Places<Size>& from);

  Node root_;
};

}  // namespace oometer
