#pragma once

#include <string>

namespace stagecoach::testing {

/// A fresh folder that is removed, with all in it, by the destructor.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  TempFolder(TempFolder&&) = delete;
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// path()/name
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Writes `text` to file(name) and returns that path.
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

/// The bundled checkpoint's folder (examples/tiny-opt).
std::string tiny_opt_folder();

}  // namespace stagecoach::testing
