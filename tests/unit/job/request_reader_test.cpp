#include "job/request_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/error.hpp"
#include "support/temp_folder.hpp"
#include "unit/job/tiny_tokenizer.hpp"

namespace stagecoach::job {
namespace {

using stagecoach::testing::tiny_tokenizer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Ids = std::vector<std::int32_t>;

model::ModelSpec tiny_spec() {
  model::ModelSpec spec;
  spec.vocab = 2048;
  spec.max_positions = 512;
  spec.bos_token = 2;
  return spec;
}

class RequestReaderTest : public ::testing::Test {
 protected:
  RequestList read(const std::string& text, OnError on_error = OnError::stop) {
    std::istringstream in(text);
    return read_requests(in, "prompts.jsonl", defaults_, spec_, tokenizer_, on_error, log_);
  }

  Request read_one(const std::string& line) {
    const auto list = read(line);
    EXPECT_EQ(list.requests.size(), 1u) << line;
    return list.requests.empty() ? Request{} : list.requests.front();
  }

  std::string failure(const std::string& text) {
    try {
      read(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  RequestDefaults defaults_;
  model::ModelSpec spec_ = tiny_spec();
  const model::Tokenizer* tokenizer_ = &tiny_tokenizer();
  Log log_{"", "warning"};
};

TEST_F(RequestReaderTest, ReadsEveryField) {
  const auto request =
      read_one(R"({"id": "a", "prompt": "And God said", "max_new_tokens": 7, "temperature": 0.5,)"
               R"( "top_k": 40, "top_p": 0.9, "seed": 18446744073709551615, "stop": ["x", "yz"],)"
               R"( "ignore_eos": true})");
  EXPECT_EQ(request.id, "a");
  EXPECT_FALSE(request.id_is_number);
  EXPECT_EQ(request.prompt, "And God said");
  EXPECT_EQ(request.max_new_tokens, 7);
  EXPECT_EQ(request.temperature, 0.5);
  EXPECT_EQ(request.top_k, 40);
  EXPECT_EQ(request.top_p, 0.9);
  EXPECT_EQ(request.seed, 18446744073709551615u);
  EXPECT_THAT(request.stop, ElementsAre("x", "yz"));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.line, 1);
}

TEST_F(RequestReaderTest, TakesDefaultsForWhatIsLeftOut) {
  defaults_ = {.max_new_tokens = 9,
               .temperature = 0.25,
               .top_k = 3,
               .top_p = 0.5,
               .seed = 77,
               .stop = {"Amen"},
               .ignore_eos = true};
  for (
      const char* line :
      {R"({"id": 1, "prompt": "x"})",
       R"({"id": 1, "prompt": "x", "max_new_tokens": null, "temperature": null, "top_k": null,)"
       R"( "top_p": null, "seed": null, "stop": null, "ignore_eos": null, "prompt_token_ids": null})"}) {
    const auto request = read_one(line);
    EXPECT_EQ(request.max_new_tokens, 9);
    EXPECT_EQ(request.temperature, 0.25);
    EXPECT_EQ(request.top_k, 3);
    EXPECT_EQ(request.top_p, 0.5);
    EXPECT_EQ(request.seed, 77u);
    EXPECT_THAT(request.stop, ElementsAre("Amen"));
    EXPECT_TRUE(request.ignore_eos);
  }
  EXPECT_THAT(read_one(R"({"id": 1, "prompt": "x", "stop": []})").stop, ElementsAre());
  EXPECT_THAT(read_one(R"({"id": 1, "prompt": "x", "stop": "."})").stop, ElementsAre("."));
}

TEST_F(RequestReaderTest, APromptGetsALeadingEndOfText) {
  const auto request = read_one(R"({"id": "a", "prompt": "Hello world"})");
  EXPECT_EQ(request.prompt, "Hello world");
  EXPECT_THAT(request.prompt_tokens, ElementsAre(2, 76, 576, 115, 1163));
  EXPECT_THAT(read_one(R"({"id": "a", "prompt": ""})").prompt_tokens, ElementsAre(2));
  EXPECT_THAT(read_one(R"({"id": "a", "prompt": "</s>"})").prompt_tokens, ElementsAre(2, 2));
}

TEST_F(RequestReaderTest, PromptTokenIdsStayAsTheyAre) {
  const auto request = read_one(R"({"id": "a", "prompt_token_ids": [76, 0, 2047]})");
  EXPECT_FALSE(request.prompt.has_value());
  EXPECT_THAT(request.prompt_tokens, ElementsAre(76, 0, 2047));
}

TEST_F(RequestReaderTest, IdsAreStringsOrWholeNumbers) {
  EXPECT_EQ(read_one(R"({"id": "07", "prompt": ""})").id, "07");
  EXPECT_FALSE(read_one(R"({"id": "07", "prompt": ""})").id_is_number);
  EXPECT_EQ(read_one(R"({"id": -7, "prompt": ""})").id, "-7");
  EXPECT_TRUE(read_one(R"({"id": -7, "prompt": ""})").id_is_number);
  EXPECT_EQ(read_one(R"({"id": 18446744073709551615, "prompt": ""})").id, "18446744073709551615");
  for (const char* id : {"1.5", "true", "[1]", "{}", "18446744073709551616", "1e3"}) {
    EXPECT_THAT(failure(std::string(R"({"prompt": "", "id": )") + id + "}"),
                AllOf(StartsWith("prompts.jsonl:1: \"id\""), HasSubstr("string")))
        << id;
  }
  EXPECT_THAT(failure(R"({"prompt": ""})"), HasSubstr("no \"id\""));
  EXPECT_THAT(failure(R"({"prompt": "", "id": null})"), HasSubstr("no \"id\""));
}

TEST_F(RequestReaderTest, RepeatedIdsNameBothLines) {
  EXPECT_THAT(failure("{\"id\":\"a\",\"prompt\":\"\"}\n\n{\"id\":\"b\",\"prompt\":\"\"}\n"
                      "{\"id\":\"a\",\"prompt\":\"\"}\n"),
              AllOf(StartsWith("prompts.jsonl:4: id \"a\""), HasSubstr("line 1")));
  // Results and random numbers go by the text of an id.
  EXPECT_THAT(failure("{\"id\":\"7\",\"prompt\":\"\"}\n{\"id\":7,\"prompt\":\"\"}"),
              AllOf(StartsWith("prompts.jsonl:2: "), HasSubstr("line 1")));
}

TEST_F(RequestReaderTest, BlankLinesCarriageReturnsAndAByteOrderMarkAreFine) {
  const auto list = read(
      "\xef\xbb\xbf{\"id\":1,\"prompt\":\"a\"}\r\n\r\n  \t\n{\"id\":2,\"prompt\":\"b\"}\r\n\n"
      " {\"id\":3,\"prompt\":\"c\"} ");
  ASSERT_EQ(list.requests.size(), 3u);
  EXPECT_EQ(list.requests[0].line, 1);
  EXPECT_EQ(list.requests[1].line, 4);
  EXPECT_EQ(list.requests[2].line, 6);
  EXPECT_EQ(list.requests[1].prompt, "b");
  EXPECT_EQ(list.skipped, 0);
  EXPECT_TRUE(read("").requests.empty());
  EXPECT_TRUE(read("\n\n").requests.empty());
}

TEST_F(RequestReaderTest, ExactlyOneKindOfPrompt) {
  EXPECT_THAT(failure(R"({"id": 1})"), HasSubstr("neither"));
  EXPECT_THAT(failure(R"({"id": 1, "prompt": "a", "prompt_token_ids": [1]})"), HasSubstr("each"));
}

TEST_F(RequestReaderTest, UnknownAndRepeatedKeysAreNamed) {
  EXPECT_THAT(failure(R"({"id": 1, "prompt": "a", "max_tokens": 5})"),
              AllOf(HasSubstr("\"max_tokens\""), HasSubstr("max_new_tokens")));
  EXPECT_THAT(failure(R"({"id": 1, "prompt": "a", "prompt": "b"})"), HasSubstr("\"prompt\""));
}

TEST_F(RequestReaderTest, WrongTypesAndRangesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {{"prompt", "7"},
                                                       {"prompt", "[\"a\"]"},
                                                       {"max_new_tokens", "0"},
                                                       {"max_new_tokens", "-1"},
                                                       {"max_new_tokens", "1.0"},
                                                       {"max_new_tokens", "\"5\""},
                                                       {"max_new_tokens", "9223372036854775808"},
                                                       {"temperature", "-0.1"},
                                                       {"temperature", "\"0\""},
                                                       {"temperature", "true"},
                                                       {"top_k", "-1"},
                                                       {"top_k", "2147483648"},
                                                       {"top_k", "1.5"},
                                                       {"top_p", "0"},
                                                       {"top_p", "1.01"},
                                                       {"top_p", "[]"},
                                                       {"seed", "-1"},
                                                       {"seed", "1.5"},
                                                       {"seed", "18446744073709551616"},
                                                       {"stop", "5"},
                                                       {"stop", "\"\""},
                                                       {"stop", "[\"a\", \"\"]"},
                                                       {"stop", "[5]"},
                                                       {"stop", "{}"},
                                                       {"ignore_eos", "1"},
                                                       {"ignore_eos", "\"yes\""}};
  for (const auto& [key, value] : cases) {
    const auto prompt = std::string(key) == "prompt" ? "" : R"(, "prompt": "a")";
    const auto line = std::string(R"({"id": 1)") + prompt + ", \"" + key + "\": " + value + "}";
    EXPECT_THAT(failure("\n" + line),
                AllOf(StartsWith(std::string("prompts.jsonl:2: \"") + key + "\""),
                      HasSubstr("must be"), Not(HasSubstr("\n"))))
        << line;
  }
  EXPECT_THAT(failure(R"({"id": 1, "prompt": "a", "temperature": 1e999})"), HasSubstr("1e999"));
}

TEST_F(RequestReaderTest, TokenIdsMustBeInTheVocabulary) {
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": [5, 2048]})"),
              AllOf(HasSubstr("\"prompt_token_ids\"[1] is 2048"), HasSubstr("2047")));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": [-1]})"), HasSubstr("[0] is -1"));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": [1.0]})"), HasSubstr("[0] is 1.0"));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": ["a"]})"), HasSubstr("[0] is \"a\""));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": [18446744073709551615]})"),
              HasSubstr("[0] is 18446744073709551615"));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": []})"), HasSubstr("at least one"));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": "1"})"), HasSubstr("at least one"));
}

TEST_F(RequestReaderTest, NewTokensAreCutToTheContext) {
  spec_.max_positions = 8;
  EXPECT_EQ(
      read_one(R"({"id": 1, "prompt_token_ids": [1,2,3], "max_new_tokens": 4})").max_new_tokens, 4);
  EXPECT_EQ(
      read_one(R"({"id": 1, "prompt_token_ids": [1,2,3], "max_new_tokens": 5})").max_new_tokens, 5);
  EXPECT_EQ(
      read_one(R"({"id": 1, "prompt_token_ids": [1,2,3], "max_new_tokens": 6})").max_new_tokens, 5);
  EXPECT_EQ(read_one(R"({"id": 1, "prompt_token_ids": [1,2,3,4,5,6,7]})").max_new_tokens, 1);
  EXPECT_EQ(
      read_one(R"({"id": 1, "prompt": "", "max_new_tokens": 9223372036854775807})").max_new_tokens,
      7);
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": [1,2,3,4,5,6,7,8]})"),
              AllOf(HasSubstr("8 tokens"), HasSubstr("takes 8"), HasSubstr("shorten it by 1")));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": [1,2,3,4,5,6,7,8,9,10]})"),
              HasSubstr("shorten it by 3"));
}

TEST_F(RequestReaderTest, AModelWithoutATokenizerTakesTokenIdsOnly) {
  tokenizer_ = nullptr;
  EXPECT_THAT(read_one(R"({"id": 1, "prompt_token_ids": [5]})").prompt_tokens, ElementsAre(5));
  EXPECT_THAT(failure(R"({"id": 1, "prompt": "a"})"), HasSubstr("no tokenizer"));
  EXPECT_THAT(failure(R"({"id": 1, "prompt_token_ids": [5], "stop": "a"})"),
              HasSubstr("stop strings"));
}

TEST_F(RequestReaderTest, BrokenJsonNamesTheLineAndColumn) {
  EXPECT_THAT(failure("{\"id\":1,\"prompt\":\"a\"}\n{\"id\":2,\"prompt\":}\n"),
              AllOf(StartsWith("prompts.jsonl:2: not valid JSON (column 18: "),
                    Not(HasSubstr("\n")), Not(HasSubstr("json.exception"))));
  for (const char* line : {"[]", "7", "\"text\"", "null", "just text", "{\"id\":1,\"prompt\":\"a\"",
                           "{\"id\":1,\"prompt\":\"a\"} {}", "{\"id\":1,\"prompt\":\"\xff\"}",
                           "{\"id\":1,\"prompt\":\"\\ud800\"}", "{'id':1}"}) {
    EXPECT_THAT(failure(line), StartsWith("prompts.jsonl:1: not ")) << line;
  }
  const auto long_error = failure("{\"id\":1,\"prompt\":\"" + std::string(1000000, 'x'));
  EXPECT_THAT(long_error, StartsWith("prompts.jsonl:1: not valid JSON"));
  EXPECT_LT(long_error.size(), 500u);
}

TEST_F(RequestReaderTest, DepthAndLengthAreHarmless) {
  EXPECT_THAT(failure(std::string(5000000, '[')), StartsWith("prompts.jsonl:1: "));
  std::string nested = R"({"id":1,"prompt":"a","stop":)";
  for (int i = 0; i < 1000000; ++i) {
    nested += "{\"a\":";
  }
  EXPECT_THAT(failure(nested), HasSubstr("nested too deeply"));
  EXPECT_THAT(failure(R"({"id":1,"prompt_token_ids":[[1]]})"), HasSubstr("nested too deeply"));
  spec_.max_positions = 10000000;
  EXPECT_EQ(read_one("{\"id\":1,\"prompt\":\"" + std::string(5000000, 'x') + "\"}").prompt->size(),
            5000000u);
}

TEST_F(RequestReaderTest, SkippingLogsAndCountsBadLines) {
  ::testing::internal::CaptureStderr();
  const auto list = read(
      "{\"id\":1,\"prompt\":\"a\"}\nbroken\n{\"id\":1,\"prompt\":\"again\"}\n"
      "{\"id\":3,\"prompt\":\"c\",\"top_p\":2}\n{\"id\":3,\"prompt\":\"c\"}\n",
      OnError::skip);
  const auto logged = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(list.requests.size(), 2u);
  EXPECT_EQ(list.requests[1].id, "3") << "a bad line does not take its id";
  EXPECT_EQ(list.requests[1].line, 5);
  EXPECT_EQ(list.skipped, 3);
  EXPECT_THAT(logged, AllOf(HasSubstr("prompts.jsonl:2: "), HasSubstr("prompts.jsonl:3: "),
                            HasSubstr("prompts.jsonl:4: \"top_p\""), HasSubstr("skipped")));
}

TEST_F(RequestReaderTest, ReadsFilesAndNamesThoseItCannot) {
  const stagecoach::testing::TempFolder folder;
  const auto path = folder.write("in.jsonl", "{\"id\":1,\"prompt\":\"a\"}\nx\n");
  const auto read_path = [&](const std::string& name, OnError on_error) {
    return read_requests(name, defaults_, spec_, tokenizer_, on_error, Log("", "off"));
  };
  EXPECT_EQ(read_path(path, OnError::skip).requests.size(), 1u);
  const auto failing = [&](const std::string& name) -> std::string {
    try {
      read_path(name, OnError::stop);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(failing(path), StartsWith(path + ":2: "));
  EXPECT_THAT(failing(folder.file("none")),
              AllOf(HasSubstr(folder.file("none")), HasSubstr("No such file")));
  EXPECT_THAT(failing(folder.path()), AllOf(HasSubstr(folder.path()), HasSubstr("folder")));
}

TEST_F(RequestReaderTest, TheBundledPromptsAreGood) {
  const auto list = read_requests(STAGECOACH_SOURCE_DIR "/examples/prompts.jsonl", defaults_, spec_,
                                  tokenizer_, OnError::stop, log_);
  EXPECT_GE(list.requests.size(), 12u);
}

}  // namespace
}  // namespace stagecoach::job
