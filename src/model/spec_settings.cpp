#include <charconv>

#include "base/error.hpp"
#include "model/spec.hpp"
#include "model/spec_names.hpp"

namespace stagecoach::model {
namespace {

using Settings = std::map<std::string, std::string>;

/// Takes settings out one by one, so that what is left at the end is unknown.
class SettingsReader {
 public:
  SettingsReader(Settings settings, std::string where)
      : settings_(std::move(settings)), where_(std::move(where)) {}

  bool take(const char* key, std::string& out) {
    const auto found = settings_.find(key);
    if (found == settings_.end()) {
      return false;
    }
    out = found->second;
    settings_.erase(found);
    return true;
  }

  template <typename Number>
  requires std::is_arithmetic_v<Number>
  bool take(const char* key, Number& out) {
    std::string text;
    if (!take(key, text)) {
      return false;
    }
    const auto* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data(), end, out);
    if (code != std::errc() || stop != end) {
      fail_value(key, text, "a number");
    }
    return true;
  }

  bool take(const char* key, bool& out) {
    std::string text;
    if (!take(key, text)) {
      return false;
    }
    if (text != "true" && text != "false") {
      fail_value(key, text, "true or false");
    }
    out = text == "true";
    return true;
  }

  template <typename Enum, std::size_t n>
  void take(const char* key, Enum& out, const EnumNames<Enum, n>& names) {
    std::string text;
    if (!take(key, text)) {
      return;
    }
    const auto value = value_of(names, text);
    if (!value) {
      fail_value(key, text, "one of docs/formats.md");
    }
    out = *value;
  }

  void require(const char* key, std::int64_t& out) {
    if (!take(key, out)) {
      throw ConfigError(fmt::format("{}: {} is missing", where_, key));
    }
  }

  void expect_none_left() const {
    if (!settings_.empty()) {
      throw ConfigError(
          fmt::format("{}: there is no setting called {}", where_, settings_.begin()->first));
    }
  }

  [[noreturn]] void fail_value(const char* key, const std::string& text, const char* wanted) const {
    throw ConfigError(fmt::format("{}: {} = {}: must be {}", where_, key, text, wanted));
  }

 private:
  Settings settings_;
  std::string where_;
};

void take_heads(SettingsReader& reader, ModelSpec& spec, const std::string& where) {
  reader.require("heads", spec.heads);
  spec.kv_heads = spec.heads;
  reader.take("kv_heads", spec.kv_heads);
  if (!reader.take("head_dim", spec.head_dim)) {
    if (spec.heads < 1 || spec.hidden % spec.heads != 0) {
      throw ConfigError(
          fmt::format("{}: heads {} must divide hidden {}", where, spec.heads, spec.hidden));
    }
    spec.head_dim = spec.hidden / spec.heads;
  }
}

}  // namespace

ModelSpec spec_from_settings(const std::map<std::string, std::string>& settings,
                             const std::string& where) {
  SettingsReader reader(settings, where);
  ModelSpec spec;
  reader.take("family", spec.family);
  reader.take("name", spec.name);
  reader.require("layers", spec.layers);
  reader.require("hidden", spec.hidden);
  take_heads(reader, spec, where);
  reader.require("ffn", spec.ffn);
  reader.require("vocab", spec.vocab);
  reader.require("max_positions", spec.max_positions);
  spec.position_offset = spec.family == "opt" ? 2 : 0;
  reader.take("position_offset", spec.position_offset);
  reader.take("norm_epsilon", spec.norm_epsilon);
  reader.take("activation", spec.activation, kActivationNames);
  reader.take("norm", spec.norm, kNormNames);
  reader.take("position", spec.position, kPositionNames);
  reader.take("gated_mlp", spec.gated_mlp);
  reader.take("tied_head", spec.tied_head);
  reader.take("bos_token", spec.bos_token);
  reader.take("eos_token", spec.eos_token);
  reader.take("pad_token", spec.pad_token);
  reader.expect_none_left();
  validate_spec(spec, where);
  return spec;
}

}  // namespace stagecoach::model
