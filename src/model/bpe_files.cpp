#include "model/bpe_files.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.hpp"
#include "model/json_error.hpp"
#include "model/json_fields.hpp"
#include "model/utf8.hpp"

namespace stagecoach::model {
namespace {

using nlohmann::json;
using Vocabulary = std::unordered_map<std::string, std::int32_t>;

constexpr const char* kVocabFile = "vocab.json";
constexpr const char* kMergesFile = "merges.txt";
constexpr const char* kSpecialFile = "special_tokens_map.json";

/// GPT-2's printable stand-in of each byte: itself where Latin-1 prints it, else 256 and up in
/// order.
std::array<char32_t, 256> byte_alphabet() {
  std::array<char32_t, 256> characters{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                        (byte >= 0xae && byte <= 0xff);
    characters[byte] = prints ? byte : next++;
  }
  return characters;
}

/// The bytes that a vocabulary entry stands for. An entry with a character outside the alphabet
/// stands for its own text, as in Hugging Face's decoder.
std::string bytes_of_entry(const std::string& entry,
                           const std::unordered_map<char32_t, char>& byte_of_character) {
  std::string bytes;
  for (std::string_view rest = entry; !rest.empty();
       rest.remove_prefix(first_utf8_unit(rest).size)) {
    const auto found = byte_of_character.find(first_code_point(rest));
    if (found == byte_of_character.end()) {
      return entry;
    }
    bytes += found->second;
  }
  return bytes;
}

/// A token's text as an error message shows it.
std::string display(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string shown;
  append_valid_utf8(shown, text.substr(0, kLongest));
  return "\"" + shown + (text.size() > kLongest ? "...\"" : "\"");
}

/// Reads one flat object of whole numbers without building a tree, so that a repeated key is seen
/// and depth costs nothing.
class VocabularyReader : public nlohmann::json_sax<json> {
 public:
  VocabularyReader(std::int64_t vocab_size, Vocabulary& out) : vocab_size_(vocab_size), out_(out) {}

  bool start_object(std::size_t) override {
    if (inside_) {
      fail("is an object");
    }
    inside_ = true;
    return true;
  }
  bool key(std::string& name) override {
    name_ = name;
    return true;
  }
  bool number_unsigned(std::uint64_t id) override {
    if (!inside_) {
      fail("");
    }
    if (id >= static_cast<std::uint64_t>(vocab_size_)) {
      fail(fmt::format("has id {}, but the model's vocab_size is {}", id, vocab_size_));
    }
    if (!out_.emplace(name_, static_cast<std::int32_t>(id)).second) {
      fail("is there twice");
    }
    return true;
  }
  bool number_integer(std::int64_t id) override { fail(fmt::format("has the negative id {}", id)); }
  bool number_float(double, const std::string& text) override {
    fail(fmt::format("has {}, not a whole number, as its id", text));
  }
  bool null() override { fail("has null as its id"); }
  bool boolean(bool) override { fail("has a boolean as its id"); }
  bool string(std::string&) override { fail("has a string as its id"); }
  bool binary(json::binary_t&) override { fail("has bytes as its id"); }
  bool start_array(std::size_t) override { fail("has a list as its id"); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw FormatError(fmt::format("{}: {}", kVocabFile, describe_json_error(error.what())));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    if (!inside_) {
      throw FormatError(
          fmt::format("{}: must be an object of token text to id, nothing else", kVocabFile));
    }
    throw FormatError(fmt::format("{}: token {} {}", kVocabFile, display(name_), what));
  }

  std::int64_t vocab_size_;
  Vocabulary& out_;
  std::string name_;
  bool inside_ = false;
};

Vocabulary read_vocabulary(const std::string& text, std::int64_t vocab_size) {
  Vocabulary vocabulary;
  VocabularyReader reader(vocab_size, vocabulary);
  json::sax_parse(text, &reader);
  return vocabulary;
}

void fill_token_bytes(const Vocabulary& vocabulary, BpeTables& tables) {
  const auto alphabet = byte_alphabet();
  std::unordered_map<char32_t, char> byte_of_character;
  for (std::size_t byte = 0; byte < alphabet.size(); ++byte) {
    byte_of_character.emplace(alphabet[byte], static_cast<char>(byte));
  }
  std::vector<const std::string*> entries;
  for (const auto& [entry, id] : vocabulary) {
    const auto index = static_cast<std::size_t>(id);
    entries.resize(std::max(entries.size(), index + 1), nullptr);
    if (entries[index] != nullptr) {
      throw FormatError(fmt::format("{}: tokens {} and {} both have id {}", kVocabFile,
                                    display(std::min(*entries[index], entry)),
                                    display(std::max(*entries[index], entry)), id));
    }
    entries[index] = &entry;
  }
  tables.token_bytes.resize(entries.size());
  for (std::size_t id = 0; id < entries.size(); ++id) {
    if (entries[id] != nullptr) {
      tables.token_bytes[id] = bytes_of_entry(*entries[id], byte_of_character);
    }
  }
  for (std::size_t byte = 0; byte < alphabet.size(); ++byte) {
    std::string symbol;
    append_code_point(symbol, alphabet[byte]);
    const auto found = vocabulary.find(symbol);
    if (found == vocabulary.end()) {
      throw FormatError(
          fmt::format("{}: has no token {} for the byte 0x{:02x}; is it a byte-level BPE?",
                      kVocabFile, display(symbol), byte));
    }
    tables.byte_token[byte] = found->second;
  }
}

class MergesReader {
 public:
  MergesReader(const Vocabulary& vocabulary, BpeTables& tables)
      : vocabulary_(vocabulary), tables_(tables) {}

  void read(std::string_view text) {
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      auto line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line.ends_with('\r')) {
        line.remove_suffix(1);
      }
      if (!line.empty() && !line.starts_with("#version")) {
        add(line);
      }
    }
  }

 private:
  void add(std::string_view line) {
    const auto space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      throw FormatError(fmt::format("{}:{}: {} is not two tokens and one space between them",
                                    kMergesFile, line_, display(line)));
    }
    const std::string left(line.substr(0, space));
    const std::string right(line.substr(space + 1));
    // One after the other, so that an error names the first that is missing.
    const auto left_id = id_of(left);
    const auto right_id = id_of(right);
    const auto merged_id = id_of(left + right);
    tables_.merges[BpeTables::pair_key(left_id, right_id)] = BpeMerge{rank_++, merged_id};
  }

  std::int32_t id_of(const std::string& token) const {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) {
      throw FormatError(
          fmt::format("{}:{}: token {} is not in {}; do the two files belong together?",
                      kMergesFile, line_, display(token), kVocabFile));
    }
    return found->second;
  }

  const Vocabulary& vocabulary_;
  BpeTables& tables_;
  std::int32_t rank_ = 0;
  std::int64_t line_ = 0;
};

class SpecialTokensReader {
 public:
  SpecialTokensReader(const Vocabulary& vocabulary, std::int64_t vocab_size, BpeTables& tables)
      : vocabulary_(vocabulary), vocab_size_(vocab_size), tables_(tables) {}

  void read(const std::string& text) {
    const json root = parse_json(text, kSpecialFile);
    if (!root.is_object()) {
      throw FormatError(fmt::format("{}: must be a JSON object", kSpecialFile));
    }
    if (!root.empty() && std::all_of(root.begin(), root.end(),
                                     [](const json& value) { return value.is_number_integer(); })) {
      for (const auto& [name, id] : root.items()) {
        add(name, checked_id(id, name), true);
      }
      return;
    }
    if (const auto decoder = root.find("added_tokens_decoder"); decoder != root.end()) {
      read_decoder(*decoder);
    }
    for (const auto& [key, value] : root.items()) {
      read_entry(key, value);
    }
  }

 private:
  void read_decoder(const json& decoder) {
    if (!decoder.is_object()) {
      fail("added_tokens_decoder", "must be an object of id to token");
    }
    for (const auto& [key, token] : decoder.items()) {
      const auto id = json::parse(key, nullptr, false);
      const auto special = token.is_object() ? token.value("special", json(true)) : json(true);
      if (!special.is_boolean()) {
        fail("added_tokens_decoder", fmt::format("{} must say true or false for special", key));
      }
      add(content_of(token, "added_tokens_decoder"), checked_id(id, key), special.get<bool>());
    }
  }

  void read_entry(const std::string& key, const json& value) {
    if (key == "additional_special_tokens" && value.is_array()) {
      for (const auto& token : value) {
        add(content_of(token, key), kNoId, true);
      }
    } else if (key.ends_with("_token") && (value.is_string() || value.is_object())) {
      add(content_of(value, key), kNoId, true);
    }
  }

  static std::string content_of(const json& token, const std::string& key) {
    if (token.is_string()) {
      return token.get<std::string>();
    }
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) {
      fail(key, "must be a string or an object with a string \"content\"");
    }
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      if (token.value(flag, json(false)) != json(false)) {
        fail(key, fmt::format("asks for \"{}\", which is not supported: set it to false", flag));
      }
    }
    return token["content"].get<std::string>();
  }

  std::int32_t checked_id(const json& id, const std::string& name) const {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size_)) {
      throw FormatError(fmt::format("{}: the id of {} must be a number from 0 to {}", kSpecialFile,
                                    display(name), vocab_size_ - 1));
    }
    return id.get<std::int32_t>();
  }

  /// The id that the vocabulary gives to `text`, or kNoId.
  [[nodiscard]] std::int32_t known_id(const std::string& text) const {
    const auto entry = vocabulary_.find(text);
    return entry == vocabulary_.end() ? kNoId : entry->second;
  }

  /// Adds the token or confirms it. With kNoId the vocabulary, or an earlier entry, must know it.
  void add(const std::string& text, std::int32_t id, bool special) {
    if (text.empty()) {
      return;
    }
    const auto earlier = std::find_if(tables_.added.begin(), tables_.added.end(),
                                      [&](const AddedToken& token) { return token.text == text; });
    const bool is_new = earlier == tables_.added.end();
    const auto known = is_new ? known_id(text) : earlier->id;
    if (id == kNoId && known == kNoId) {
      throw FormatError(
          fmt::format("{}: token {} is not in {}", kSpecialFile, display(text), kVocabFile));
    }
    if (id != kNoId && known != kNoId && id != known) {
      throw FormatError(fmt::format("{}: token {} has id {} here and id {} elsewhere", kSpecialFile,
                                    display(text), id, known));
    }
    if (!is_new) {
      earlier->special = earlier->special || special;
      return;
    }
    store_text(text, known == kNoId ? id : known, known != kNoId);
    tables_.added.push_back({text, known == kNoId ? id : known, special});
  }

  void store_text(const std::string& text, std::int32_t id, bool in_vocabulary) {
    const auto index = static_cast<std::size_t>(id);
    if (tables_.token_bytes.size() <= index) {
      tables_.token_bytes.resize(index + 1);
    }
    if (!in_vocabulary && !tables_.token_bytes[index].empty()) {
      throw FormatError(fmt::format("{}: token {} has id {}, which another token has already",
                                    kSpecialFile, display(text), id));
    }
    tables_.token_bytes[index] = text;
  }

  [[noreturn]] static void fail(const std::string& key, const std::string& what) {
    throw FormatError(fmt::format("{}: {} {}", kSpecialFile, display(key), what));
  }

  static constexpr std::int32_t kNoId = -1;

  const Vocabulary& vocabulary_;
  std::int64_t vocab_size_;
  BpeTables& tables_;
};

}  // namespace

BpeTables read_bpe_files(const TokenizerFiles& files, std::int64_t vocab_size) {
  STAGECOACH_CHECK(vocab_size > 0 && vocab_size <= std::numeric_limits<std::int32_t>::max(),
                   "vocab_size {}", vocab_size);
  BpeTables tables{};
  const auto vocabulary = read_vocabulary(files.vocab_json, vocab_size);
  fill_token_bytes(vocabulary, tables);
  MergesReader(vocabulary, tables).read(files.merges_txt);
  if (!files.special_tokens_json.empty()) {
    SpecialTokensReader(vocabulary, vocab_size, tables).read(files.special_tokens_json);
  }
  return tables;
}

}  // namespace stagecoach::model
