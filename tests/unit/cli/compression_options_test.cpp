#include "cli/compression_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach::cli {
namespace {

using device::KvFormat;
using device::KvType;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Options parse(const Words& words) {
  return parse_options("try", "usage: stagecoach try", compression_options(), words).value();
}

template <typename Read>
std::string refusal(const Words& words, Read read) {
  try {
    read(parse(words));
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(CompressionOptions, WithoutThemNothingIsAskedOfTheWeightsAndTheCacheIsF16) {
  const auto options = parse({});
  const auto compression = read_compression(options);
  EXPECT_FALSE(compression.weights.has_value());
  EXPECT_FALSE(compression.embeddings);
  EXPECT_EQ(read_kv_format(options), KvFormat(KvType::f16));
  EXPECT_EQ(read_attention_sparsity(options), 1);
}

TEST(CompressionOptions, AreRead) {
  const auto options =
      parse({"--compress-weights", "int8", "--compress-cache", "int4", "--compress-group", "32",
             "--compress-embeddings", "--attention-sparsity", "0.1"});
  const auto compression = read_compression(options);
  EXPECT_EQ(compression.weights, Packing::int8);
  EXPECT_EQ(compression.group, 32);
  EXPECT_TRUE(compression.embeddings);
  EXPECT_EQ(read_kv_format(options), KvFormat(KvType::int4, 32));
  EXPECT_EQ(read_attention_sparsity(options), 0.1);
  EXPECT_EQ(read_compression(parse({"--compress-weights", "none"})).weights, Packing::none);
  EXPECT_EQ(read_kv_format(parse({"--kv-dtype", "f32"})), KvFormat(KvType::f32));
}

TEST(CompressionOptions, WhatMakesNoSenseIsRefused) {
  EXPECT_THAT(refusal({"--compress-weights", "int3"}, read_compression),
              HasSubstr("--compress-weights int3: must be one of int4, int8, none"));
  EXPECT_THAT(refusal({"--compress-cache", "4"}, read_kv_format), HasSubstr("--compress-cache 4"));
  EXPECT_THAT(refusal({"--compress-group", "48"}, read_compression),
              HasSubstr("--compress-group 48: must be one of 32, 64, 128"));
  EXPECT_THAT(refusal({"--kv-dtype", "f64"}, read_kv_format), HasSubstr("--kv-dtype f64"));
  const auto both = refusal({"--kv-dtype", "f32", "--compress-cache", "int4"}, read_kv_format);
  EXPECT_THAT(both, HasSubstr("kv-dtype"));
  EXPECT_THAT(both, HasSubstr("compress-cache"));
  for (const auto* sparsity : {"0", "-0.1", "1.5", "nan"}) {
    EXPECT_THAT(refusal({"--attention-sparsity", sparsity}, read_attention_sparsity),
                HasSubstr("--attention-sparsity"));
  }
}

}  // namespace
}  // namespace stagecoach::cli
