#include "config/pattern.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace oometer {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
  INFO(pattern);
  const Result<Pattern> parsed = Pattern::parse(pattern);
  REQUIRE(parsed);
  return parsed->matches(text);
}

const std::string kQuery = "model.language_model.layers.12.self_attn.q_proj";

TEST_CASE("A pattern matches whole texts, as re.fullmatch does", "[config]") {
  CHECK(matches(R"(.*language_model.*\.(q_proj|k_proj|v_proj))", kQuery));
  CHECK_FALSE(matches(R"(language_model.*\.(q_proj|k_proj|v_proj))", kQuery));
  CHECK_FALSE(matches(R"(.*\.q)", kQuery));
  CHECK(matches("q_proj", "q_proj"));
  CHECK_FALSE(matches("q_proj", kQuery));
  CHECK(matches("", ""));
  CHECK(matches("a|", ""));
  CHECK(matches(R"(.*layers\.(\d|1[0-5])\..*q_proj)", kQuery));
  CHECK_FALSE(matches(R"(.*layers\.[0-9]\..*q_proj)", kQuery));
}

TEST_CASE("A text's length does not change what a pattern says of it", "[config]") {
  for (std::size_t length = 0; length <= Pattern::kLongestText; ++length) {
    const std::string text(length, 'a');
    CHECK(matches("a*", text));
    CHECK(matches("(?!.*b)(a|b){" + std::to_string(length) + "}", text));
    CHECK_FALSE(matches("a*b", text));
    CHECK_FALSE(matches("a{" + std::to_string(length + 1) + ",}", text));
  }
  CHECK_FALSE(matches("a*", std::string(Pattern::kLongestText + 1, 'a')));
}

TEST_CASE("A dot in a pattern is any character, an escaped one a dot", "[config]") {
  CHECK(matches("a.c", "abc"));
  CHECK_FALSE(matches(R"(a\.c)", "abc"));
  CHECK(matches(R"(a\.c)", "a.c"));
  CHECK_FALSE(matches("a.c", "a\nc"));
}

TEST_CASE("Quantifiers, greedy, lazy or possessive, match the same whole texts", "[config]") {
  for (const char* suffix : {"", "?"}) {
    CHECK(matches(std::string("ab*") + suffix + "c", "ac"));
    CHECK(matches(std::string("ab+") + suffix + "c", "abbbc"));
    CHECK_FALSE(matches(std::string("ab+") + suffix + "c", "ac"));
    CHECK(matches(std::string("ab{2}") + suffix + "c", "abbc"));
    CHECK_FALSE(matches(std::string("ab{2}") + suffix + "c", "abc"));
    CHECK(matches(std::string("ab{2,}") + suffix + "c", "abbbc"));
    CHECK(matches(std::string("ab{,2}") + suffix + "c", "ac"));
    CHECK_FALSE(matches(std::string("ab{1,2}") + suffix + "c", "abbbc"));
  }
  CHECK(matches("(ab|c){2,3}", "abcab"));
  CHECK(matches("(a|b?){3}", "ab"));
  CHECK(matches("a{x}", "a{x}"));
}

TEST_CASE("Classes, with ranges, categories and opposites", "[config]") {
  CHECK(matches("[qkv]_proj", "k_proj"));
  CHECK_FALSE(matches("[^qkv]_proj", "k_proj"));
  CHECK(matches(R"([\w.]+)", kQuery));
  CHECK(matches("[]a]", "]"));
  CHECK(matches("[a-]", "-"));
  CHECK(matches(R"([\d\-]+)", "1-2"));
  CHECK(matches(R"(\D\S\W)", "ab."));
}

TEST_CASE("Lookaheads, anchors and word boundaries take no characters", "[config]") {
  CHECK(matches(R"(^(?!.*vision_tower).*(?:q_proj|v_proj)$)", kQuery));
  CHECK_FALSE(matches(R"(^(?!.*vision_tower).*(?:q_proj|v_proj)$)", "vision_tower.layers.0.q_proj"));
  CHECK(matches(R"((?=.*layers)model.*)", kQuery));
  CHECK(matches(R"(.*\bq_proj)", kQuery));
  CHECK_FALSE(matches(R"(.*\bproj)", kQuery));
  CHECK(matches(R"(\Amodel.*\Z)", kQuery));
  CHECK(matches(R"((?P<name>a)b)", "ab"));
}

TEST_CASE("What a pattern cannot say is an error that says where", "[config]") {
  for (const char* wrong : {"(", ")", "[a", "*", "a**b)", "a{3,2}", R"(\)", R"(\1)", "(?<=a)b", "(?i)a", "[z-a]", "a|*",
                            "(?P<a", "(((a*)*)*)", "(?!(?=a))", "(?!a)*", "a{2000}", R"(\p)", R"([\)"}) {
    INFO(wrong);
    const Result<Pattern> parsed = Pattern::parse(wrong);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message.find("at character") != std::string::npos);
  }
  CHECK_FALSE(Pattern::parse(std::string(2000, 'a')));
  CHECK_FALSE(Pattern::parse(std::string(100, '(')));
}

TEST_CASE("Patterns that hang a backtracking engine do not hang this one", "[config]") {
  const std::string text(200, 'a');
  CHECK_FALSE(matches("(a+)+b", text));
  CHECK_FALSE(matches("(a|a)*b", text));
  CHECK_FALSE(matches("(.*){1000}b", text));
  CHECK_FALSE(matches("((a|){1000}){1000}b", text));
  CHECK_FALSE(matches(".*", std::string(300, 'a')));  // longer than any path
}

}  // namespace
}  // namespace oometer
