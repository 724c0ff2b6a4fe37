#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace stagecoach {

/// An open file descriptor with positioned, complete reads and writes. Every error is an IoError
/// that names the path. Positioned calls may run from several threads at once.
class File {
 public:
  enum class Mode {
    read,     ///< must exist
    create,   ///< must not exist
    truncate  ///< made, or emptied
  };

  File() noexcept = default;
  File(std::string path, Mode mode);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::uint64_t size_bytes() const;

  /// Fills `out` from `offset`; an end of file before that is an IoError.
  void read_at(std::span<std::byte> out, std::uint64_t offset) const;
  /// Writes all of `data` at `offset`.
  void write_at(std::span<const std::byte> data, std::uint64_t offset) const;
  void truncate_to(std::uint64_t size_bytes) const;
  /// Waits until the data is on the disk (fdatasync). Pipes and terminals, which have none, pass.
  void sync() const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// The whole file as a string; IoError names the path.
std::string read_text_file(const std::string& path);

}  // namespace stagecoach
