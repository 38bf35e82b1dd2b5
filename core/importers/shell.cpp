#include "importers/shell.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "importers/keys.h"

namespace oometer::importers {

namespace {

bool parts_words(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

/// "NAME=" or "NAME+=" at the begin of a word.
std::size_t assignment_end(std::string_view word) {
  std::size_t at = 0;
  while (at < word.size() && is_name_letter(word[at])) ++at;
  if (at == 0 || at >= word.size() || std::isdigit(static_cast<unsigned char>(word[0]))) return 0;
  if (word[at] == '+' && at + 1 < word.size() && word[at + 1] == '=') return at + 2;
  return word[at] == '=' ? at + 1 : 0;
}

/// Bounds for what a script may make of itself: variables of variables, defaults in defaults.
constexpr std::size_t kMostExpanded = std::size_t{4} << 20;
constexpr int kMostDepth = 16;

class ShellReader {
 public:
  explicit ShellReader(std::string_view text) : text_(text) {}

  std::vector<ShellCommand> read() {
    while (at_ < text_.size()) read_command();
    return std::move(commands_);
  }

 private:
  using Words = std::vector<std::string>;

  bool ends() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char next() {
    const char letter = text_[at_++];
    if (letter == '\n') ++line_;
    return letter;
  }

  /// Blanks, and a backslash at the end of a line.
  void skip_blanks() {
    while (!ends()) {
      if (parts_words(peek())) {
        next();
      } else if (peek() == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
        while (next() != '\n') {
        }
      } else {
        return;
      }
    }
  }

  void skip_line() {
    while (!ends() && peek() != '\n') next();
  }

  void ask(std::string name) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) asked_.push_back(std::move(name));
  }

  /// Up to the closing bracket, with what is nested; the text between.
  std::string balanced(char open, char close) {
    std::string inner;
    for (int depth = 1; !ends();) {
      const char letter = next();
      if (letter == open) ++depth;
      if (letter == close && --depth == 0) break;
      inner += letter;
    }
    return inner;
  }

  const Words* find(const std::string& name) const {
    const auto at = variables_.find(name);
    return at == variables_.end() ? nullptr : &at->second;
  }

  /// After a dollar sign: the words that it stands for, none where it is not said.
  std::optional<Words> expansion() {
    if (peek() == '(') {
      next();
      const std::string command = balanced('(', ')');
      ask("$(" + command + ")");
      return std::nullopt;
    }
    if (peek() == '{') {
      next();
      return braced(balanced('{', '}'));
    }
    if (peek() == '@' || peek() == '*' || peek() == '#' || peek() == '?' || peek() == '$' || peek() == '!' ||
        std::isdigit(static_cast<unsigned char>(peek()))) {
      ask(std::string("$") + next());
      return std::nullopt;
    }
    std::string name;
    while (is_name_letter(peek())) name += next();
    if (name.empty()) return Words{"$"};
    return named(name);
  }

  std::optional<Words> named(const std::string& name) {
    if (const Words* words = find(name)) return *words;
    ask(name);
    return std::nullopt;
  }

  /// NAME, NAME[@], NAME:-default, NAME-default, NAME:=default; what else there is (cutting, counting) is asked for.
  std::optional<Words> braced(const std::string& inner) {
    std::size_t end = 0;
    while (end < inner.size() && is_name_letter(inner[end])) ++end;
    const std::string name = inner.substr(0, end);
    std::string rest = inner.substr(end);
    if (rest == "[@]" || rest == "[*]") rest.clear();
    if (!name.empty() && rest.empty()) return named(name);
    const bool colon = rest.starts_with(':');
    if (!name.empty() && rest.size() > (colon ? 1U : 0U) &&
        (rest[colon ? 1 : 0] == '-' || rest[colon ? 1 : 0] == '=')) {
      if (depth_ >= kMostDepth) return std::nullopt;
      const Words* words = find(name);
      if (words != nullptr && !(colon && (words->empty() || words->front().empty()))) return *words;
      ShellReader fallback(std::string_view(rest).substr(colon ? 2 : 1));
      fallback.variables_ = variables_;
      fallback.depth_ = depth_ + 1;
      Words said;
      while (!fallback.ends()) {
        fallback.skip_blanks();
        if (!fallback.read_word(said)) break;
      }
      for (const std::string& unset : fallback.asked_) ask(unset);
      return said;
    }
    ask("${" + inner + "}");
    return std::nullopt;
  }

  /// One word, which may be none (an empty variable) or several (a list, or blanks in a variable without quotes); false
  /// where no word begins here.
  bool read_word(Words& words) {
    if (ends() || parts_words(peek()) || std::string_view("\n;|&()<>").find(peek()) != std::string_view::npos)
      return false;
    std::string word;
    bool is_word = false;
    const auto put = [&](const Words& several, bool quoted) {
      for (std::size_t i = 0; i < several.size(); ++i) {
        expanded_ += several[i].size() + 1;
        if (expanded_ > kMostExpanded) return;
        Words parts = quoted ? Words{several[i]} : split_words(several[i], " \t\n");
        for (std::size_t k = 0; k < parts.size(); ++k) {
          if (k > 0 || (i > 0)) {
            words.push_back(std::exchange(word, ""));
          }
          word += parts[k];
          is_word = true;
        }
      }
    };
    while (!ends()) {
      const char letter = peek();
      if (parts_words(letter) || std::string_view("\n;|&()<>").find(letter) != std::string_view::npos) break;
      next();
      if (letter == '\'') {
        is_word = true;
        while (!ends() && peek() != '\'') word += next();
        if (!ends()) next();
      } else if (letter == '"') {
        is_word = true;
        while (!ends() && peek() != '"') {
          const char inner = next();
          if (inner == '\\' && !ends()) {
            const char escaped = next();
            if (escaped == '\n') continue;
            if (std::string_view("\"\\$`").find(escaped) == std::string_view::npos) word += '\\';
            word += escaped;
          } else if (inner == '$') {
            if (const auto said = expansion())
              put(*said, true);
            else
              word += kUnset;
          } else if (inner == '`') {
            std::string command;
            while (!ends() && peek() != '`') command += next();
            if (!ends()) next();
            ask("$(" + command + ")");
            word += kUnset;
          } else {
            word += inner;
          }
        }
        if (!ends()) next();
      } else if (letter == '\\') {
        if (ends()) break;
        const char escaped = next();
        if (escaped != '\n') word += escaped, is_word = true;
      } else if (letter == '$') {
        if (const auto said = expansion())
          put(*said, false);
        else
          word += kUnset, is_word = true;
      } else if (letter == '`') {
        std::string command;
        while (!ends() && peek() != '`') command += next();
        if (!ends()) next();
        ask("$(" + command + ")");
        word += kUnset;
        is_word = true;
      } else {
        word += letter;
        is_word = true;
      }
    }
    if (is_word) words.push_back(std::move(word));
    return true;
  }

  /// NAME=(a b c)
  Words read_list() {
    Words words;
    next();
    while (!ends() && peek() != ')') {
      if (parts_words(peek()) || peek() == '\n') {
        next();
      } else if (peek() == '#') {
        skip_line();
      } else if (peek() == '\\' && (peek(1) == '\n' || peek(1) == '\r')) {
        skip_blanks();
      } else if (!read_word(words)) {
        next();
      }
    }
    if (!ends()) next();
    return words;
  }

  void skip_here_document(const std::string& end) {
    skip_line();
    while (!ends()) {
      next();
      std::string line;
      while (!ends() && peek() != '\n') line += next();
      line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
      while (!line.empty() && parts_words(line.back())) line.pop_back();
      if (line == end) return;
    }
  }

  /// "> file", "2>&1", "< file", "<<EOF"; true where one began here.
  bool skip_redirection() {
    if (peek() != '<' && peek() != '>') return false;
    const char kind = peek();
    std::size_t count = 0;
    while (peek() == kind) next(), ++count;
    if (peek() == '&' || peek() == '-') next();
    if (peek() == '(') {  // a process in the place of a file
      next();
      balanced('(', ')');
      return true;
    }
    skip_blanks();
    Words target;
    const std::vector<std::string> before = asked_;
    read_word(target);
    asked_ = before;  // where the output goes decides nothing
    if (kind == '<' && count == 2 && !target.empty()) skip_here_document(target[0]);
    return true;
  }

  void read_command() {
    ShellCommand command;
    asked_.clear();
    std::map<std::string, Words> assigned;
    bool is_first = true;  // nothing but assignments yet
    while (true) {
      skip_blanks();
      if (ends()) break;
      if (command.words.empty() && assigned.empty()) command.line = line_;
      const char letter = peek();
      if (letter == '#') {
        skip_line();
        continue;
      }
      if (letter == '\n' || letter == ';' || letter == '|' || letter == '(' || letter == ')') {
        next();
        break;
      }
      if (letter == '&') {
        next();
        if (peek() == '>') continue;
        if (peek() == '&') next();
        break;
      }
      if (skip_redirection()) continue;
      const std::size_t start = at_;
      std::size_t plain = at_;
      while (plain < text_.size() && (is_name_letter(text_[plain]) || text_[plain] == '+' || text_[plain] == '=')) {
        if (text_[plain++] == '=') break;
      }
      const std::string_view head = text_.substr(start, plain - start);
      const std::size_t end = assignment_end(head);
      const bool declares =
          !command.words.empty() && is_word_of(command.words[0], "export local declare readonly typeset env");
      if (end == head.size() && end > 0 && (is_first || declares)) {
        const bool adds = head[end - 2] == '+';
        const std::string name(head.substr(0, adds ? end - 2 : end - 1));
        at_ += end;
        Words value;
        if (peek() == '(') {
          value = read_list();
        } else {
          read_word(value);
          if (value.size() > 1) {  // an assignment does not split
            std::string joined;
            for (const std::string& part : value) joined += (joined.empty() ? "" : " ") + part;
            value = {joined};
          }
          if (value.empty()) value = {""};
        }
        const bool is_known = asked_.empty();
        asked_.clear();
        if (adds)
          if (const Words* old = find(name)) value.insert(value.begin(), old->begin(), old->end());
        if (is_known)
          assigned[name] = value;
        else
          variables_.erase(name);
        continue;
      }
      Words read;
      if (!read_word(read)) {
        next();
        continue;
      }
      if (is_first && read.size() == 1 && is_word_of(read[0], "do then else if elif while until ! { time")) continue;
      is_first = false;
      for (std::string& word : read) command.words.push_back(std::move(word));
      if (at_ < text_.size() && command.words.back().size() == 1 && (peek() == '>' || peek() == '<') &&
          std::isdigit(static_cast<unsigned char>(command.words.back()[0])))
        command.words.pop_back();  // the number of a redirection
    }
    finish(std::move(command), assigned);
  }

  void finish(ShellCommand command, const std::map<std::string, Words>& assigned) {
    const bool is_assignment =
        command.words.empty() || is_word_of(command.words[0], "export local declare readonly typeset");
    if (!command.words.empty() && command.words[0] == "for" && command.words.size() > 1)
      variables_.erase(command.words[1]);
    if (!command.words.empty() && command.words[0] == "read")
      for (const std::string& name : command.words) variables_.erase(name);
    for (const auto& [name, value] : assigned) {
      if (is_assignment) {
        variables_[name] = value;
        exported_[name] = value.empty() ? "" : value[0];
      } else {
        command.environment[name] = value.empty() ? "" : value[0];
      }
    }
    if (is_assignment || command.words.empty()) return;
    for (const auto& [name, value] : exported_) command.environment.emplace(name, value);
    command.unset = std::exchange(asked_, {});
    commands_.push_back(std::move(command));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::map<std::string, Words> variables_;
  std::map<std::string, std::string> exported_;
  std::vector<std::string> asked_;
  std::vector<ShellCommand> commands_;
  std::size_t expanded_ = 0;  ///< bytes that variables were replaced by
  int depth_ = 0;             ///< of defaults in defaults
};

}  // namespace

std::vector<ShellCommand> read_shell(std::string_view text) { return ShellReader(text).read(); }

}  // namespace oometer::importers
