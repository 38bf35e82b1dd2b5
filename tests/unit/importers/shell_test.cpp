#include "importers/shell.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using oometer::importers::read_shell;
using oometer::importers::ShellCommand;
using Words = std::vector<std::string>;

namespace {

Words words_of(const std::string& text) {
  const std::vector<ShellCommand> commands = read_shell(text);
  return commands.empty() ? Words() : commands.back().words;
}

}  // namespace

TEST_CASE("a shell line is split by its quotes", "[importers]") {
  CHECK(words_of("a 'b c' \"d e\" f\\ g h'i'\"j\"") == Words{"a", "b c", "d e", "f g", "hij"});
  CHECK(words_of("a \\\n  b \\\r\n c # no d") == Words{"a", "b", "c"});
  CHECK(words_of("a \"q\\\"r\" '$x' \"\\$x\"") == Words{"a", "q\"r", "$x", "$x"});
  CHECK(words_of("a '' b") == Words{"a", "", "b"});
  CHECK(words_of("run a >out.log 2>&1 < in") == Words{"run", "a"});
  CHECK(words_of("run a#b") == Words{"run", "a#b"});
}

TEST_CASE("commands end where the shell's do", "[importers]") {
  const auto commands = read_shell("a 1; b 2 && c 3 | d 4 &\nif true; then e 5; fi");
  REQUIRE(commands.size() >= 5);
  CHECK(commands[0].words == Words{"a", "1"});
  CHECK(commands[1].words == Words{"b", "2"});
  CHECK(commands[2].words == Words{"c", "3"});
  CHECK(commands[3].words == Words{"d", "4"});
  CHECK(commands[5].words == Words{"e", "5"});
  CHECK(read_shell("\n\na\n")[0].line == 3);
}

TEST_CASE("variables that a script sets are replaced", "[importers]") {
  CHECK(words_of("M=Qwen/Qwen3-8B\nrun --model $M \"${M}-x\"") ==
        Words{"run", "--model", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B-x"});
  CHECK(words_of("A='--x 1 --y 2'\nrun $A \"$A\"") == Words{"run", "--x", "1", "--y", "2", "--x 1 --y 2"});
  CHECK(words_of("A=(--x 1 # one\n --y \"2 3\")\nA+=(--z)\nrun \"${A[@]}\"") ==
        Words{"run", "--x", "1", "--y", "2 3", "--z"});
  CHECK(words_of("run ${N:-4} ${M-a}") == Words{"run", "4", "a"});
  CHECK(words_of("N=2\nrun ${N:-4}") == Words{"run", "2"});
  const auto commands = read_shell("export A=1\nB=2\nC=3 run");
  REQUIRE(commands.size() == 1);
  CHECK(commands[0].environment.at("A") == "1");
  CHECK(commands[0].environment.at("C") == "3");
}

TEST_CASE("what a script does not say is asked for, and nothing is run", "[importers]") {
  const auto unset = [](const std::string& text) { return read_shell(text).back().unset; };
  CHECK(unset("run $M ${N}") == Words{"M", "N"});
  CHECK(unset("run $(nproc) `hostname`") == Words{"$(nproc)", "$(hostname)"});
  CHECK(unset("N=$(nproc)\nrun $N") == Words{"N"});
  CHECK(unset("M=a\nfor M in a b; do\nrun $M\ndone\nrun $M") == Words{"M"});
  CHECK(unset("run ${M%%/*}") == Words{"${M%%/*}"});
  CHECK(unset("cd $HERE\nrun a").empty());
}

TEST_CASE("scripts that grow by themselves are cut, broken ones end", "[importers]") {
  std::string bomb = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 60; ++i) bomb += "A=$A$A\n";
  CHECK(read_shell(bomb + "run $A").size() == 1);
  std::string deep;
  for (int i = 0; i < 20000; ++i) deep += "${A:-";
  read_shell("run " + deep);
  for (const char* broken : {"'", "\"", "$(", "${", "a=(", "`", "\\", "<<", "<<E", "$", "a <", ")", ";;", "&>"})
    read_shell(broken);
  CHECK(words_of("cat <<EOF\nrun b\nEOF\nrun a") == Words{"run", "a"});
}
