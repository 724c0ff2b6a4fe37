#include "job/compression.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach::job {
namespace {

using model::WeightFormat;
using ::testing::HasSubstr;

constexpr PackFormat kInt4{Packing::int4, 64};

std::string refusal(const Compression& wanted, const WeightFormat& stored) {
  try {
    choose_format(wanted, stored);
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(ChooseFormat, WhatIsNotAskedForIsAsStored) {
  EXPECT_EQ(choose_format({}, {}), WeightFormat{});
  const WeightFormat packed{{Packing::int8, 128}, true};
  EXPECT_EQ(choose_format({}, packed), packed);
  EXPECT_EQ(choose_format({.weights = Packing::none}, {}), WeightFormat{});
}

TEST(ChooseFormat, F16IsPackedAsAsked) {
  EXPECT_EQ(choose_format({Packing::int4, 32, false}, {}), (WeightFormat{{Packing::int4, 32}}));
  EXPECT_EQ(choose_format({Packing::int8, 64, true}, {}),
            (WeightFormat{{Packing::int8, 64}, true}));
}

TEST(ChooseFormat, AskingForWhatIsStoredIsFine) {
  EXPECT_EQ(choose_format({.weights = Packing::int4}, {kInt4}), WeightFormat{kInt4});
  EXPECT_EQ(choose_format({Packing::int4, 64, true}, {kInt4, true}), (WeightFormat{kInt4, true}));
}

TEST(ChooseFormat, APackedStoreIsNotPackedOtherwise) {
  for (const auto& wanted :
       {Compression{Packing::int8, 64, false}, Compression{Packing::int4, 32, false},
        Compression{Packing::none, 64, false}, Compression{std::nullopt, 64, true}}) {
    EXPECT_THAT(refusal(wanted, {kInt4}), HasSubstr("int4, groups of 64"));
  }
}

TEST(ChooseFormat, EmbeddingsArePackedWithTheRestOnly) {
  EXPECT_THAT(refusal({std::nullopt, 64, true}, {}), HasSubstr("--compress-weights"));
  EXPECT_THAT(refusal({Packing::none, 64, true}, {}), HasSubstr("--compress-weights"));
}

}  // namespace
}  // namespace stagecoach::job
