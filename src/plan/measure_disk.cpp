#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "plan/measure_cases.hpp"
#include "plan/measure_timing.hpp"

namespace stagecoach::plan {
namespace {

// More than a stream has in flight, where memory allows it.
constexpr std::size_t kMostSlots = 16;
// Far from the one before, so that a disk which reads ahead is not flattered; a prime, so that no
// place comes twice in a round.
constexpr std::uint64_t kStride = 1000003;
constexpr double kFillingFigures = 12;  // so many figures' time for the first write of the file

/// A part of the file and of DRAM, in pieces that are transferred in turns.
class Region {
 public:
  Region(const MeasureKit& kit, int stream, std::size_t piece_bytes, std::uint64_t first_byte,
         std::uint64_t file_bytes, std::span<std::byte> memory)
      : kit_(kit),
        stream_(stream),
        piece_bytes_(piece_bytes),
        first_byte_(first_byte),
        places_(file_bytes / piece_bytes),
        memory_(memory),
        slots_(std::min(memory.size() / piece_bytes, kMostSlots)) {
    STAGECOACH_CHECK(places_ > 0 && !slots_.empty(), "too little to measure transfers of {} bytes",
                     piece_bytes);
  }

  void read(std::int64_t piece) {
    const auto out = slot(piece);
    stream().read(*kit_.file(), place(piece, kStride), out, out.size());
    done(piece);
  }
  void write(std::int64_t piece) { write_at(piece, kStride); }
  void write_in_order(std::int64_t piece) { write_at(piece, 1); }
  void finish() { stream().record().wait(); }

 private:
  [[nodiscard]] offload::DiskStream& stream() const { return kit_.disk(stream_); }
  [[nodiscard]] std::uint64_t place(std::int64_t piece, std::uint64_t stride) const {
    return first_byte_ + static_cast<std::uint64_t>(piece) * stride % places_ * piece_bytes_;
  }
  /// Free again: the transfer that used it has ended.
  [[nodiscard]] std::span<std::byte> slot(std::int64_t piece) {
    const auto index = static_cast<std::size_t>(piece) % slots_.size();
    slots_[index].wait();
    return memory_.subspan(index * piece_bytes_, piece_bytes_);
  }
  void write_at(std::int64_t piece, std::uint64_t stride) {
    const auto data = slot(piece);
    stream().write(*kit_.file(), place(piece, stride), data);
    done(piece);
  }
  void done(std::int64_t piece) {
    slots_[static_cast<std::size_t>(piece) % slots_.size()] = stream().record();
  }

  const MeasureKit& kit_;
  int stream_;
  std::size_t piece_bytes_;
  std::uint64_t first_byte_;
  std::uint64_t places_;
  std::span<std::byte> memory_;
  std::vector<device::Event> slots_;
};

constexpr int kReads = 0;
constexpr int kWrites = 1;

/// Writes the file once, or as much of it as there is time for.
void fill_file(MeasureKit& kit, std::size_t largest) {
  Region whole(kit, kWrites, largest, 0, kit.file_bytes(), kit.dram());
  const auto pieces = static_cast<std::int64_t>(kit.file_bytes() / largest);
  const double end = now_seconds() + kFillingFigures * kit.options().seconds;
  std::int64_t written = 0;
  while (written < pieces && (written < 2 || now_seconds() < end)) {
    whole.write_in_order(written++);
  }
  whole.finish();
  kit.use_file_up_to(static_cast<std::uint64_t>(written) * largest);
}

double rate(const MeasureKit& kit, bool reading, std::size_t bytes) {
  Region region(kit, reading ? kReads : kWrites, bytes, 0, kit.file_bytes(), kit.dram());
  return kit.rate_of(
      fmt::format("{} {} at a time", reading ? "reading" : "writing", format_bytes(bytes)),
      static_cast<double>(bytes),
      {.enqueue = [&](auto piece) { reading ? region.read(piece) : region.write(piece); },
       .finish = [&] { region.finish(); }});
}

double together(const MeasureKit& kit, std::size_t bytes) {
  const auto half = kit.file_bytes() / 2 / bytes * bytes;
  const auto memory = kit.dram();
  const auto middle = memory.size() / 2 / kPageBytes * kPageBytes;
  Region reads(kit, kReads, bytes, 0, half, memory.first(middle));
  Region writes(kit, kWrites, bytes, half, half, memory.subspan(middle));
  return kit.rate_of("reading and writing", 2.0 * static_cast<double>(bytes),
                     {.enqueue =
                          [&](auto piece) {
                            reads.read(piece);
                            writes.write(piece);
                          },
                      .finish =
                          [&] {
                            reads.finish();
                            writes.finish();
                          }});
}

double highest(const Curve& curve) {
  double rate = 0;
  for (const auto& point : curve.points()) {
    rate = std::max(rate, point.rate);
  }
  return rate;
}

}  // namespace

void measure_disk(MeasureKit& kit, NodeProfile& profile) {
  if (kit.file() == nullptr) {
    return;
  }
  const auto& transfers = kit.sizes().disk_transfers;
  fill_file(kit, transfers.back());
  std::vector<Curve::Point> reads;
  std::vector<Curve::Point> writes;
  for (const auto bytes : transfers) {
    const auto size = static_cast<double>(bytes);
    writes.push_back({size, rate(kit, false, bytes)});
    reads.push_back({size, rate(kit, true, bytes)});
    kit.tell(fmt::format("disk, {}: {:.1f} MB/s read, {:.1f} MB/s written", format_bytes(bytes),
                         reads.back().rate * 1e-6, writes.back().rate * 1e-6));
  }
  auto& disk = profile.disk;
  disk.read = Curve(std::move(reads));
  disk.write = Curve(std::move(writes));
  const auto request = std::min(offload::DiskOptions{}.request_bytes, transfers.back());
  disk.together = kit.possible_sum("disk, both ways", together(kit, request), highest(disk.read),
                                   highest(disk.write));
  kit.tell(fmt::format("disk, reading and writing: {:.1f} MB/s", disk.together * 1e-6));
}

}  // namespace stagecoach::plan
