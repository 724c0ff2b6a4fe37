#include "model/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "model/bpe_files.hpp"
#include "model/pretokenizer.hpp"
#include "model/utf8.hpp"

namespace stagecoach::model {
namespace {

/// Merges one word's bytes. The pair with the lowest rank goes first, the leftmost of equal ones
/// (Hugging Face's order); a linked list and a heap make it n log n for a word of n bytes.
class WordMerger {
 public:
  explicit WordMerger(const BpeTables& tables) : tables_(tables) {}

  void append_tokens(std::string_view word, std::vector<std::int32_t>& out) {
    start(word);
    while (!heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      if (is_current(best)) {
        merge(best);
      }
    }
    for (std::int32_t at = 0; at != kNone; at = symbols_[index(at)].next) {
      out.push_back(symbols_[index(at)].token);
    }
  }

 private:
  static constexpr std::int32_t kNone = -1;

  struct Symbol {
    std::int32_t token;  ///< kNone once it was merged into its left neighbour
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;
    std::int32_t left;
    std::int32_t right;
    std::int32_t merged;
  };
  struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return std::pair(a.rank, a.position) > std::pair(b.rank, b.position);
    }
  };

  static std::size_t index(std::int32_t position) { return static_cast<std::size_t>(position); }

  void start(std::string_view word) {
    const auto size = static_cast<std::int32_t>(word.size());
    symbols_.clear();
    for (std::int32_t i = 0; i < size; ++i) {
      const auto byte = static_cast<unsigned char>(word[index(i)]);
      symbols_.push_back({tables_.byte_token[byte], i - 1, i + 1 < size ? i + 1 : kNone});
    }
    for (std::int32_t i = 0; i < size; ++i) {
      offer(i);
    }
  }

  /// Puts the pair that starts at `position` on the heap if it has a merge.
  void offer(std::int32_t position) {
    const auto& symbol = symbols_[index(position)];
    if (symbol.next == kNone) {
      return;
    }
    const auto right = symbols_[index(symbol.next)].token;
    const auto found = tables_.merges.find(BpeTables::pair_key(symbol.token, right));
    if (found != tables_.merges.end()) {
      heap_.push({found->second.rank, position, symbol.token, right, found->second.merged});
    }
  }

  [[nodiscard]] bool is_current(const Candidate& candidate) const {
    const auto& symbol = symbols_[index(candidate.position)];
    return symbol.token == candidate.left && symbol.next != kNone &&
           symbols_[index(symbol.next)].token == candidate.right;
  }

  void merge(const Candidate& candidate) {
    auto& left = symbols_[index(candidate.position)];
    auto& right = symbols_[index(left.next)];
    left.token = candidate.merged;
    left.next = right.next;
    right.token = kNone;
    if (left.next != kNone) {
      symbols_[index(left.next)].previous = candidate.position;
    }
    if (left.previous != kNone) {
      offer(left.previous);
    }
    offer(candidate.position);
  }

  const BpeTables& tables_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, Later> heap_;
};

}  // namespace

struct Tokenizer::Impl {
  Impl(const TokenizerFiles& files, std::int64_t vocab_size)
      : tables(read_bpe_files(files, vocab_size)), special(tables.token_bytes.size(), 0) {
    for (std::size_t i = 0; i < tables.added.size(); ++i) {
      const auto& added = tables.added[i];
      added_by_first_byte[static_cast<unsigned char>(added.text.front())].push_back(i);
      special[static_cast<std::size_t>(added.id)] = added.special ? 1 : 0;
    }
    for (auto& same_start : added_by_first_byte) {
      std::sort(same_start.begin(), same_start.end(), [&](std::size_t a, std::size_t b) {
        return tables.added[a].text.size() > tables.added[b].text.size();
      });
    }
  }

  /// The longest added token that `rest` (not empty) starts with, or nullptr.
  [[nodiscard]] const AddedToken* added_at(std::string_view rest) const {
    for (const auto i : added_by_first_byte[static_cast<unsigned char>(rest.front())]) {
      if (rest.starts_with(tables.added[i].text)) {
        return &tables.added[i];
      }
    }
    return nullptr;
  }

  void encode_plain(std::string_view text, WordMerger& merger,
                    std::vector<std::int32_t>& out) const {
    for (const auto word : words.split(text)) {
      merger.append_tokens(word, out);
    }
  }

  BpeTables tables;
  std::vector<char> special;                                      ///< by id
  std::array<std::vector<std::size_t>, 256> added_by_first_byte;  ///< the longest first
  PreTokenizer words;
};

Tokenizer::Tokenizer(const TokenizerFiles& files, std::int64_t vocab_size)
    : impl_(std::make_unique<Impl>(files, vocab_size)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  if (const auto bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    throw ConfigError(
        fmt::format("the text is not UTF-8: byte {} (0x{:02x}) does not fit; convert it", bad,
                    static_cast<unsigned char>(text[bad])));
  }
  std::vector<std::int32_t> tokens;
  WordMerger merger(impl_->tables);
  std::size_t plain = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto* added = impl_->added_at(text.substr(at));
    if (added == nullptr) {
      ++at;
      continue;
    }
    impl_->encode_plain(text.substr(plain, at - plain), merger, tokens);
    tokens.push_back(added->id);
    at += added->text.size();
    plain = at;
  }
  impl_->encode_plain(text.substr(plain), merger, tokens);
  return tokens;
}

std::string Tokenizer::token_bytes(std::int32_t token, bool special) const {
  const auto index = static_cast<std::size_t>(token);
  if (token < 0 || index >= impl_->tables.token_bytes.size() ||
      (impl_->special[index] != 0 && !special)) {
    return {};
  }
  return impl_->tables.token_bytes[index];
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string bytes;
  for (const auto token : tokens) {
    bytes += token_bytes(token);
  }
  return replace_invalid_utf8(bytes);
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  if (append_valid_utf8(text, bytes) < bytes.size()) {
    text += kReplacementCharacter;
  }
  return text;
}

}  // namespace stagecoach::model
