#include "plan/measure_kit.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/half.hpp"
#include "base/hash.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "comm/collectives.hpp"
#include "plan/measure_cases.hpp"
#include "plan/measure_timing.hpp"

namespace stagecoach::plan {
namespace {

constexpr std::size_t kMostPatternBytes = std::size_t{4} << 20;
constexpr const char* kPurpose = "measuring";

// Many values: how fast some processors compute depends on the bits.
std::vector<std::byte> make_pattern(std::size_t size_bytes) {
  std::vector<std::byte> pattern(size_bytes);
  for (std::size_t i = 0; i < size_bytes / sizeof(Half); ++i) {
    const Half value = to_half(static_cast<float>(mix_bits(i) >> 40) * 0x1p-23f - 1.0f);
    std::memcpy(pattern.data() + i * sizeof(Half), &value, sizeof value);
  }
  return pattern;
}

void fill_with(std::span<std::byte> memory, std::span<const std::byte> pattern) {
  for (std::size_t at = 0; at < memory.size(); at += pattern.size()) {
    std::memcpy(memory.data() + at, pattern.data(), std::min(pattern.size(), memory.size() - at));
  }
}

}  // namespace

MeasureKit::MeasureKit(const MeasureOptions& options)
    : options_(options),
      pattern_(make_pattern(std::min(options.sizes.device_data_bytes, kMostPatternBytes))),
      data_(options.device->allocate(options.sizes.device_data_bytes, kPurpose)),
      work_(options.device->allocate(work_bytes(options.sizes), kPurpose)),
      dram_(options.sizes.dram_bytes, kPurpose) {
  for (const char* name : {"measured", "measured too"}) {
    compute_.push_back(device().create_stream(name));
    copies_.push_back(device().create_stream(name));
    cpu_.push_back(cpu().create_stream(name));
  }
  fill_with(dram_.bytes(), pattern_);
  fill_data();
  if (!options_.folder.empty()) {
    open_disk();
  }
}

MeasureKit::~MeasureKit() = default;

void MeasureKit::fill_data() {
  const auto fill = [&](std::byte* to, std::size_t size_bytes) {
    for (std::size_t at = 0; at < size_bytes; at += pattern_.size()) {
      device().copy_from_host(compute(), to + at, pattern_.data(),
                              std::min(pattern_.size(), size_bytes - at));
    }
  };
  fill(data_.data(), data_.size_bytes());
  fill(work_.data(), work_.size_bytes());
  compute().record().wait();
}

void MeasureKit::open_disk() {
  const auto& sizes = options_.sizes;
  const auto largest = *std::max_element(sizes.disk_transfers.begin(), sizes.disk_transfers.end());
  const auto least = 2 * static_cast<std::uint64_t>(largest);
  const auto free_bytes = offload::free_disk_bytes(options_.folder, "--folder");
  file_bytes_ = std::max(std::min(sizes.disk_bytes, free_bytes / 10) / largest * largest, least);
  spill_ = offload::make_spill_file(options_.folder, file_bytes_, "--folder");
  for (const auto& line : spill_->notes) {
    note(line);
  }
  for (const char* name : {"disk_read", "disk_write"}) {
    disk_.push_back(offload::make_disk_stream(name, {}, *options_.abort));
  }
  note(fmt::format("disk: {}, a file of {} for each stage", disk_.front()->description(),
                   format_bytes(file_bytes_)));
}

void MeasureKit::meet(comm::Transport& transport, std::function<void(const std::string&)> tell) {
  transport_ = &transport;
  tell_ = std::move(tell);
  const auto cpus = usable_cpus();
  ByteWriter out;
  out.put_string(options_.host.empty() ? host_name() : options_.host);
  out.put_vector(cpus);
  std::vector<std::vector<int>> cpus_of;
  for (const auto& bytes :
       comm::all_gather(transport, std::move(out).take(), "who shares a node")) {
    ByteReader in(bytes);
    hosts_.push_back(in.get_string());
    cpus_of.push_back(in.get_vector<int>());
  }
  std::set<int> all;
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    if (on_this_node(rank)) {
      all.insert(cpus_of[rank].begin(), cpus_of[rank].end());
    }
  }
  cores_ = static_cast<int>(all.size());
}

bool MeasureKit::on_this_node(std::size_t rank) const {
  return hosts_[rank] == hosts_[static_cast<std::size_t>(transport_->rank())];
}

int MeasureKit::ranks_of_node() const {
  int count = 0;
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    count += on_this_node(rank) ? 1 : 0;
  }
  return count;
}

double MeasureKit::seconds_of(const std::string& what, const MeasuredWork& work) const {
  comm::barrier(*transport_, what);
  std::int64_t piece = 0;
  return seconds_of_a_piece(
      [&](std::int64_t pieces) {
        const double start = now_seconds();
        for (std::int64_t i = 0; i < pieces; ++i) {
          work.enqueue(piece++);
        }
        work.finish();
        return now_seconds() - start;
      },
      options_.seconds);
}

double MeasureKit::rate_of(const std::string& what, double amount, const MeasuredWork& work) const {
  return mean_of_node(what, amount / seconds_of(what, work));
}

std::vector<double> MeasureKit::gather(const std::string& what, double mine) const {
  ByteWriter out;
  out.put(mine);
  std::vector<double> all;
  for (const auto& bytes : comm::all_gather(*transport_, std::move(out).take(), what)) {
    all.push_back(ByteReader(bytes).get<double>());
  }
  return all;
}

double MeasureKit::sum_of_node(const std::string& what, double mine) const {
  const auto all = gather(what, mine);
  double sum = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    sum += on_this_node(rank) ? all[rank] : 0;
  }
  return rounded(sum);
}

double MeasureKit::mean_of_node(const std::string& what, double mine) const {
  return rounded(sum_of_node(what, mine) / ranks_of_node());
}

double MeasureKit::possible_sum(const std::string& what, double sum, double one, double other) {
  const double possible = std::clamp(sum, std::min(one, other) / 2, one + other);
  if (possible != sum) {
    note(fmt::format("{}: {:.3g} was measured, which {:.3g} and {:.3g} alone do not allow", what,
                     sum, one, other));
  }
  return rounded(possible);
}

MeasuredWork MeasureKit::on(device::Stream& stream, std::function<void(std::int64_t)> enqueue) {
  return {.enqueue = std::move(enqueue), .finish = [&stream] { stream.record().wait(); }};
}

}  // namespace stagecoach::plan
