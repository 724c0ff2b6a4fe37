#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/direct_file.hpp"

namespace stagecoach::offload {

/// Disk space of this process: a file without a name, whose space the system takes back when the
/// process ends, however it ends.
struct SpillFile {
  DirectFile file;
  std::vector<std::string> notes;  ///< what the file system refused; for the user, one line each
};

/// Makes a spill file in `folder` and allocates all of its space, so that later writes cannot find
/// the disk full. OutOfMemory names the folder, what is needed and what is free; ConfigError names
/// the folder and why no file can be made there. `flag` is where the folder's name comes from.
SpillFile make_spill_file(const std::string& folder, std::uint64_t size_bytes,
                          const std::string& flag = "--offload-dir");

/// What this user can still write in `folder`'s file system. ConfigError names the folder.
std::uint64_t free_disk_bytes(const std::string& folder, const std::string& flag = "--offload-dir");

}  // namespace stagecoach::offload
