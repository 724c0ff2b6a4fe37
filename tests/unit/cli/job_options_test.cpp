#include "cli/job_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cli/run_options.hpp"

namespace stagecoach::cli {
namespace {

using job::TransportKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

job::JobConfig read(const Words& options, int launched_ranks) {
  Words words = {"--model", "m.h5", "--prompts", "p.jsonl", "--output", "o.jsonl"};
  words.insert(words.end(), options.begin(), options.end());
  return read_run_options(words, launched_ranks).value();
}

std::string refusal(const Words& options, int launched_ranks) {
  try {
    read(options, launched_ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JobOptions, TheTransportIsByItselfWhatTheLaunchWas) {
  EXPECT_EQ(read({}, 1).transport, TransportKind::loopback);
  EXPECT_EQ(read({}, 1).stages, 1);
  EXPECT_EQ(read({"--stages", "3"}, 1).stages, 3);
  EXPECT_EQ(read({}, 4).transport, TransportKind::automatic);
  EXPECT_EQ(read({}, 4).stages, 4);
}

TEST(JobOptions, TheTransportIsWhatWasAskedFor) {
  EXPECT_EQ(read({"--transport", "mpi"}, 2).transport, TransportKind::mpi);
  EXPECT_EQ(read({"--transport", "nccl"}, 2).transport, TransportKind::nccl);
  EXPECT_EQ(read({"--transport", "nccl"}, 2).stages, 2);
  EXPECT_EQ(read({"--transport", "loopback"}, 1).transport, TransportKind::loopback);
  EXPECT_THAT(refusal({"--transport", "pigeon"}, 1),
              AllOf(HasSubstr("--transport pigeon"), HasSubstr("nccl")));
  EXPECT_THAT(refusal({"--transport", "loopback"}, 2), HasSubstr("leave mpirun out"));
  for (const auto* transport : {"mpi", "nccl", "auto"}) {
    EXPECT_THAT(refusal({"--transport", transport, "--stages", "3"}, 2),
                HasSubstr("use mpirun -n 3"));
  }
}

TEST(JobOptions, TheDeviceIsByItselfWhatThereIs) {
  EXPECT_EQ(read({}, 1).device, "auto");
  EXPECT_EQ(read({"--device", "host"}, 1).device, "host");
  EXPECT_EQ(read({"--device", "cuda:1"}, 1).device, "cuda:1");
  EXPECT_THAT(refusal({"--device", "tpu"}, 1),
              HasSubstr("--device tpu: must be host, cuda, cuda:N or auto"));
}

}  // namespace
}  // namespace stagecoach::cli
