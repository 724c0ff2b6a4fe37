#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/measure.hpp"

namespace stagecoach::cli {

/// What `stagecoach profile` is asked for. Sizes of 0: what is free.
struct ProfileOptions {
  std::string out;     ///< folder of the profiles
  std::string folder;  ///< whose disk is measured; empty: none
  std::string device = "auto";
  std::string isa = "auto";
  int threads = 0;  ///< 0: the machine's CPUs shared out
  bool overwrite = false;
  double watts = 0;
  double seconds = 0;  ///< a figure
  std::size_t device_mem_bytes = 0;
  std::size_t cpu_mem_bytes = 0;
  std::size_t disk_mem_bytes = 0;
  plan::MeasureSizes sizes{};
};

/// Nothing after --help. ConfigError if something makes no sense.
std::optional<ProfileOptions> read_profile_options(const std::vector<std::string>& arguments);

/// For the other ranks, which need not have the files that rank 0 read.
std::vector<std::byte> to_bytes(const ProfileOptions& options);
ProfileOptions profile_options_from(const std::vector<std::byte>& bytes);

}  // namespace stagecoach::cli
