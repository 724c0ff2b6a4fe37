#include "model/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/utf8.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::model {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kVocab = 2048;

TokenizerFiles tiny_files() {
  const auto folder = stagecoach::testing::tiny_opt_folder();
  return {read_text_file(folder + "/vocab.json"), read_text_file(folder + "/merges.txt"),
          read_text_file(folder + "/special_tokens_map.json")};
}

const Tokenizer& tiny() {
  static const Tokenizer tokenizer(tiny_files(), kVocab);
  return tokenizer;
}

json test_data(const std::string& name) {
  return json::parse(read_text_file(STAGECOACH_SOURCE_DIR "/tests/data/" + name));
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

TEST(TokenizerTest, AgreesWithTheModelsReference) {
  const auto vectors = test_data("tiny_opt_reference.json")["tokenizer"];
  ASSERT_EQ(vectors.size(), 18u);
  for (const auto& vector : vectors) {
    const auto text = vector["text"].get<std::string>();
    const auto ids = tiny().encode(text);
    EXPECT_EQ(ids, vector["token_ids"].get<Ids>()) << vector["text"];
    EXPECT_EQ(tiny().decode(ids), text);
  }
}

TEST(TokenizerTest, AgreesWithTheOracleOnHardText) {
  const auto vectors = test_data("tokenizer_vectors.json")["encode"];
  ASSERT_GE(vectors.size(), 50u);
  for (const auto& vector : vectors) {
    const auto ids = tiny().encode(vector["text"].get<std::string>());
    EXPECT_EQ(ids, vector["token_ids"].get<Ids>()) << vector["text"];
    EXPECT_EQ(tiny().decode(ids), vector["decoded"].get<std::string>());
  }
}

TEST(TokenizerTest, DecodingGivesTheTextBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const char32_t limit = round % 3 == 0 ? 0x80 : round % 3 == 1 ? 0x3000 : 0x110000;
    std::string text;
    for (int i = 0; i < 40; ++i) {
      const auto value = static_cast<char32_t>(random() % limit);
      if (value < 0xd800 || value > 0xdfff) {
        append_code_point(text, value);
      }
    }
    ASSERT_EQ(tiny().decode(tiny().encode(text)), text);
  }
}

TEST(TokenizerTest, SpecialTokensInTheTextAreOneId) {
  EXPECT_THAT(tiny().encode("</s>"), ElementsAre(2));
  EXPECT_THAT(tiny().encode("</s><pad></s>"), ElementsAre(2, 1, 2));
  EXPECT_NE(tiny().encode("<s>"), Ids({0}));  // not in the special tokens map
  EXPECT_EQ(tiny().encode(" a</s> a"), [] {
    auto ids = tiny().encode(" a");
    const auto again = ids;
    ids.push_back(2);
    ids.insert(ids.end(), again.begin(), again.end());
    return ids;
  }());
}

TEST(TokenizerTest, TheLongestSpecialTokenWins) {
  auto files = tiny_files();
  files.special_tokens_json = R"({"<a>": 2040, "<a><b>": 2041, "<a><b><c>": 2042, "x<a>": 2043})";
  // Ids of the vocabulary cannot be taken again.
  EXPECT_THROW(Tokenizer(files, kVocab), FormatError);
  files.special_tokens_json = R"({"<a>": 2050, "<a><b>": 2051, "<a><b><c>": 2052, "x<a>": 2053})";
  const Tokenizer tokenizer(files, 2060);
  EXPECT_THAT(tokenizer.encode("<a><b><c><a><b><a>"), ElementsAre(2052, 2051, 2050));
  auto after_leftmost = tokenizer.encode("<b>");
  after_leftmost.insert(after_leftmost.begin(), 2053);
  EXPECT_EQ(tokenizer.encode("x<a><b>"), after_leftmost) << "the leftmost goes before the longest";
}

TEST(TokenizerTest, ReadsEveryFormOfSpecialTokens) {
  auto files = tiny_files();
  for (
      const char* form : {
          R"({"eos_token": "</s>"})",
          R"({"eos_token": {"content": "</s>", "lstrip": false, "normalized": true}, "bos_token": null})",
          R"({"additional_special_tokens": ["</s>", {"content": "<pad>"}]})",
          R"({"</s>": 2})",
          R"({"added_tokens_decoder": {"2": {"content": "</s>", "special": true}},
               "model_max_length": 512, "add_bos_token": true, "tokenizer_class": "GPT2Tokenizer"})",
      }) {
    files.special_tokens_json = form;
    const Tokenizer tokenizer(files, kVocab);
    EXPECT_THAT(tokenizer.encode("</s>"), ElementsAre(2)) << form;
    EXPECT_EQ(tokenizer.decode(Ids{2}), "") << form;
    EXPECT_EQ(tokenizer.token_bytes(2, true), "</s>") << form;
  }
  files.special_tokens_json =
      R"({"added_tokens_decoder": {"2": {"content": "</s>", "special": false}}})";
  const Tokenizer not_special(files, kVocab);
  EXPECT_THAT(not_special.encode("</s>"), ElementsAre(2));
  EXPECT_EQ(not_special.decode(Ids{2}), "</s>");
  files.special_tokens_json.clear();
  EXPECT_NE(Tokenizer(files, kVocab).encode("</s>"), Ids({2}));
}

TEST(TokenizerTest, TokenBytesAreRawAndUnknownIdsEmpty) {
  const auto ids = tiny().encode("日");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(tiny().token_bytes(ids[0]), "\xe6");
  EXPECT_EQ(tiny().token_bytes(ids[1]), "\x97");
  EXPECT_EQ(tiny().token_bytes(2), "");
  EXPECT_EQ(tiny().token_bytes(2, true), "</s>");
  EXPECT_EQ(tiny().token_bytes(-1), "");
  EXPECT_EQ(tiny().token_bytes(2048), "");
  EXPECT_EQ(tiny().token_bytes(2147483647), "");
  EXPECT_EQ(tiny().decode(Ids{ids[0], ids[1]}), "\ufffd");
  EXPECT_EQ(tiny().decode(Ids{ids[0], ids[1], 2, ids[2]}), "日")
      << "bytes join across special ones";
  EXPECT_EQ(tiny().decode(Ids{}), "");
}

TEST(TokenizerTest, RefusesInvalidUtf8) {
  for (const char* text : {"\xff", "ab\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\xaf"}) {
    EXPECT_THROW((void)tiny().encode(text), ConfigError) << text;
  }
}

TEST(TokenizerTest, LongWordsTakeLinearTime) {
  std::mt19937 random(3);
  std::string the;
  std::string letters;
  for (int i = 0; i < 1 << 18; ++i) {
    the += "the";
    letters += static_cast<char>('a' + random() % 26);
  }
  const auto start = std::chrono::steady_clock::now();
  for (const auto& text : {the, letters, std::string(1 << 20, 'x'), std::string(1 << 20, ' '),
                           std::string(1 << 20, ' ') + "a", std::string(1 << 20, '<')}) {
    EXPECT_EQ(tiny().decode(tiny().encode(text)), text);
  }
  // Under a second; a quadratic merge takes many minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(TokenizerTest, ThreadsMayEncodeAtOnce) {
  const auto text = read_text_file(stagecoach::testing::tiny_opt_folder() + "/heldout.txt");
  const auto expected = tiny().encode(text.substr(0, 20000));
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = tiny().encode(text.substr(0, 20000)); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& result : results) {
    EXPECT_EQ(result, expected);
  }
}

/// The message of the FormatError that these files give; empty if there is none.
std::string failure(const TokenizerFiles& files, std::int64_t vocab_size = kVocab) {
  try {
    const Tokenizer tokenizer(files, vocab_size);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

TEST(TokenizerFilesTest, VocabularyErrorsNameTheToken) {
  auto files = tiny_files();
  const auto good = json::parse(files.vocab_json);
  const auto with = [&](const std::string& key, const json& value) {
    auto vocab = good;
    vocab[key] = value;
    files.vocab_json = vocab.dump();
    return failure(files);
  };
  EXPECT_THAT(with("zzz", 2048),
              AllOf(HasSubstr("vocab.json"), HasSubstr("zzz"), HasSubstr("2048")));
  EXPECT_THAT(with("zzz", -1), AllOf(HasSubstr("zzz"), HasSubstr("-1")));
  EXPECT_THAT(with("zzz", "7"), AllOf(HasSubstr("zzz"), HasSubstr("string")));
  EXPECT_THAT(with("zzz", 1.5), AllOf(HasSubstr("zzz"), HasSubstr("1.5")));
  EXPECT_THAT(with("zzz", nullptr), AllOf(HasSubstr("zzz"), HasSubstr("null")));
  EXPECT_THAT(with("zzz", true), HasSubstr("boolean"));
  EXPECT_THAT(with("zzz", json::array()), HasSubstr("list"));
  EXPECT_THAT(with("zzz", json::object()), HasSubstr("object"));
  EXPECT_THAT(with("zzz", 7), AllOf(HasSubstr("zzz"), HasSubstr("both have id 7")));
  auto short_vocab = good;
  short_vocab.erase("Ġ");
  files.vocab_json = short_vocab.dump();
  EXPECT_THAT(failure(files), AllOf(HasSubstr("byte 0x20"), HasSubstr("Ġ")));
  files.vocab_json = R"({"a": 1, "a": 2})";
  EXPECT_THAT(failure(files), AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
  for (const char* text : {"", "[]", "7", "\"a\"", "null", "{\"a\": 1", "{\"a\": 1} x"}) {
    files.vocab_json = text;
    EXPECT_THAT(failure(files), HasSubstr("vocab.json")) << text;
  }
  files.vocab_json = std::string(1000000, '[');
  EXPECT_THAT(failure(files), HasSubstr("vocab.json"));
}

TEST(TokenizerFilesTest, MergeErrorsNameTheLine) {
  auto files = tiny_files();
  for (const char* line : {"a", "a b c", " a", "a ", "a  b"}) {
    files.merges_txt = std::string("#version: 0.2\nt h\n") + line + "\n";
    EXPECT_THAT(failure(files), AllOf(HasSubstr("merges.txt:3"), HasSubstr("two tokens"))) << line;
  }
  files.merges_txt = "t h\nq Q\n";
  EXPECT_THAT(failure(files), AllOf(HasSubstr("merges.txt:2"), HasSubstr("\"qQ\"")));
  files.merges_txt = "t h\r\n\r\nĠ zzz\r\n";
  EXPECT_THAT(failure(files), AllOf(HasSubstr("merges.txt:3"), HasSubstr("\"zzz\"")));
}

TEST(TokenizerFilesTest, MergesMayHaveCarriageReturnsBlankLinesOrNoLastNewline) {
  auto files = tiny_files();
  files.merges_txt = "#version: 0.2\r\nt h\r\n\r\nĠ th";
  const Tokenizer tokenizer(files, kVocab);
  EXPECT_EQ(tokenizer.encode(" th").size(), 1u);
  files.merges_txt.clear();
  EXPECT_EQ(Tokenizer(files, kVocab).encode(" th").size(), 3u);
}

TEST(TokenizerFilesTest, SpecialTokenErrorsNameTheKeyOrToken) {
  auto files = tiny_files();
  const auto with = [&](const char* text) {
    files.special_tokens_json = text;
    return failure(files);
  };
  EXPECT_THAT(with("{"), HasSubstr("special_tokens_map.json"));
  EXPECT_THAT(with("[]"), HasSubstr("object"));
  EXPECT_THAT(with(R"({"eos_token": "<nope>"})"), HasSubstr("<nope>"));
  EXPECT_THAT(with(R"({"eos_token": {"text": "</s>"}})"), HasSubstr("eos_token"));
  EXPECT_THAT(with(R"({"eos_token": {"content": 7}})"), HasSubstr("eos_token"));
  EXPECT_THAT(with(R"({"mask_token": {"content": "</s>", "lstrip": true}})"),
              AllOf(HasSubstr("mask_token"), HasSubstr("lstrip")));
  EXPECT_THAT(with(R"({"additional_special_tokens": [7]})"),
              HasSubstr("additional_special_tokens"));
  EXPECT_THAT(with(R"({"</s>": 3})"), AllOf(HasSubstr("</s>"), HasSubstr("id 3")));
  EXPECT_THAT(with(R"({"<new>": 2048})"), AllOf(HasSubstr("<new>"), HasSubstr("2047")));
  EXPECT_THAT(with(R"({"<new>": -1})"), HasSubstr("<new>"));
  EXPECT_THAT(with(R"({"added_tokens_decoder": []})"), HasSubstr("added_tokens_decoder"));
  EXPECT_THAT(with(R"({"added_tokens_decoder": {"x": {"content": "</s>"}}})"), HasSubstr("\"x\""));
  EXPECT_THAT(with(std::string(100000, '[').c_str()), HasSubstr("special_tokens_map.json"));
}

TEST(ReplaceInvalidUtf8Test, AgreesWithTheOracle) {
  const auto vectors = test_data("tokenizer_vectors.json")["replace"];
  ASSERT_GE(vectors.size(), 25u);
  for (const auto& vector : vectors) {
    EXPECT_EQ(replace_invalid_utf8(from_hex(vector["hex"].get<std::string>())),
              vector["text"].get<std::string>())
        << vector["hex"];
  }
}

}  // namespace
}  // namespace stagecoach::model
