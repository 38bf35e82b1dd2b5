#include "config/pattern.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>
#include <utility>

namespace oometer {

namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kMostRepeats = 1000;
constexpr int kDeepestGroup = 50;
// What bounds the time: the passes over a text multiply with each level of these.
constexpr int kDeepestRepeat = 2;
constexpr std::size_t kLongestPattern = 1000;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

class Pattern::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Node> run() {
    if (text_.size() > kLongestPattern) fail("more than " + std::to_string(kLongestPattern) + " characters");
    Node root = alternatives();
    if (repeats_within(root) > kDeepestRepeat) fail("repeats within repeats within repeats");
    if (!error_ && at_ < text_.size()) fail("a ) that closes nothing");
    if (error_) return *error_;
    return root;
  }

 private:
  bool more() const { return !error_ && at_ < text_.size(); }
  bool take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void fail(const std::string& what) {
    if (!error_)
      error_ = Error{"invalid", "", what + ", at character " + std::to_string(at_ + 1) + " of the expression"};
  }

  static bool looks_ahead(const Node& node) {
    return node.kind == Kind::lookahead || node.kind == Kind::not_lookahead ||
           std::any_of(node.parts.begin(), node.parts.end(), looks_ahead);
  }
  static int repeats_within(const Node& node) {
    int deepest = 0;
    for (const Node& part : node.parts) deepest = std::max(deepest, repeats_within(part));
    return deepest + (node.kind == Kind::repeat);
  }

  Node alternatives() {
    Node node{Kind::alternatives, {}, {}, {}, 0, 0};
    node.parts.push_back(sequence());
    while (take("|")) node.parts.push_back(sequence());
    return node.parts.size() == 1 ? std::move(node.parts[0]) : node;
  }

  Node sequence() {
    Node node{Kind::sequence, {}, {}, {}, 0, 0};
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      Node next = quantified();
      // Runs of plain characters are compared at once.
      const bool joins = next.kind == Kind::text && !node.parts.empty() && node.parts.back().kind == Kind::text &&
                         !(more() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos);
      if (joins)
        node.parts.back().text += next.text;
      else
        node.parts.push_back(std::move(next));
    }
    return node.parts.size() == 1 ? std::move(node.parts[0]) : node;
  }

  Node quantified() {
    Node node = atom();
    while (more()) {
      Node repeat{Kind::repeat, {}, {}, {}, 0, kUnlimited};
      if (take("+")) {
        repeat.least = 1;
      } else if (take("?")) {
        repeat.most = 1;
      } else if (!take("*") && !counts(repeat)) {
        break;
      }
      if (!take("?")) take("+");  // lazy or possessive: which way it looks first does not decide a full match
      if (looks_ahead(node)) fail("a lookahead that is repeated");
      repeat.parts.push_back(std::move(node));
      node = std::move(repeat);
    }
    return node;
  }

  /// {m}, {m,}, {,n}, {m,n}; a brace that begins none of these is itself.
  bool counts(Node& repeat) {
    const std::size_t begin = at_;
    const auto number = [&](std::size_t fallback) {
      if (at_ >= text_.size() || std::isdigit(static_cast<unsigned char>(text_[at_])) == 0) return fallback;
      std::size_t value = 0;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_)
        if (value <= kMostRepeats) value = value * 10 + static_cast<std::size_t>(text_[at_] - '0');
      return value;
    };
    if (!take("{")) return false;
    const std::size_t digits = at_;
    repeat.least = number(0);
    const bool has_least = at_ > digits;
    bool valid = has_least;
    repeat.most = repeat.least;
    if (take(",")) {
      const std::size_t second = at_;
      repeat.most = number(kUnlimited);
      valid = has_least || at_ > second;
    }
    if (!valid || !take("}")) {
      at_ = begin;
      return false;
    }
    if (repeat.least > kMostRepeats || (repeat.most != kUnlimited && repeat.most > kMostRepeats))
      fail("more than " + std::to_string(kMostRepeats) + " repeats");
    if (repeat.most < repeat.least) fail("a repeat whose least is above its most");
    return true;
  }

  Node atom() {
    if (take("(")) return group();
    if (take("[")) return characters();
    if (take("\\")) return escape();
    if (take("^")) return {Kind::begin, {}, {}, {}, 0, 0};
    if (take("$")) return {Kind::end, {}, {}, {}, 0, 0};
    if (take(".")) return one_of(~Characters().set('\n'));
    const char c = text_[at_];
    if (c == '*' || c == '+' || c == '?') {
      fail(std::string("a ") + c + " with nothing to repeat");
      return {};
    }
    ++at_;
    return {Kind::text, std::string(1, c), {}, {}, 0, 0};
  }

  Node group() {
    Kind kind = Kind::sequence;
    if (take("?")) {
      if (take("=")) {
        kind = Kind::lookahead;
      } else if (take("!")) {
        kind = Kind::not_lookahead;
      } else if (take("P<")) {
        while (more() && is_word(text_[at_])) ++at_;
        if (!take(">")) fail("a group's name that does not end");
      } else if (!take(":")) {
        fail("a group (?... that is not modelled: (?:...), (?=...), (?!...) and (?P<name>...) are");
      }
    }
    if (++depth_ > kDeepestGroup) fail("groups nested too deeply");
    if (error_) return {};
    Node node{kind, {}, {}, {}, 0, 0};
    node.parts.push_back(alternatives());
    if (!take(")")) fail("a ( that is not closed");
    if (kind != Kind::sequence && looks_ahead(node.parts[0])) fail("a lookahead within a lookahead");
    --depth_;
    return node;
  }

  static Node one_of(const Characters& characters) { return {Kind::one_of, {}, characters, {}, 0, 0}; }

  /// \d, \w, \s and their opposites.
  static std::optional<Characters> category(char name) {
    Characters found;
    for (std::size_t c = 0; c < 128; ++c) {
      const char character = static_cast<char>(c);
      switch (std::tolower(static_cast<unsigned char>(name))) {
        case 'd':
          found[c] = std::isdigit(static_cast<int>(c)) != 0;
          break;
        case 'w':
          found[c] = is_word(character);
          break;
        case 's':
          found[c] = std::isspace(static_cast<int>(c)) != 0;
          break;
        default:
          return std::nullopt;
      }
    }
    return std::isupper(static_cast<unsigned char>(name)) != 0 ? ~found : found;
  }

  /// What a backslash and a character stand for, where that is one character.
  std::optional<char> escaped_character() {
    const char c = text_[at_];
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) return c;
    if (c == 'n') return '\n';
    if (c == 't') return '\t';
    fail(std::string("\\") + c + ", which is not modelled");
    return std::nullopt;
  }

  Node escape() {
    if (!more()) {
      fail("a \\ at the end");
      return {};
    }
    if (take("b")) return {Kind::boundary, {}, {}, {}, 0, 0};
    if (take("A")) return {Kind::begin, {}, {}, {}, 0, 0};
    if (take("Z")) return {Kind::end, {}, {}, {}, 0, 0};
    if (const auto found = category(text_[at_])) {
      ++at_;
      return one_of(*found);
    }
    const auto c = escaped_character();
    if (!c) return {};
    ++at_;
    return {Kind::text, std::string(1, *c), {}, {}, 0, 0};
  }

  Node characters() {
    Characters found;
    const bool inverted = take("^");
    for (bool first = true; more() && (first || text_[at_] != ']'); first = false) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        if (const auto named = category(text_[at_ + 1])) {
          found |= *named;
          at_ += 2;
          continue;
        }
      }
      const auto low = member();
      auto high = low;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        high = member();
      }
      if (!low || !high) return {};
      const auto from = static_cast<unsigned char>(*low), to = static_cast<unsigned char>(*high);
      if (to < from) fail("a range whose end is before its beginning");
      for (std::size_t c = from; c <= to; ++c) found.set(c);
    }
    if (!take("]")) fail("a [ that is not closed");
    return one_of(inverted ? ~found : found);
  }

  std::optional<char> member() {
    if (take("\\")) {
      if (!more()) {
        fail("a [ that is not closed");
        return std::nullopt;
      }
      const auto c = escaped_character();
      ++at_;
      return c;
    }
    return text_[at_++];
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::optional<Error> error_;
};

Result<Pattern> Pattern::parse(std::string_view text) {
  Result<Node> root = Parser(text).run();
  if (!root) return root.error();
  Pattern pattern;
  pattern.root_ = *std::move(root);
  return pattern;
}

bool Pattern::matches(std::string_view text) const {
  if (text.size() > kLongestText) return false;
  // Most paths differ in how they end.
  if (root_.kind == Kind::sequence && !root_.parts.empty() && root_.parts.back().kind == Kind::text &&
      !text.ends_with(root_.parts.back().text))
    return false;
  constexpr std::size_t kOneWord = 64;  // enough for most paths, and much faster
  if (text.size() < kOneWord) return advance(root_, text, Places<kOneWord>(1))[text.size()];
  return advance(root_, text, Places<kLongestText + 1>(1))[text.size()];
}

template <std::size_t Size>
Pattern::Places<Size> Pattern::advance(const Node& node, std::string_view text, const Places<Size>& from) {
  if (from.none()) return from;
  Places<Size> to;
  const std::size_t size = text.size();
  switch (node.kind) {
    case Kind::empty:
      return from;
    case Kind::text:
      for (std::size_t i = text.find(node.text); i != std::string_view::npos; i = text.find(node.text, i + 1))
        if (from[i]) to.set(i + node.text.size());
      return to;
    case Kind::one_of:
      for (std::size_t i = 0; i < size; ++i)
        if (from[i] && node.characters[static_cast<unsigned char>(text[i])]) to.set(i + 1);
      return to;
    case Kind::sequence:
      to = from;
      for (const Node& part : node.parts) to = advance(part, text, to);
      return to;
    case Kind::alternatives:
      for (const Node& part : node.parts) to |= advance(part, text, from);
      return to;
    case Kind::repeat: {
      const Node& part = node.parts[0];
      Places<Size> here = from;
      for (std::size_t i = 0; i < node.least; ++i) {
        const Places<Size> next = advance(part, text, here);
        if (next == here) break;  // nothing left, or all that is left can stay where it is
        here = next;
      }
      to = here;
      if (part.kind == Kind::one_of && node.most == kUnlimited) {  // `.*`, in one pass
        bool reached = false;
        for (std::size_t i = 0; i <= size; ++i) {
          reached = reached || to[i];
          if (!reached) continue;
          to.set(i);
          reached = i < size && part.characters[static_cast<unsigned char>(text[i])];
        }
        return to;
      }
      for (std::size_t i = node.least; i < node.most; ++i) {
        here = advance(part, text, here) & ~to;  // places already reached lead nowhere new
        if (here.none()) break;
        to |= here;
      }
      return to;
    }
    case Kind::lookahead:
    case Kind::not_lookahead:
      for (std::size_t i = 0; i <= size; ++i)
        if (from[i] && advance(node.parts[0], text, Places<Size>().set(i)).any() == (node.kind == Kind::lookahead))
          to.set(i);
      return to;
    case Kind::begin:
      to[0] = from[0];
      return to;
    case Kind::end:
      to[size] = from[size];
      return to;
    case Kind::boundary:
      break;
  }
  for (std::size_t i = 0; i <= size; ++i) {
    const bool before = i > 0 && is_word(text[i - 1]), after = i < size && is_word(text[i]);
    to[i] = from[i] && before != after;
  }
  return to;
}

}  // namespace oometer
