#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "model/weight_store.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::cli {
namespace {

using stagecoach::testing::TempFolder;
using stagecoach::testing::tiny_opt_folder;
using ::testing::HasSubstr;

const char* const kSpec =
    "layers = 1\nhidden = 8\nheads = 2\nffn = 16\nvocab = 16\nmax_positions = 4\n";

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    convert_command(arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return {};
}

TEST(ConvertCommand, SaysWhatItMade) {
  const TempFolder folder;
  const auto to = folder.file("model.h5");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(convert_command({"--from", tiny_opt_folder(), "--to", to}), 0);
  const auto text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text,
              ::testing::StartsWith(to + ": 13.7 MiB, 8 layers, 6974464 parameters, with its"));
  EXPECT_EQ(model::read_store_index(to).spec.layers, 8);
}

TEST(ConvertCommand, MakesDummies) {
  const TempFolder folder;
  const auto spec = folder.write("spec.ini", kSpec);
  const auto to = folder.file("model.h5");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(convert_command({"--dummy", "3", "--spec", spec, "--to", to}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("without a tokenizer"));
  const auto first = model::read_store_index(to).digest();
  EXPECT_THAT(error_of({"--dummy", "4", "--spec", spec, "--to", to}), HasSubstr("--overwrite"));
  EXPECT_EQ(model::read_store_index(to).digest(), first);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(convert_command({"--dummy", "4", "--spec", spec, "--to", to, "--overwrite"}), 0);
  ::testing::internal::GetCapturedStdout();
  EXPECT_NE(model::read_store_index(to).digest(), first);
}

TEST(ConvertCommand, WantsOneSource) {
  EXPECT_THAT(error_of({"--to", "x"}), HasSubstr("--from FOLDER, or --dummy SEED"));
  EXPECT_THAT(error_of({"--from", "x"}), HasSubstr("--to is missing"));
  EXPECT_THAT(error_of({"--dummy", "1", "--to", "x"}), HasSubstr("--spec is missing"));
  EXPECT_THAT(error_of({"--from", "x", "--dummy", "1", "--to", "x"}), HasSubstr("exclude"));
  EXPECT_THAT(error_of({"--dummy", "-1", "--spec", "s", "--to", "x"}), HasSubstr("--dummy -1"));
}

TEST(ConvertCommand, QuantizesAsTold) {
  const TempFolder folder;
  const auto spec = folder.write("spec.ini", kSpec);
  const auto to = folder.file("model.h5");
  const std::vector<std::string> common = {"--dummy", "3", "--spec",     spec,
                                           "--to",    to,  "--overwrite"};
  const auto made = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), common.begin(), common.end());
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(convert_command(arguments), 0);
    const auto text = ::testing::internal::GetCapturedStdout();
    const auto weights = model::read_store_index(to).weights;
    EXPECT_EQ(text.find("parameters in ") != std::string::npos, weights.packed()) << text;
    return weights;
  };
  using model::WeightFormat;
  EXPECT_EQ(made({}), WeightFormat{});
  EXPECT_EQ(made({"--quantize", "none"}), WeightFormat{});
  EXPECT_EQ(made({"--quantize", "int4"}), (WeightFormat{{Packing::int4, 64}, false}));
  EXPECT_EQ(made({"--quantize", "int8", "--quantize-group", "128", "--quantize-embeddings"}),
            (WeightFormat{{Packing::int8, 128}, true}));
}

TEST(ConvertCommand, QuantizesACheckpoint) {
  const TempFolder folder;
  const auto to = folder.file("model.h5");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(convert_command({"--from", tiny_opt_folder(), "--to", to, "--quantize", "int8"}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("6974464 parameters in int8, groups of 64, with its tokenizer"));
  const auto index = model::read_store_index(to);
  // 256 codes and four groups' parameters a row.
  EXPECT_EQ(index.find("layers/007", "up.weight").tensor.size_bytes(), 1024 * (16 + 256));
}

TEST(ConvertCommand, QuantizingMistakesAreNamed) {
  EXPECT_THAT(error_of({"--from", "x", "--to", "y", "--quantize", "int5"}),
              HasSubstr("--quantize int5: must be one of int4, int8, none"));
  EXPECT_THAT(
      error_of({"--from", "x", "--to", "y", "--quantize", "int4", "--quantize-group", "48"}),
      HasSubstr("--quantize-group 48: must be one of 32, 64, 128"));
  EXPECT_THAT(error_of({"--from", "x", "--to", "y", "--quantize-group", "32"}),
              HasSubstr("need --quantize int4"));
  EXPECT_THAT(error_of({"--from", "x", "--to", "y", "--quantize-embeddings"}),
              HasSubstr("need --quantize int4"));
}

// The files of configs/models are models that run.
TEST(ConvertCommand, EveryShippedSpecIsValid) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(STAGECOACH_SOURCE_DIR "/configs/models")) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(info_command({"--spec", entry.path().string()}), 0) << entry.path();
    const auto text = ::testing::internal::GetCapturedStdout();
    EXPECT_THAT(text, HasSubstr(entry.path().stem().string()));
    ++count;
  }
  EXPECT_GE(count, 8);
}

}  // namespace
}  // namespace stagecoach::cli
