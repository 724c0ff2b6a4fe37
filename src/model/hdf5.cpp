#include "model/hdf5.hpp"

#include "base/aligned_memory.hpp"
#include "base/error.hpp"

namespace stagecoach::model {
namespace {

// HDF5 itself is one state for the whole process, so its lock is too. Its exit handler is left out:
// every file is closed by then, and after a damaged file it prints of an endless loop (1.10.8).
std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  static const herr_t without_exit_handler = H5dont_atexit();
  static_cast<void>(without_exit_handler);
  return mutex;
}

template <typename Result>
Result checked(Result result, const char* what) {
  if (result < 0) {
    throw InternalError(fmt::format("HDF5: cannot {}: {}", what, hdf5_reason()));
  }
  return result;
}

}  // namespace

Hdf5Session::Hdf5Session() : lock_(hdf5_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Session::~Hdf5Session() {
  H5Eclear2(H5E_DEFAULT);
  H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_);
}

std::string hdf5_reason() {
  std::string reason;
  const auto take_first = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto& text = *static_cast<std::string*>(out);
    if (text.empty() && error->desc != nullptr) {
      text = error->desc;
    }
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  return reason.empty() ? "HDF5 gives no reason" : reason;
}

Hdf5Type make_half_type() {
  Hdf5Type type(checked(H5Tcopy(H5T_IEEE_F32LE), "make a number type"));
  checked(H5Tset_fields(type.id(), 15, 10, 5, 0, 10), "make the binary16 type");
  checked(H5Tset_size(type.id(), 2), "make the binary16 type");
  checked(H5Tset_ebias(type.id(), 15), "make the binary16 type");
  return type;
}

Hdf5Properties make_file_access(std::size_t alignment_threshold) {
  Hdf5Properties access(checked(H5Pcreate(H5P_FILE_ACCESS), "make file properties"));
  checked(H5Pset_alignment(access.id(), alignment_threshold, kPageBytes), "set the alignment");
  checked(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110), "set the format");
  checked(H5Pset_file_locking(access.id(), false, true), "turn file locks off");
  checked(H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG), "set how files close");
  return access;
}

}  // namespace stagecoach::model
