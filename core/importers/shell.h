#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Shell scripts, read and never executed: words by the shell's rules of quoting, variables that the script sets.
namespace oometer::importers {

/// Stands in a word for what is not known.
inline constexpr char kUnset = '\x01';

struct ShellCommand {
  std::map<std::string, std::string> environment;  ///< assignments before it, and those of the script
  std::vector<std::string> words;
  /// Variables and substitutions that its words use and the script does not say, "MODEL", "$(nproc)".
  std::vector<std::string> unset;
  int line = 1;
};

/// The commands of a script. Variables are replaced by what the script gave them last; one that a loop or `read` sets,
/// and what a command would print, is unset. Here-documents are passed over.
std::vector<ShellCommand> read_shell(std::string_view text);

}  // namespace oometer::importers
