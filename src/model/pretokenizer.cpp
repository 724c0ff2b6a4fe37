#include "model/pretokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "base/error.hpp"

namespace stagecoach::model {
namespace {

// Unicode's White_Space. PCRE2's own \s would add U+180E.
constexpr const char* kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f})"
    R"(\x{3000})";

// \p{L} and what Unicode 15.0 to 16.0 added to it: PCRE2 10.42 knows Unicode 14.
constexpr const char* kLetter =
    R"(\p{L}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3})"
    R"(\x{10d4a}-\x{10d65}\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3})"
    R"(\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff})"
    R"(\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb})"
    R"(\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";

// The same for \p{N}.
constexpr const char* kNumber =
    R"(\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59})"
    R"(\x{16130}-\x{16139}\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3})"
    R"(\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";

struct FreeCode {
  void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const noexcept { pcre2_match_data_free(match); }
};

[[noreturn]] void throw_pcre2(const char* what, int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  throw InternalError(fmt::format("{}: {}", what, reinterpret_cast<const char*>(text)));
}

std::string make_pattern() {
  return fmt::format(
      "'s|'t|'re|'ve|'m|'ll|'d| ?[{1}]+| ?[{2}]+| ?[^{0}{1}{2}]+|[{0}]+(?![^{0}])|[{0}]+", kSpace,
      kLetter, kNumber);
}

std::unique_ptr<pcre2_code, FreeCode> compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE where = 0;
  std::unique_ptr<pcre2_code, FreeCode> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_ANCHORED, &error, &where, nullptr));
  if (!code) {
    throw_pcre2("cannot compile the tokenizer's pattern (is PCRE2 built with Unicode?)", error);
  }
  // Where the system forbids writable code pages this fails, and matching is interpreted.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct PreTokenizer::Impl {
  std::unique_ptr<pcre2_code, FreeCode> code = compile(make_pattern());
};

PreTokenizer::PreTokenizer() : impl_(std::make_unique<Impl>()) {}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> words;
  if (text.empty()) {
    return words;
  }
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr));
  STAGECOACH_CHECK(match != nullptr, "no memory for a match");
  std::size_t at = 0;
  while (at < text.size()) {
    // The text is known to be valid; checking it again at each word would be quadratic.
    const int count = pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (count < 0) {
      throw_pcre2("cannot split text into words", count);
    }
    const std::size_t end = pcre2_get_ovector_pointer(match.get())[1];
    STAGECOACH_CHECK(end > at, "an empty word");
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace stagecoach::model
