#include "base/staged_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/error.hpp"
#include "base/file.hpp"

namespace stagecoach {
namespace {

void sync_path(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) {
    throw IoError(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  const bool failed = ::fsync(descriptor) != 0 && errno != EINVAL;
  const int cause = errno;
  ::close(descriptor);
  if (failed) {
    throw IoError(fmt::format("cannot sync {}: {}", path, std::strerror(cause)));
  }
}

std::string folder_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

StagedFile::StagedFile(std::string final_path, bool overwrite)
    : final_path_(std::move(final_path)),
      temporary_path_(fmt::format("{}.tmp.{}", final_path_, ::getpid())) {
  std::error_code ignored;
  if (!overwrite && std::filesystem::exists(final_path_, ignored)) {
    throw ConfigError(fmt::format("{} exists: pass --overwrite to replace it", final_path_));
  }
  if (!std::filesystem::is_directory(folder_of(final_path_), ignored)) {
    throw ConfigError(
        fmt::format("cannot write {}: there is no folder {}", final_path_, folder_of(final_path_)));
  }
}

StagedFile::~StagedFile() {
  if (!committed_) {
    ::unlink(temporary_path_.c_str());
  }
}

void StagedFile::commit() {
  sync_path(temporary_path_, O_RDONLY);
  if (std::rename(temporary_path_.c_str(), final_path_.c_str()) != 0) {
    throw IoError(fmt::format("cannot rename {} to {}: {}", temporary_path_, final_path_,
                              std::strerror(errno)));
  }
  committed_ = true;
  sync_path(folder_of(final_path_), O_RDONLY | O_DIRECTORY);
}

void write_text_file(const std::string& path, const std::string& text, bool overwrite) {
  StagedFile staged(path, overwrite);
  File(staged.temporary_path(), File::Mode::create).write_at(std::as_bytes(std::span(text)), 0);
  staged.commit();
}

}  // namespace stagecoach
