#include "stage/stage_streams.hpp"

#include "base/error.hpp"
#include "device/host/host_device.hpp"

namespace stagecoach::stage {
namespace {

std::size_t index_of(Resource resource) { return static_cast<std::size_t>(resource); }

}  // namespace

StageStreams::StageStreams(device::Device& device, device::Device* cpu, bool disk,
                           const offload::DiskOptions& disk_options, AbortSignal& abort) {
  for (const auto resource : {Resource::compute, Resource::h2d, Resource::d2h}) {
    streams_[index_of(resource)] = device.create_stream(to_string(resource));
  }
  for (const auto resource : {Resource::send, Resource::receive}) {
    streams_[index_of(resource)] =
        device::make_host_stream(to_string(resource), abort, disk_options.delay_seed);
  }
  if (cpu != nullptr) {
    streams_[index_of(Resource::cpu_compute)] = cpu->create_stream("cpu");
  }
  if (disk) {
    for (const auto resource : {Resource::disk_read, Resource::disk_write}) {
      streams_[index_of(resource)] =
          offload::make_disk_stream(to_string(resource), disk_options, abort);
    }
  }
}

bool StageStreams::has(Resource resource) const { return streams_[index_of(resource)] != nullptr; }

device::Stream& StageStreams::of(Resource resource) const {
  STAGECOACH_CHECK(has(resource), "this stage has no {} stream", to_string(resource));
  return *streams_[index_of(resource)];
}

offload::DiskStream& StageStreams::disk(Resource resource) const {
  STAGECOACH_CHECK(!one_at_a_time(resource));
  return static_cast<offload::DiskStream&>(of(resource));
}

}  // namespace stagecoach::stage
