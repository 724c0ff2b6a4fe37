#include "job/text_assembler.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/utf8.hpp"
#include "unit/job/tiny_tokenizer.hpp"

namespace stagecoach::job {
namespace {

using testing::tiny_tokenizer;
using Ids = std::vector<std::int32_t>;
using Stops = std::vector<std::string>;

/// One token for each byte of `text`.
Ids byte_tokens(std::string_view text) {
  Ids tokens;
  for (const char byte : text) {
    for (std::int32_t token = 0; token < 300; ++token) {
      if (tiny_tokenizer().token_bytes(token) == std::string(1, byte)) {
        tokens.push_back(token);
        break;
      }
    }
  }
  EXPECT_EQ(tokens.size(), text.size());
  return tokens;
}

std::string assemble(const Ids& tokens, const Stops& stop = {}) {
  TextAssembler assembler(&tiny_tokenizer(), stop);
  for (const auto token : tokens) {
    assembler.push(token);
    EXPECT_EQ(model::find_invalid_utf8(assembler.text()), std::string_view::npos);
  }
  assembler.finish();
  return assembler.text();
}

TEST(TextAssemblerTest, JoinsBytesOfACharacterAcrossTokens) {
  TextAssembler assembler(&tiny_tokenizer(), {});
  const auto tokens = byte_tokens("a日👍");
  Stops seen;
  for (const auto token : tokens) {
    EXPECT_FALSE(assembler.push(token));
    seen.push_back(assembler.text());
  }
  EXPECT_EQ(seen, Stops({"a", "a", "a", "a日", "a日", "a日", "a日", "a日👍"}));
}

TEST(TextAssemblerTest, AnIncompleteEndBecomesOneReplacementCharacter) {
  for (const std::string text :
       {"ok \xe6\x97", "\xf0\x9f\x92", "\xff\xc3", "\xe6\x97\xf0\x9f", "\xed\xa0"}) {
    const auto tokens = byte_tokens(text);
    EXPECT_EQ(assemble(tokens), tiny_tokenizer().decode(tokens));
    EXPECT_EQ(assemble(tokens), model::replace_invalid_utf8(text));
  }
}

TEST(TextAssemblerTest, AgreesWithDecodeOnRandomTokens) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    Ids tokens;
    for (int i = 0; i < 60; ++i) {
      // Mostly single bytes, so that broken UTF-8 is common.
      tokens.push_back(static_cast<std::int32_t>(random() % (i % 3 == 0 ? 2060 : 260)));
    }
    ASSERT_EQ(assemble(tokens), tiny_tokenizer().decode(tokens));
  }
}

TEST(TextAssemblerTest, SpecialTokensHaveNoText) {
  EXPECT_EQ(assemble({2}), "");
  auto tokens = byte_tokens("日");
  tokens.insert(tokens.begin() + 1, 2);
  EXPECT_EQ(assemble(tokens), "日");
}

TEST(TextAssemblerTest, StopsAtAStringThatSpansTokens) {
  const auto tokens = byte_tokens("and God said, Let there be light");
  TextAssembler assembler(&tiny_tokenizer(), Stops{"said, Let"});
  std::size_t pushed = 0;
  while (pushed < tokens.size() && !assembler.push(tokens[pushed])) {
    ++pushed;
  }
  EXPECT_EQ(pushed, std::string("and God said, Le").size()) << "stops at the last byte, no later";
  EXPECT_TRUE(assembler.stopped());
  EXPECT_EQ(assembler.text(), "and God ");
  EXPECT_TRUE(assembler.push(tokens[0])) << "what comes after the stop is ignored";
  assembler.finish();
  EXPECT_EQ(assembler.text(), "and God ");
}

TEST(TextAssemblerTest, AStopStringInsideOneTokenCutsThere) {
  const auto tokens = tiny_tokenizer().encode("the LORD spake");
  EXPECT_EQ(assemble(tokens, {"ORD"}), "the L");
  EXPECT_EQ(assemble(tokens, {"t"}), "");
  EXPECT_EQ(assemble(tokens, {"spake"}), "the LORD ");
  EXPECT_EQ(assemble(tokens, {"x", "yz"}), "the LORD spake");
}

TEST(TextAssemblerTest, TheFirstCompleteStopStringWinsWhereverTokensAreCut) {
  struct Case {
    std::string text;
    Stops stop;
    std::string result;
  };
  const Case cases[] = {
      {"xabcd", {"abc", "b"}, "xa"},  // "b" is complete before "abc"
      {"xabcd", {"bc", "abc"}, "x"},  // complete together: the longest
      {"aaab", {"aab"}, "a"},         // needs the border of what matched
      {"abababc", {"ababc"}, "ab"},
      {"ababababd", {"abababd"}, "ab"},
      {"aabaaabaaac", {"aabaaac"}, "aaba"},
      {"mississippi", {"issip"}, "miss"},
      {"日本語テキスト", {"語テ"}, "日本"},
      {"no stop here", {"stopp"}, "no stop here"},
      {"end", {"end of"}, "end"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(assemble(byte_tokens(one.text), one.stop), one.result) << one.text;
    EXPECT_EQ(assemble(tiny_tokenizer().encode(one.text), one.stop), one.result) << one.text;
  }
}

TEST(TextAssemblerTest, AgreesWithASearchOfTheWholeText) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](unsigned longest) {
      std::string text;
      for (auto left = 1 + random() % longest; left > 0; --left) {
        text += static_cast<char>('a' + random() % 2);
      }
      return text;
    };
    const auto text = word(40);
    const Stops stop = {word(6), word(6), word(9)};
    // The earliest end, then the longest.
    std::optional<std::size_t> end;
    std::size_t length = 0;
    for (const auto& one : stop) {
      const auto at = text.find(one);
      if (at == std::string::npos) {
        continue;
      }
      const auto this_end = at + one.size();
      if (!end || this_end < *end || (this_end == *end && one.size() > length)) {
        end = this_end;
        length = one.size();
      }
    }
    ASSERT_EQ(assemble(byte_tokens(text), stop), end ? text.substr(0, *end - length) : text);
  }
}

TEST(TextAssemblerTest, AReplacementCharacterAtTheEndMayCompleteAStopString) {
  EXPECT_EQ(assemble(byte_tokens("ab\xe6\x97"), {"b\ufffd"}), "a");
}

TEST(TextAssemblerTest, WithoutATokenizerTextIsEmpty) {
  TextAssembler assembler(nullptr, {});
  EXPECT_FALSE(assembler.push(100));
  assembler.finish();
  EXPECT_EQ(assembler.text(), "");
}

TEST(TextAssemblerTest, TakesLinearTime) {
  const auto token = byte_tokens("a").front();
  // The worst case of a naive search: everything matches but the last byte.
  const Stops stop = {std::string(20000, 'a') + "b"};
  const auto start = std::chrono::steady_clock::now();
  TextAssembler assembler(&tiny_tokenizer(), stop);
  for (int i = 0; i < 1000000; ++i) {
    assembler.push(token);
  }
  EXPECT_EQ(assembler.text().size(), 1000000u);
  // A tenth of a second; searching again for each token takes minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace stagecoach::job
