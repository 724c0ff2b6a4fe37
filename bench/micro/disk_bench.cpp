// disk_bench FILE [SECONDS]: how fast a disk stream reads FILE, over and over.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "offload/disk_stream.hpp"

namespace stagecoach::offload {
namespace {

constexpr std::size_t kBuffers = 16;

void bench(const std::string& path, double seconds, AbortSignal& abort) {
  const DiskOptions options;
  const auto file = DirectFile::open_for_reading(path);
  const auto pieces = file.size_bytes() / options.request_bytes;
  if (pieces == 0) {
    throw ConfigError(fmt::format("{} is too small: give a file of several GiB", path));
  }
  const AlignedMemory memory(kBuffers * options.request_bytes, "buffers");
  std::array<device::Event, kBuffers> read;
  const auto stream = make_disk_stream("bench", options, abort);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (std::size_t i = 0; elapsed() < seconds; ++i) {
    auto& event = read.at(i % kBuffers);
    event.wait();
    stream->read(
        file, i % pieces * options.request_bytes,
        memory.bytes().subspan(i % kBuffers * options.request_bytes, options.request_bytes),
        options.request_bytes);
    event = stream->record();
  }
  stream->record().wait();
  fmt::print("{:.0f} MB/s ({}, {})\n",
             static_cast<double>(stream->counters().bytes_read) / elapsed() / 1e6,
             stream->description(), file.direct() ? "direct" : "through the page cache");
}

}  // namespace
}  // namespace stagecoach::offload

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fmt::print(stderr, "usage: disk_bench FILE [SECONDS]\n");
    return 2;
  }
  stagecoach::AbortSignal abort;
  try {
    try {
      stagecoach::offload::bench(argv[1], argc > 2 ? std::atof(argv[2]) : 10, abort);
    } catch (const stagecoach::JobAborted&) {
      std::rethrow_exception(abort.cause());
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "disk_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
