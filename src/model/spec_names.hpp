#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "model/spec.hpp"

namespace stagecoach::model {

/// The written form of an enumeration's values, for ini files and the store.
template <typename Enum, std::size_t n>
using EnumNames = std::array<std::pair<Enum, std::string_view>, n>;

inline constexpr EnumNames<Activation, 4> kActivationNames{{{Activation::relu, "relu"},
                                                            {Activation::gelu, "gelu"},
                                                            {Activation::gelu_tanh, "gelu_tanh"},
                                                            {Activation::silu, "silu"}}};
inline constexpr EnumNames<NormKind, 2> kNormNames{
    {{NormKind::layer_norm, "layer_norm"}, {NormKind::rms_norm, "rms_norm"}}};
inline constexpr EnumNames<PositionKind, 2> kPositionNames{
    {{PositionKind::learned, "learned"}, {PositionKind::rotary, "rotary"}}};

template <typename Enum, std::size_t n>
constexpr std::string_view name_of(const EnumNames<Enum, n>& names, Enum value) {
  for (const auto& [known, name] : names) {
    if (known == value) {
      return name;
    }
  }
  return "unknown";
}

template <typename Enum, std::size_t n>
constexpr std::optional<Enum> value_of(const EnumNames<Enum, n>& names, std::string_view text) {
  for (const auto& [value, name] : names) {
    if (name == text) {
      return value;
    }
  }
  return std::nullopt;
}

/// spec.validate() whose errors also name `where` the spec came from.
void validate_spec(const ModelSpec& spec, const std::string& where);

}  // namespace stagecoach::model
