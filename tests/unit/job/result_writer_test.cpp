#include "job/result_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "support/temp_folder.hpp"
#include "unit/job/tiny_tokenizer.hpp"

namespace stagecoach::job {
namespace {

using nlohmann::json;
using stagecoach::testing::TempFolder;
using stagecoach::testing::tiny_tokenizer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Request make_request(const std::string& id, bool is_number = false) {
  Request request;
  request.id = id;
  request.id_is_number = is_number;
  request.prompt_tokens = {2, 76, 576};
  return request;
}

Completion make_completion() {
  Completion completion;
  completion.tokens = {115, 1163, 2};
  completion.finish_reason = FinishReason::eos;
  return completion;
}

std::string format(const Request& request, const Completion& completion, const std::string& text,
                   const ResultWriterOptions& options = {}) {
  return format_result(request, completion, text, &tiny_tokenizer(), options);
}

template <typename Exception, typename Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

TEST(FormatResultTest, WritesOneLineWithTheDocumentedFields) {
  EXPECT_EQ(format(make_request("a\"\n日"), make_completion(), "lo \"world\"\n"),
            "{\"id\":\"a\\\"\\n日\",\"text\":\"lo \\\"world\\\"\\n\",\"token_ids\":[115,1163,2],"
            "\"finish_reason\":\"eos\",\"prompt_tokens\":3,\"completion_tokens\":3}\n");
  auto completion = make_completion();
  completion.finish_reason = FinishReason::stop;
  EXPECT_THAT(format(make_request("18446744073709551615", true), completion, ""),
              AllOf(StartsWith("{\"id\":18446744073709551615,"), HasSubstr("\"stop\"")));
  completion.finish_reason = FinishReason::length;
  EXPECT_THAT(format(make_request("-7", true), completion, ""),
              AllOf(StartsWith("{\"id\":-7,"), HasSubstr("\"length\"")));
}

TEST(FormatResultTest, WritesLogprobs) {
  const auto request = make_request("a");
  auto completion = make_completion();
  completion.logprobs = {
      {115, -0.5f, {115, 36}, {-0.5f, -1.25f}}, {1163, 0.0f, {}, {}}, {2, -3, {2}, {-3}}};
  // 0xe6 alone is no character.
  const auto half = tiny_tokenizer().encode("日").front();
  completion.prompt_logprobs = {{76, -0.25f, {1}, {-0.125f}}, {half, -2, {}, {}}};
  const auto result =
      json::parse(format(request, completion, "x", {.logprobs = true, .prompt_logprobs = true}));
  const auto& generated = result["logprobs"];
  ASSERT_EQ(generated.size(), 3u);
  EXPECT_EQ(generated[0], json::parse(R"({"token_id": 115, "token": "o", "logprob": -0.5,
      "top": [{"token_id": 115, "logprob": -0.5}, {"token_id": 36, "logprob": -1.25}]})"));
  EXPECT_EQ(generated[1]["top"], json::array());
  EXPECT_EQ(generated[2]["token"], "</s>");
  const auto& prompt = result["prompt_logprobs"];
  ASSERT_EQ(prompt.size(), 3u);
  EXPECT_TRUE(prompt[0].is_null());
  EXPECT_EQ(prompt[1]["token_id"], 76);
  EXPECT_EQ(prompt[2]["token"], "\ufffd");
  EXPECT_FALSE(json::parse(format(request, completion, "x")).contains("logprobs"));
  EXPECT_FALSE(json::parse(format(request, completion, "x")).contains("prompt_logprobs"));
}

TEST(FormatResultTest, APromptOfOneTokenHasOneNullLogprob) {
  auto request = make_request("a");
  request.prompt_tokens = {2};
  const auto result =
      json::parse(format(request, make_completion(), "", {.prompt_logprobs = true}));
  EXPECT_EQ(result["prompt_logprobs"], json::array({nullptr}));
}

TEST(FormatResultTest, LogprobsReadBackToTheSameFloat) {
  std::mt19937 random(13);
  std::vector<float> values = {0.0f,
                               -0.0f,
                               -1.0f,
                               -16777216.0f,
                               1e-5f,
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max(),
                               -std::numeric_limits<float>::max()};
  while (values.size() < 100000) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) {
      values.push_back(value);
    }
  }
  auto completion = make_completion();
  completion.tokens.assign(values.size(), 36);
  for (const auto value : values) {
    completion.logprobs.push_back({36, value, {}, {}});
  }
  const auto result =
      json::parse(format(make_request("a"), completion, "", {.logprobs = true}))["logprobs"];
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto back = static_cast<float>(result[i]["logprob"].get<double>());
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back), std::bit_cast<std::uint32_t>(values[i]));
    ASSERT_TRUE(result[i]["logprob"].is_number_float());
  }
}

TEST(FormatResultTest, LogprobsThatAreNotFiniteAreNull) {
  auto completion = make_completion();
  completion.logprobs = {{115, -std::numeric_limits<float>::infinity(), {}, {}},
                         {1163, std::numeric_limits<float>::quiet_NaN(), {}, {}},
                         {2, -1, {}, {}}};
  const auto result =
      json::parse(format(make_request("a"), completion, "", {.logprobs = true}))["logprobs"];
  EXPECT_TRUE(result[0]["logprob"].is_null());
  EXPECT_TRUE(result[1]["logprob"].is_null());
}

class ResultWriterTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.file("out.jsonl"); }
  [[nodiscard]] ResultWriterOptions options() const { return {.path = path()}; }
  static void write(ResultWriter& writer, const std::string& id, const std::string& text = "text") {
    writer.write(make_request(id), make_completion(), text);
  }

  TempFolder folder_;
};

TEST_F(ResultWriterTest, AResultIsInTheFileOnceWriteReturns) {
  ResultWriter writer(options(), &tiny_tokenizer());
  EXPECT_EQ(read_text_file(path()), "");
  std::string expected;
  for (const char* id : {"a", "b", "c"}) {
    write(writer, id);
    expected += format(make_request(id), make_completion(), "text");
    EXPECT_EQ(read_text_file(path()), expected);
  }
  EXPECT_EQ(writer.results(), 3);
  writer.close();
  EXPECT_EQ(read_text_file(path()), expected);
  EXPECT_THROW(write(writer, "d"), InternalError);
}

TEST_F(ResultWriterTest, AnExistingOutputIsKeptUnlessOverwritten) {
  (void)folder_.write("out.jsonl", "precious\n");
  EXPECT_THAT(message_of<ConfigError>([&] { ResultWriter(options(), nullptr); }),
              AllOf(HasSubstr(path()), HasSubstr("--overwrite")));
  EXPECT_EQ(read_text_file(path()), "precious\n");
  auto overwriting = options();
  overwriting.overwrite = true;
  ResultWriter writer(overwriting, nullptr);
  write(writer, "a");
  EXPECT_EQ(json::parse(read_text_file(path()))["id"], "a");
}

TEST_F(ResultWriterTest, ANewOutputWithoutAResultDoesNotStay) {
  { const ResultWriter writer(options(), nullptr); }
  EXPECT_FALSE(std::filesystem::exists(path()));
  ResultWriter(options(), nullptr).close();
  EXPECT_TRUE(std::filesystem::exists(path())) << "the results of no requests";
  auto overwriting = options();
  overwriting.overwrite = true;
  { const ResultWriter writer(overwriting, nullptr); }
  EXPECT_TRUE(std::filesystem::exists(path())) << "it was there before";
}

TEST_F(ResultWriterTest, AnOutputThatCannotBeMadeIsRefusedAtTheStart) {
  const auto missing = folder_.file("none/out.jsonl");
  EXPECT_THAT(message_of<ConfigError>([&] { ResultWriter({.path = missing}, nullptr); }),
              AllOf(HasSubstr(missing), HasSubstr("No such file")));
}

TEST_F(ResultWriterTest, AnExistingOrderedFileIsRefusedAtTheStart) {
  (void)folder_.write("out.ordered.jsonl", "precious\n");
  auto ordered = options();
  ordered.ordered = true;
  EXPECT_THAT(message_of<ConfigError>([&] { ResultWriter(ordered, nullptr); }),
              HasSubstr("out.ordered.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_THAT(
      message_of<ConfigError>([&] { ResultWriter({.path = "-", .ordered = true}, nullptr); }),
      HasSubstr("--ordered"));
}

TEST_F(ResultWriterTest, AFullDeviceIsAnErrorThatCountsResults) {
  ResultWriter writer({.path = "/dev/full", .overwrite = true}, nullptr);
  EXPECT_THAT(
      message_of<IoError>([&] { write(writer, "a"); }),
      AllOf(HasSubstr("/dev/full"), HasSubstr("No space left"), HasSubstr("0 whole results")));
}

/// Runs `action` in a child process and returns its exit code.
template <typename Action>
int in_child(const Action& action) {
  const auto child = ::fork();
  if (child == 0) {
    ::_exit(action());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void limit_file_size(rlim_t size_bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = size_bytes;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

TEST_F(ResultWriterTest, AWriteThatFailsHalfWayLeavesWholeLines) {
  const auto line = format(make_request("a"), make_completion(), "text");
  // Two lines fit, and a part of the third.
  const auto limit = line.size() * 2 + line.size() / 2;
  const int code = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    limit_file_size(limit);
    ResultWriter writer(options(), &tiny_tokenizer());
    write(writer, "a");
    write(writer, "b");
    const auto message = message_of<IoError>([&] { write(writer, "c"); });
    const bool says = message.find(path()) != std::string::npos &&
                      message.find("2 whole results") != std::string::npos;
    if (!says || read_text_file(path()).size() != 2 * line.size()) {
      std::fprintf(stderr, "message: %s\n", message.c_str());
      return 1;
    }
    // Once there is room again, lines go on where they ended.
    limit_file_size(RLIM_INFINITY);
    write(writer, "d");
    writer.close();
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_text_file(path()), line + format(make_request("b"), make_completion(), "text") +
                                        format(make_request("d"), make_completion(), "text"));
}

TEST_F(ResultWriterTest, StandardOutputGetsEachLineInOneWrite) {
  int sockets[2];
  // Such a socket keeps the boundaries of writes.
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  const int code = in_child([&] {
    ::dup2(sockets[1], STDOUT_FILENO);
    ResultWriter writer({.path = "-"}, &tiny_tokenizer());
    write(writer, "a");
    write(writer, "b", std::string(10000, 'x'));
    writer.close();
    return 0;
  });
  ::close(sockets[1]);
  EXPECT_EQ(code, 0);
  std::vector<std::string> packets;
  std::string buffer(100000, '\0');
  for (ssize_t got = 0; (got = ::read(sockets[0], buffer.data(), buffer.size())) > 0;) {
    packets.push_back(buffer.substr(0, static_cast<std::size_t>(got)));
  }
  ::close(sockets[0]);
  EXPECT_THAT(packets,
              ElementsAre(format(make_request("a"), make_completion(), "text"),
                          format(make_request("b"), make_completion(), std::string(10000, 'x'))));
}

TEST_F(ResultWriterTest, AClosedPipeIsAnError) {
  const int code = in_child([] {
    std::signal(SIGPIPE, SIG_IGN);
    int pipe_ends[2];
    if (::pipe(pipe_ends) != 0) {
      return 2;
    }
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::close(pipe_ends[0]);
    ResultWriter writer({.path = "-"}, nullptr);
    const auto message = message_of<IoError>([&] { write(writer, "a"); });
    return message.find("standard output") == std::string::npos ? 1 : 0;
  });
  EXPECT_EQ(code, 0);
}

class WriteOrderedTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string output(const std::string& text) const {
    return folder_.write("out.jsonl", text);
  }
  [[nodiscard]] std::string ordered() const {
    return read_text_file(folder_.file("out.ordered.jsonl"));
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_.path()),
                      std::filesystem::directory_iterator()));
  }

  TempFolder folder_;
  std::vector<Request> requests_ = {make_request("a"), make_request("17", true),
                                    make_request("日\"x"), make_request("-3", true)};
};

TEST_F(WriteOrderedTest, NamesTheFileBesideTheOutput) {
  EXPECT_EQ(ordered_path("out.jsonl"), "out.ordered.jsonl");
  EXPECT_EQ(ordered_path("/x.jsonl/out"), "/x.jsonl/out.ordered.jsonl");
  EXPECT_EQ(ordered_path("out.txt"), "out.txt.ordered.jsonl");
  EXPECT_THROW(ordered_path("-"), ConfigError);
}

TEST_F(WriteOrderedTest, PutsWhatTheWriterWroteIntoInputOrder) {
  const auto path = folder_.file("out.jsonl");
  std::vector<std::string> lines;
  {
    ResultWriter writer({.path = path, .ordered = true}, &tiny_tokenizer());
    for (const int i : {2, 0, 3, 1}) {
      const auto& request = requests_[static_cast<std::size_t>(i)];
      writer.write(request, make_completion(), "\"id\":\"a\" " + request.id);
    }
    writer.close();
  }
  write_ordered(path, requests_, false);
  std::string expected;
  for (const auto& request : requests_) {
    expected += format(request, make_completion(), "\"id\":\"a\" " + request.id);
  }
  EXPECT_EQ(ordered(), expected);
}

TEST_F(WriteOrderedTest, LeavesOutWhatHasNoResultOrWasCutShort) {
  const auto path =
      output("{\"id\":\"\\u65e5\\\"x\"}\n{\"text\":{\"id\":5},\"id\":\"a\"}\n{\"id\":17");
  write_ordered(path, requests_, false);
  EXPECT_EQ(ordered(), "{\"text\":{\"id\":5},\"id\":\"a\"}\n{\"id\":\"\\u65e5\\\"x\"}\n");
  write_ordered(output(""), requests_, true);
  EXPECT_EQ(ordered(), "");
}

TEST_F(WriteOrderedTest, CopiesMoreThanOneBufferOfLines) {
  std::vector<Request> requests;
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) {
    requests.push_back(make_request(std::to_string(i), true));
    lines.push_back("{\"id\":" + std::to_string(i) + ",\"text\":\"" +
                    std::string(static_cast<std::size_t>(i) * 97, 'x') + "\"}\n");
  }
  std::string backwards;
  std::string forwards;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    backwards += lines[lines.size() - 1 - i];
    forwards += lines[i];
  }
  ASSERT_GT(forwards.size(), std::size_t{3} << 20);
  write_ordered(output(backwards), requests, false);
  EXPECT_EQ(ordered(), forwards);
}

TEST_F(WriteOrderedTest, RefusesLinesThatAreNotThisJobs) {
  for (const char* bad : {"{\"id\":\"other\"}\n", "{\"text\":\"a\"}\n", "broken\n", "\n",
                          "[\"a\"]\n", "{\"id\":null}\n", "{\"id\":\"a\"}\n"}) {
    const auto path = output("{\"id\":\"a\"}\n" + std::string(bad));
    EXPECT_THAT(message_of<FormatError>([&] { write_ordered(path, requests_, false); }),
                HasSubstr("out.jsonl:2: "))
        << bad;
    EXPECT_EQ(files(), 1u) << "nothing is left behind";
  }
}

TEST_F(WriteOrderedTest, KeepsAnExistingFileUnlessOverwritten) {
  const auto path = output("{\"id\":\"a\"}\n");
  (void)folder_.write("out.ordered.jsonl", "precious\n");
  EXPECT_THROW(write_ordered(path, requests_, false), ConfigError);
  EXPECT_EQ(ordered(), "precious\n");
  write_ordered(path, requests_, true);
  EXPECT_EQ(ordered(), "{\"id\":\"a\"}\n");
}

}  // namespace
}  // namespace stagecoach::job
