#pragma once

#include <cstddef>
#include <cstdint>

#include "offload/async_io.hpp"

namespace stagecoach::offload {

/// The progress of one IoRequest: what to ask the kernel for next, given its answers so far.
class IoTransfer {
 public:
  explicit IoTransfer(const IoRequest& request) : request_(request) {}

  [[nodiscard]] bool write() const noexcept { return request_.write; }
  [[nodiscard]] int descriptor() const noexcept { return request_.file->descriptor(); }
  [[nodiscard]] std::byte* data() const noexcept { return request_.data + from_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return request_.offset + from_; }
  /// At most 1 GiB, whatever is left.
  [[nodiscard]] std::size_t size_bytes() const noexcept;

  /// Takes the kernel's answer to that: bytes moved, or a negative error number. True when the
  /// request is complete, false when data(), offset() and size_bytes() say what is left. Throws
  /// IoError when it cannot be completed.
  bool advance(std::int64_t answer);

 private:
  void retry_later(int error);
  [[noreturn]] void fail(int error) const;
  [[noreturn]] void fail_without_progress() const;

  IoRequest request_;
  std::size_t from_ = 0;     // where the current attempt begins
  std::size_t reached_ = 0;  // how far an attempt has come
  int retries_ = 0;
};

/// Carries out the request in the calling thread, with pread(2) or pwrite(2). IoError.
void transfer_now(const IoRequest& request);

}  // namespace stagecoach::offload
