// disk_probe FOLDER auto|uring|threads: writes and reads a spill file through a disk stream, and
// says what it saw.
#include <cstring>
#include <iostream>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "offload/disk_stream.hpp"
#include "offload/spill_file.hpp"

namespace stagecoach::offload {
namespace {

constexpr std::size_t kBytes = 16 * kDiskAlignment;

DiskOptions options_for(const std::string& backend) {
  DiskOptions options;
  options.depth = 4;
  options.request_bytes = kDiskAlignment;
  options.backend = backend == "uring"     ? DiskBackend::uring
                    : backend == "threads" ? DiskBackend::threads
                                           : DiskBackend::automatic;
  return options;
}

void probe(const std::string& folder, const std::string& backend) {
  const auto spill = make_spill_file(folder, kBytes);
  for (const auto& note : spill.notes) {
    std::cout << note << '\n';
  }
  const auto program = DirectFile::open_for_reading("/proc/self/exe");
  std::cout << "program " << (program.direct() ? "direct" : "buffered") << '\n';
  const AlignedMemory memory(2 * kBytes, "probe");
  const auto out = memory.bytes().first(kBytes);
  const auto back = memory.bytes().last(kBytes);
  std::memset(out.data(), 7, kBytes);
  AbortSignal abort;
  try {
    const auto stream = make_disk_stream("probe", options_for(backend), abort);
    std::cout << stream->description() << std::endl;
    stream->write(spill.file, 0, out);
    stream->wait(stream->record());
    stream->read(spill.file, 0, back, kBytes);
    stream->record().wait();
  } catch (const JobAborted&) {
    std::rethrow_exception(abort.cause());
  }
  std::cout << (std::memcmp(out.data(), back.data(), kBytes) == 0 ? "same" : "different") << '\n';
}

}  // namespace
}  // namespace stagecoach::offload

int main(int argc, char** argv) {
  try {
    stagecoach::offload::probe(argc > 1 ? argv[1] : ".", argc > 2 ? argv[2] : "auto");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
