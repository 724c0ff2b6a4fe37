#include "job/eval_items.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/error.hpp"
#include "unit/job/tiny_tokenizer.hpp"

namespace stagecoach::job {
namespace {

using stagecoach::testing::tiny_tokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Reader = EvalItems (*)(std::istream&, const std::string&, const EvalReading&);

class EvalItemsTest : public ::testing::Test {
 protected:
  EvalItemsTest() {
    spec_.vocab = 2048;
    spec_.max_positions = 16;
    spec_.bos_token = 2;
  }

  EvalItems read(Reader reader, const std::string& text, OnError on_error = OnError::stop) {
    std::istringstream in(text);
    return reader(in, "in.jsonl", {spec_, tokenizer_, on_error, log_});
  }

  ScoredTokens last_word(const std::string& line) {
    return read(read_last_words, line).items.at(0).scored;
  }

  ScoredTokens continuation(const std::string& fields) {
    return read(read_continuations, "{\"id\":1," + fields + "}").items.at(0).scored;
  }

  std::string failure(Reader reader, const std::string& text) {
    try {
      read(reader, text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  model::ModelSpec spec_;
  const model::Tokenizer* tokenizer_ = &tiny_tokenizer();
  Log log_{"", "off"};
};

// Token ids of "Hello world" and " leading": tests/data/tiny_opt_reference.json.
TEST_F(EvalItemsTest, TheLastWordIsScoredWithItsSpace) {
  EXPECT_EQ(last_word(R"({"text": "Hello world leading", "domain": 7})"),
            (ScoredTokens{{2, 76, 576, 115, 1163, 304, 919, 294}, 5}));
  EXPECT_EQ(last_word(R"({"text": "\n leading"})").score_from, 2) << "a newline is context";
  EXPECT_EQ(last_word(R"({"text": " leading"})"), (ScoredTokens{{2, 304, 919, 294}, 1}));
}

TEST_F(EvalItemsTest, LinesWithoutALastWordAreRefused) {
  for (const char* line : {R"({"text": "word"})", R"({"text": "two words "})", R"({"text": ""})"}) {
    EXPECT_THAT(failure(read_last_words, line), HasSubstr("in.jsonl:1: \"text\" has no last word"));
  }
  EXPECT_THAT(failure(read_last_words, R"({"words": "a b"})"), HasSubstr("there is no \"text\""));
  EXPECT_THAT(failure(read_last_words, R"({"text": 7})"), HasSubstr("must be a string"));
  EXPECT_THAT(failure(read_last_words, "\n[1]"), StartsWith("in.jsonl:2: not a JSON object"));
}

TEST_F(EvalItemsTest, ContextAndContinuationAreTokensOfTheWhole) {
  const ScoredTokens expected{{2, 76, 576, 115, 1163, 304, 919, 294}, 5};
  EXPECT_EQ(continuation(R"("context": "Hello world", "continuation": " leading")"), expected);
  EXPECT_EQ(continuation(R"("context": "Hello world ", "continuation": "leading")"), expected)
      << "the space at the context's end goes to the continuation";
  EXPECT_EQ(continuation(R"("context": "", "continuation": " leading")"),
            (ScoredTokens{{2, 304, 919, 294}, 1}));
  // "Hell" is other tokens than the whole begins with; the rest is counted off, not searched for.
  const auto hell = tokenizer_->encode("Hell");
  const auto hello = tokenizer_->encode("Hello world");
  ASSERT_LT(hell.size(), hello.size());
  const auto inside = continuation(R"("context": "Hell", "continuation": "o world")");
  EXPECT_EQ(static_cast<std::size_t>(inside.score_from), 1 + hell.size());
  EXPECT_TRUE(std::equal(inside.tokens.begin() + inside.score_from, inside.tokens.end(),
                         hello.begin() + static_cast<std::ptrdiff_t>(hell.size()), hello.end()));
}

TEST_F(EvalItemsTest, TokenIdsAreTakenAsTheyAre) {
  EXPECT_EQ(continuation(R"("context_token_ids": [5, 6], "continuation_token_ids": [7])"),
            (ScoredTokens{{5, 6, 7}, 2}));
  EXPECT_EQ(continuation(R"("context_token_ids": [2], "continuation": " leading")"),
            (ScoredTokens{{2, 304, 919, 294}, 1}));
  EXPECT_EQ(continuation(R"("context": "Hello world", "continuation_token_ids": [9])"),
            (ScoredTokens{{2, 76, 576, 115, 1163, 9}, 5}));
}

TEST_F(EvalItemsTest, IdsStayAsTheyCameAndDiffer) {
  const std::string rest = R"("context_token_ids": [2], "continuation_token_ids": [3]})";
  const auto items =
      read(read_continuations, "{\"id\":\"a\"," + rest + "\n{\"id\":-7," + rest).items;
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].id.text, "a");
  EXPECT_FALSE(items[0].id.is_number);
  EXPECT_EQ(items[1].id.text, "-7");
  EXPECT_TRUE(items[1].id.is_number);
  EXPECT_THAT(failure(read_continuations, "{\"id\":\"7\"," + rest + "\n{\"id\":7," + rest),
              HasSubstr("in.jsonl:2: id"));
}

TEST_F(EvalItemsTest, BadContinuationsSayWhatIsWrong) {
  const auto refused = [&](const std::string& fields) {
    return failure(read_continuations, "{\"id\":1," + fields + "}");
  };
  EXPECT_THAT(refused(R"("context": "a")"), HasSubstr("neither of \"continuation\""));
  EXPECT_THAT(refused(R"("context": "a", "context_token_ids": [2], "continuation": "b")"),
              HasSubstr("each of \"context\""));
  EXPECT_THAT(refused(R"("context": "a", "continuation": "")"), HasSubstr("nothing to score"));
  EXPECT_THAT(refused(R"("context": "a", "continuation_token_ids": [])"),
              HasSubstr("at least one token id"));
  EXPECT_THAT(refused(R"("context": "a", "continuation_token_ids": [2048])"),
              HasSubstr("0 to 2047"));
  EXPECT_THAT(refused(R"("context": "a", "continuation": "b", "answer": 1)"),
              HasSubstr("unknown key \"answer\""));
  tokenizer_ = nullptr;
  EXPECT_THAT(refused(R"("context": "a", "continuation": "b")"), HasSubstr("no tokenizer"));
}

TEST_F(EvalItemsTest, OneTokenMoreThanTheModelTakesFits) {
  const auto fields = [](int size) {
    std::string ids = "2";
    for (int i = 1; i < size; ++i) {
      ids += ",3";
    }
    return "\"context_token_ids\": [" + ids + "], \"continuation_token_ids\": [4]";
  };
  EXPECT_EQ(continuation(fields(16)).tokens.size(), 17u);
  EXPECT_THAT(failure(read_continuations, "{\"id\":1," + fields(17) + "}"),
              HasSubstr("17 tokens before the last one, and the model takes 16; shorten the "
                        "context by 1"));
}

TEST_F(EvalItemsTest, BadLinesCanBeSkipped) {
  const auto read_all =
      read(read_last_words, "{\"text\":\"a b\"}\nnonsense\n\n{\"text\":\"c d\"}\n", OnError::skip);
  EXPECT_EQ(read_all.items.size(), 2u);
  EXPECT_EQ(read_all.skipped, 1);
}

}  // namespace
}  // namespace stagecoach::job
