#include "job/stage_device.hpp"

#include <charconv>
#include <string_view>

#include "base/error.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "device/host/host_device.hpp"

namespace stagecoach::job {

DeviceChoice parse_device(const std::string& text, const std::string& flag) {
  using Kind = DeviceChoice::Kind;
  if (text == "auto") {
    return {.kind = Kind::automatic};
  }
  if (text == "host") {
    return {.kind = Kind::host};
  }
  if (text == "cuda") {
    return {.kind = Kind::cuda};
  }
  constexpr std::string_view kNumbered = "cuda:";
  DeviceChoice choice{.kind = Kind::cuda, .index = 0};
  if (text.starts_with(kNumbered)) {
    const auto* const end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data() + kNumbered.size(), end, choice.index);
    if (code == std::errc{} && stop == end && choice.index >= 0) {
      return choice;
    }
  }
  throw ConfigError(fmt::format("{} {}: must be host, cuda, cuda:N or auto", flag, text));
}

StageDevice find_device(const std::string& text, const comm::Transport& transport) {
  const auto choice = parse_device(text, "--device");
  if (choice.kind == DeviceChoice::Kind::host) {
    return {};
  }
  const auto gpus = device::cuda_devices();
  const auto count = static_cast<int>(gpus.size());
  if (count == 0) {
    if (choice.kind == DeviceChoice::Kind::automatic) {
      return {};
    }
    throw ConfigError(fmt::format("--device {}: {}", text, device::cuda_status()));
  }
  if (choice.index >= count) {
    throw ConfigError(fmt::format("--device {}: there {} {} GPU{}, numbered from 0", text,
                                  count == 1 ? "is" : "are", count, count == 1 ? "" : "s"));
  }
  const auto index =
      choice.index == DeviceChoice::kByRank ? transport.rank_on_this_host() % count : choice.index;
  return {
      .cuda = true, .index = index, .pci_bus_id = gpus[static_cast<std::size_t>(index)].pci_bus_id};
}

std::unique_ptr<device::Device> make_device(const StageDevice& where, const JobConfig& config,
                                            int threads, std::size_t memory_bytes,
                                            AbortSignal& abort) {
  if (where.cuda) {
    return device::make_cuda_device(
        {.index = where.index, .memory_bytes = memory_bytes, .delay_seed = config.test_delay_seed},
        abort);
  }
  return device::make_host_device({.threads = threads,
                                   .isa = config.isa,
                                   .memory_bytes = memory_bytes,
                                   .host_addressable = !config.test_staging,
                                   .delay_seed = config.test_delay_seed},
                                  abort);
}

std::unique_ptr<device::Device> make_cpu_device(const JobConfig& config, int threads,
                                                std::size_t memory_bytes, AbortSignal& abort) {
  return device::make_host_device({.threads = threads,
                                   .isa = config.isa,
                                   .memory_bytes = memory_bytes,
                                   .delay_seed = config.test_delay_seed},
                                  abort);
}

}  // namespace stagecoach::job
