#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "comm/nccl_transport.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "model/weight_store.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::cli {
namespace {

using stagecoach::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string output_of(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(info_command(arguments), 0);
  return ::testing::internal::GetCapturedStdout();
}

std::string error_of(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  std::string message;
  try {
    info_command(arguments);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    message = error.what();
  }
  ::testing::internal::GetCapturedStdout();
  return message;
}

std::string opt_175b() { return STAGECOACH_SOURCE_DIR "/configs/models/opt-175b.ini"; }

// FlexGen's paper, section 3: 325 GB of weights, and 1.2 TB of KV cache at 512 sequences of 512 +
// 32 tokens, counted there in powers of 1024.
TEST(InfoCommand, CountsTheMemoryOfThePaper) {
  EXPECT_THAT(
      output_of({"--spec", opt_175b(), "--batch", "512", "--prompt-len", "512", "--gen-len", "32"}),
      AllOf(HasSubstr("174604468224\n"), HasSubstr("weights              325 GiB"),
            HasSubstr("KV cache           1.20 TiB (1314259992576 bytes)"),
            HasSubstr("KV cache a token     4.50 MiB (4718592 bytes)"),
            HasSubstr("a layer            3.38 GiB (3624198144 bytes)"),
            HasSubstr("up.weight          [49152, 12288]     1207959552 bytes  f16"),
            HasSubstr("  format             f16\n")));
}

TEST(InfoCommand, TellsWhatGpusThereAre) {
  EXPECT_THAT(output_of({"--devices"}),
              AllOf(HasSubstr("CUDA                 " + device::cuda_status() + "\n"),
                    HasSubstr("NCCL                 " + comm::nccl_status() + "\n")));
}

TEST(InfoCommand, MistakesAreNamed) {
  EXPECT_THAT(error_of({}), HasSubstr("--model FILE or --spec INI"));
  EXPECT_THAT(error_of({"--spec", opt_175b(), "--verify"}), HasSubstr("--verify needs --model"));
  EXPECT_THAT(error_of({"--spec", opt_175b(), "--model", "x"}), HasSubstr("exclude"));
  EXPECT_THAT(error_of({"--spec", opt_175b(), "--batch", "1"}),
              HasSubstr("--prompt-len is missing"));
  EXPECT_THAT(
      error_of({"--spec", opt_175b(), "--batch", "1", "--prompt-len", "2048", "--gen-len", "1"}),
      HasSubstr("longest sequence is 2048"));
  EXPECT_THAT(error_of({"--model", "/nowhere.h5"}), HasSubstr("/nowhere.h5"));
}

TEST(InfoCommand, PackedStoresHaveTheirOwnBytes) {
  const TempFolder folder;
  const auto spec = folder.write(
      "spec.ini", "layers = 2\nhidden = 64\nheads = 2\nffn = 128\nvocab = 16\nmax_positions = 4\n");
  const auto path = folder.file("model.h5");
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(convert_command({"--dummy", "3", "--spec", spec, "--to", path, "--quantize", "int4",
                             "--quantize-embeddings"}),
            0);
  ::testing::internal::GetCapturedStdout();
  // A row of 64 numbers is 16 + 32 bytes, one of 128 is 16 + 64.
  constexpr int kLayer = 4 * 64 * 48 + 128 * 48 + 64 * 80 + 2 * (9 * 64 + 128);
  constexpr int kTables = 16 * 48 + 6 * 64 * 2;
  EXPECT_THAT(
      output_of({"--model", path, "--batch", "1", "--prompt-len", "1", "--gen-len", "1"}),
      AllOf(HasSubstr("  format             int4, groups of 64, embeddings too\n"),
            HasSubstr(fmt::format("({} bytes)", kLayer)),
            HasSubstr(fmt::format("({} bytes)\n  format", 2 * kLayer + kTables + 256)),
            HasSubstr(fmt::format("embedding          1.50 KiB ({} bytes)", kTables)),
            HasSubstr("down.weight        [64, 128]                5120 bytes  int4, groups of 64"),
            HasSubstr("position.weight    [6, 64]                   768 bytes  f16"),
            HasSubstr(fmt::format("({} bytes)\n  KV", 2 * kLayer + kTables + 256))));
  EXPECT_THAT(output_of({"--model", path, "--verify"}), HasSubstr("every weight matches"));
}

TEST(InfoCommand, VerifyNamesWhatDiffers) {
  const TempFolder folder;
  const auto spec = folder.write(
      "spec.ini", "layers = 2\nhidden = 8\nheads = 2\nffn = 16\nvocab = 16\nmax_positions = 4\n");
  const auto path = folder.file("model.h5");
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(convert_command({"--dummy", "3", "--spec", spec, "--to", path}), 0);
  ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(output_of({"--model", path, "--verify"}), HasSubstr("every weight matches"));
  const auto offset =
      model::read_store_index(path).find(model::layer_group(1), "o.weight").offset_bytes;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset) + 5);
    file.put('\x7e');
  }
  EXPECT_THAT(output_of({"--model", path}), HasSubstr("o.weight"));
  EXPECT_THAT(error_of({"--model", path, "--verify"}),
              HasSubstr("tensors that differ from their checksums: 1, first layers/001/o.weight"));
}

}  // namespace
}  // namespace stagecoach::cli
