#include "job/eval_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach::job {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EvalText, SplitsDocuments) {
  const std::string_view text = "\n\na\nb\n\n\n\nc\n\nd\n";
  EXPECT_THAT(split_documents(text, DocumentSplit::whole), ElementsAre(text));
  EXPECT_THAT(split_documents(text, DocumentSplit::blank_lines), ElementsAre("a\nb", "c", "d\n"));
  EXPECT_THAT(split_documents(text, DocumentSplit::lines), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(split_documents("one", DocumentSplit::lines), ElementsAre("one"));
  for (const auto split :
       {DocumentSplit::whole, DocumentSplit::blank_lines, DocumentSplit::lines}) {
    EXPECT_THAT(split_documents("", split), IsEmpty());
  }
  EXPECT_THAT(split_documents("\n\n\n", DocumentSplit::lines), IsEmpty());
}

// Values of Python 3.11: len(re.split(r"\s+", text)) and len(text.rstrip().encode()).
TEST(EvalText, CountsWordsAndTrailingSpaceAsPythonDoes) {
  struct Case {
    std::string text;
    std::int64_t words;
    std::size_t size;
  };
  const std::vector<Case> cases = {{"", 1, 0},          {"a", 1, 1},
                                   {"a b", 2, 3},       {" a b ", 4, 4},
                                   {"a\n\nb\tc", 3, 6}, {"\u3000x", 2, 4},
                                   {"a\u00a0b", 2, 4},  {"a\u200bb", 1, 5},
                                   {"x\x1cy", 2, 3},    {"x\u0085y\u2029z", 3, 8},
                                   {"  ", 2, 0},        {"\u00e9\u2003", 2, 2}};
  for (const auto& one : cases) {
    EXPECT_EQ(count_words(one.text), one.words) << one.text;
    EXPECT_EQ(size_without_trailing_space(one.text), one.size) << one.text;
  }
}

}  // namespace
}  // namespace stagecoach::job
