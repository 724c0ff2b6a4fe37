#pragma once

#include <string>

namespace stagecoach {

/// A file that appears under its name only when whole: written under a temporary name in the same
/// folder, synced and renamed by `commit`. The destructor removes what was not committed.
class StagedFile {
 public:
  /// Throws ConfigError if `final_path` exists and `overwrite` is false, or its folder does not
  /// exist.
  StagedFile(std::string final_path, bool overwrite);
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  StagedFile(StagedFile&&) = delete;
  StagedFile& operator=(StagedFile&&) = delete;
  ~StagedFile();

  /// Where to write. The file does not exist yet.
  [[nodiscard]] const std::string& temporary_path() const noexcept { return temporary_path_; }

  /// Syncs the temporary file and gives it its final name. Throws IoError.
  void commit();

 private:
  std::string final_path_;
  std::string temporary_path_;
  bool committed_ = false;
};

/// Makes the text file `path`, whole or not at all; errors as StagedFile's.
void write_text_file(const std::string& path, const std::string& text, bool overwrite);

}  // namespace stagecoach
