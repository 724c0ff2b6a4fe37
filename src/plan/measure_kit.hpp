#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_memory.hpp"
#include "offload/disk_stream.hpp"
#include "offload/spill_file.hpp"
#include "plan/measure.hpp"

namespace stagecoach::plan {

/// Work of which piece after piece is handed over; `finish` waits for all of them.
struct MeasuredWork {
  std::function<void(std::int64_t piece)> enqueue;
  std::function<void()> finish;
};

/// The streams, memory and disk space of one rank that measures, and its way to the others. Memory
/// holds f16 numbers below 1, of either sign, whose bits are good for packed rows and pages as well
/// and are no large numbers as f32 either.
class MeasureKit {
 public:
  explicit MeasureKit(const MeasureOptions& options);
  MeasureKit(const MeasureKit&) = delete;
  MeasureKit& operator=(const MeasureKit&) = delete;
  MeasureKit(MeasureKit&&) = delete;
  MeasureKit& operator=(MeasureKit&&) = delete;
  ~MeasureKit();

  /// Finds out which ranks share this one's node. Before any figure.
  void meet(comm::Transport& transport, std::function<void(const std::string&)> tell);

  [[nodiscard]] const MeasureOptions& options() const { return options_; }
  [[nodiscard]] const MeasureSizes& sizes() const { return options_.sizes; }
  [[nodiscard]] device::Device& device() const { return *options_.device; }
  [[nodiscard]] device::Device& cpu() const { return *options_.cpu; }
  /// Of the device; two of each kind, so that one can wait for the other.
  [[nodiscard]] device::Stream& compute(int which = 0) const { return *compute_.at(index(which)); }
  [[nodiscard]] device::Stream& copies(int which) const { return *copies_.at(index(which)); }
  /// Of the CPU in DRAM.
  [[nodiscard]] device::Stream& cpu_stream(int which = 0) const { return *cpu_.at(index(which)); }

  /// Weights or pages, on the device.
  [[nodiscard]] std::byte* data() const { return data_.data(); }
  [[nodiscard]] std::size_t data_bytes() const { return data_.size_bytes(); }
  /// Rows that operations read and write, on the device.
  [[nodiscard]] float* work() const { return work_.as<float>(); }
  /// What lies in DRAM; not pinned.
  [[nodiscard]] std::span<std::byte> dram() const { return dram_.bytes(); }
  /// Fills data() with numbers again.
  void fill_data();

  /// Null where no disk is measured.
  [[nodiscard]] const offload::DirectFile* file() const { return spill_ ? &spill_->file : nullptr; }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  /// No more of the file is used: what was never written is not read from the disk.
  void use_file_up_to(std::uint64_t bytes) { file_bytes_ = bytes; }
  [[nodiscard]] offload::DiskStream& disk(int which) const { return *disk_.at(index(which)); }

  [[nodiscard]] comm::Transport& transport() const { return *transport_; }
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }  ///< by rank
  [[nodiscard]] int ranks_of_node() const;
  /// CPUs that the node's ranks may use, all together.
  [[nodiscard]] int cores_of_node() const { return cores_; }

  /// Seconds that a piece takes this rank while the others do the same.
  [[nodiscard]] double seconds_of(const std::string& what, const MeasuredWork& work) const;
  /// Amount a second, the mean of the node's ranks. `amount` is a piece's.
  [[nodiscard]] double rate_of(const std::string& what, double amount,
                               const MeasuredWork& work) const;
  /// The same where a rank has its own way to find seconds.
  [[nodiscard]] double mean_of_node(const std::string& what, double mine) const;
  [[nodiscard]] double sum_of_node(const std::string& what, double mine) const;
  /// What two things reach together, within what can be when they reach `one` and `other` alone: a
  /// noisy machine gives figures that contradict each other. A note says where it was changed.
  [[nodiscard]] double possible_sum(const std::string& what, double sum, double one, double other);
  /// One number of each rank.
  [[nodiscard]] std::vector<double> gather(const std::string& what, double mine) const;

  void tell(const std::string& text) const { tell_(text); }
  void note(std::string line) { notes_.push_back(std::move(line)); }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  /// Work of one stream, which `enqueue` fills.
  static MeasuredWork on(device::Stream& stream, std::function<void(std::int64_t)> enqueue);

 private:
  static std::size_t index(int which) { return static_cast<std::size_t>(which); }
  void open_disk();
  [[nodiscard]] bool on_this_node(std::size_t rank) const;

  const MeasureOptions options_;
  std::vector<std::unique_ptr<device::Stream>> compute_;
  std::vector<std::unique_ptr<device::Stream>> copies_;
  std::vector<std::unique_ptr<device::Stream>> cpu_;
  std::vector<std::byte> pattern_;
  device::Buffer data_;
  device::Buffer work_;
  AlignedMemory dram_;
  std::optional<offload::SpillFile> spill_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::unique_ptr<offload::DiskStream>> disk_;
  comm::Transport* transport_ = nullptr;
  std::vector<std::string> hosts_;
  int cores_ = 1;
  std::function<void(const std::string&)> tell_;
  std::vector<std::string> notes_;
};

}  // namespace stagecoach::plan
