#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "model/spec.hpp"

namespace stagecoach::model {

/// Owns one HDF5 identifier; `Close` is its H5?close function. A failing close is ignored: files
/// are closed by Hdf5File::close, which checks.
template <herr_t (*Close)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() noexcept = default;
  explicit Hdf5Handle(hid_t id) noexcept : id_(id) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  ~Hdf5Handle() {
    if (id_ >= 0) {
      Close(id_);
    }
  }

  [[nodiscard]] hid_t id() const noexcept { return id_; }
  [[nodiscard]] hid_t release() noexcept { return std::exchange(id_, H5I_INVALID_HID); }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using Hdf5File = Hdf5Handle<H5Fclose>;
using Hdf5Group = Hdf5Handle<H5Gclose>;
using Hdf5Dataset = Hdf5Handle<H5Dclose>;
using Hdf5Object = Hdf5Handle<H5Oclose>;
using Hdf5Space = Hdf5Handle<H5Sclose>;
using Hdf5Type = Hdf5Handle<H5Tclose>;
using Hdf5Attribute = Hdf5Handle<H5Aclose>;
using Hdf5Properties = Hdf5Handle<H5Pclose>;

/// Held while HDF5 is called: one thread at a time, since the library of the distributions is not
/// thread-safe, and with its printing of error stacks off (as it was before, afterwards).
class Hdf5Session {
 public:
  Hdf5Session();
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;
  Hdf5Session(Hdf5Session&&) = delete;
  Hdf5Session& operator=(Hdf5Session&&) = delete;
  ~Hdf5Session();

 private:
  std::unique_lock<std::mutex> lock_;
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
};

/// HDF5's own word on what failed last, one line; needs a session.
std::string hdf5_reason();

/// The 16-bit float of the store, little-endian binary16.
Hdf5Type make_half_type();

/// How stores are opened and made: no file locks (they fail on shared file systems), current format
/// (every metadata block has a checksum), datasets of at least `alignment_threshold` bytes on
/// pages.
Hdf5Properties make_file_access(std::size_t alignment_threshold);

}  // namespace stagecoach::model
