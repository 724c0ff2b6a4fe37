#include "offload/transfer_ledger.hpp"

#include <utility>

namespace stagecoach::offload {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TransferLedger::Span* TransferLedger::begin() {
  const std::lock_guard lock(mutex_);
  if (in_flight_++ == 0) {
    busy_since_ = Clock::now();
  }
  ++spans_.back().in_flight;
  return &spans_.back();
}

void TransferLedger::end(Span* span, std::uint64_t size_bytes, bool write) {
  const std::lock_guard lock(mutex_);
  (write ? counters_.bytes_written : counters_.bytes_read) += size_bytes;
  ++counters_.requests;
  --span->in_flight;
  if (--in_flight_ == 0) {
    counters_.busy_seconds += seconds_since(busy_since_);
    idle_.notify_all();
  }
  settle();
}

void TransferLedger::add(std::shared_ptr<device::HostEvent> event) {
  const std::lock_guard lock(mutex_);
  spans_.back().event = std::move(event);
  spans_.emplace_back();
  settle();
}

void TransferLedger::fail() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
}

void TransferLedger::wait_until_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return in_flight_ == 0; });
}

DiskCounters TransferLedger::counters() const {
  const std::lock_guard lock(mutex_);
  auto counters = counters_;
  if (in_flight_ > 0) {
    counters.busy_seconds += seconds_since(busy_since_);
  }
  return counters;
}

void TransferLedger::settle() {
  while (spans_.front().event != nullptr && spans_.front().in_flight == 0) {
    failed_ ? spans_.front().event->drop() : spans_.front().event->pass();
    spans_.pop_front();
  }
}

}  // namespace stagecoach::offload
