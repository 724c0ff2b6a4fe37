#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stagecoach::offload {

/// Offsets, sizes and addresses of direct transfers are multiples of this.
inline constexpr std::size_t kDiskAlignment = 4096;

/// An open file for aligned transfers that pass the page cache by where the file system allows it.
class DirectFile {
 public:
  /// Falls back to the page cache where O_DIRECT is refused. IoError names the path.
  static DirectFile open_for_reading(std::string path);

  /// Takes over an open descriptor; `path` is what errors call it.
  DirectFile(std::string path, int descriptor, bool direct) noexcept;
  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  /// False where transfers go through the page cache.
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size_bytes() const;

 private:
  std::string path_;
  int descriptor_;
  bool direct_;
};

}  // namespace stagecoach::offload
