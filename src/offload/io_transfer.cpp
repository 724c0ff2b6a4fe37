#include "offload/io_transfer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

// What one system call moves at most is a little less than 2 GiB.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;
constexpr int kMostRetries = 5000;
constexpr auto kRetryPause = std::chrono::milliseconds(1);

}  // namespace

std::size_t IoTransfer::size_bytes() const noexcept {
  return std::min(request_.size_bytes - from_, kMostAtOnce);
}

bool IoTransfer::advance(std::int64_t answer) {
  if (answer < 0) {
    retry_later(static_cast<int>(-answer));
    return false;
  }
  const auto reached = from_ + static_cast<std::size_t>(answer);
  if (reached >= (request_.write ? request_.size_bytes : request_.least_bytes)) {
    return true;
  }
  if (reached <= reached_) {
    fail_without_progress();
  }
  reached_ = reached;
  // A direct transfer cannot begin where a short one stopped: the last block is moved again.
  from_ = request_.file->direct() ? reached / kDiskAlignment * kDiskAlignment : reached;
  return false;
}

void IoTransfer::retry_later(int error) {
  if ((error != EINTR && error != EAGAIN) || ++retries_ > kMostRetries) {
    fail(error);
  }
  if (error == EAGAIN) {
    std::this_thread::sleep_for(kRetryPause);
  }
}

void IoTransfer::fail(int error) const {
  const bool full = request_.write && (error == ENOSPC || error == EDQUOT);
  throw IoError(fmt::format("cannot {} {} at byte {}: {}{}", request_.write ? "write" : "read",
                            request_.file->path(), offset(), std::strerror(error),
                            full ? ": free space there or choose another --offload-dir" : ""));
}

void IoTransfer::fail_without_progress() const {
  const auto end = request_.offset + reached_;
  if (request_.write) {
    throw IoError(fmt::format("cannot write {} at byte {}: the system takes no more bytes",
                              request_.file->path(), end));
  }
  throw IoError(fmt::format("{} ended at byte {}: truncated? {} more bytes were expected",
                            request_.file->path(), end, request_.least_bytes - reached_));
}

void transfer_now(const IoRequest& request) {
  IoTransfer transfer(request);
  std::int64_t answer = 0;
  do {
    const auto offset = static_cast<off_t>(transfer.offset());
    answer = transfer.write()
                 ? ::pwrite(transfer.descriptor(), transfer.data(), transfer.size_bytes(), offset)
                 : ::pread(transfer.descriptor(), transfer.data(), transfer.size_bytes(), offset);
  } while (!transfer.advance(answer < 0 ? -errno : answer));
}

}  // namespace stagecoach::offload
