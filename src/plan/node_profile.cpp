#include "plan/node_profile.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"

namespace stagecoach::plan {
namespace {

/// What `before` stages had each, for each of `after`.
std::size_t share(std::size_t bytes, std::size_t before, std::size_t after) {
  // In two parts: the product of both may be beyond 64 bits.
  return bytes / after * before + bytes % after * before / after;
}

Curve scaled(const Curve& curve, double factor) {
  return curve.empty() ? curve : curve.scaled(factor);
}

void scale_sizes(NodeProfile& profile, int before, int after) {
  const auto change = [&](std::size_t& bytes) {
    bytes = share(bytes, static_cast<std::size_t>(before), static_cast<std::size_t>(after));
  };
  change(profile.cpu_mem_bytes);
  change(profile.pinned_mem_bytes);
  change(profile.disk_mem_bytes);
  if (!profile.gpu) {
    change(profile.device_mem_bytes);
  }
}

void scale_disk(DiskRates& disk, double factor) {
  disk.read = scaled(disk.read, factor);
  disk.write = scaled(disk.write, factor);
  disk.together *= factor;
}

/// What the CPU does for every device.
void scale_cpu_attention(NodeProfile& profile, double factor) {
  for (auto& [type, rates] : profile.caches) {
    rates.cpu = scaled(rates.cpu, factor);
    rates.store *= factor;
  }
}

/// What the CPU does as the device.
void scale_device(NodeProfile& profile, double factor) {
  for (auto& [packing, rates] : profile.formats) {
    for (auto& [width, curve] : rates.products) {
      curve = scaled(curve, factor);
    }
    rates.widen *= factor;
  }
  for (auto& [type, rates] : profile.caches) {
    rates.device = scaled(rates.device, factor);
  }
  profile.prompt_attention_flops *= factor;
  profile.row_bytes_per_second *= factor;
  profile.sampled_logits_per_second *= factor;
}

}  // namespace

NodeProfile read_profile(const std::string& path) {
  if (std::error_code ignored; !std::filesystem::is_regular_file(path, ignored)) {
    throw ConfigError(
        fmt::format("there is no node profile {}; write one with 'stagecoach profile'", path));
  }
  return parse_profile(read_text_file(path), path);
}

NodeProfile for_stages(const NodeProfile& profile, int stages) {
  STAGECOACH_CHECK(stages >= 1 && profile.stages >= 1 && profile.threads >= 1);
  auto changed = profile;
  if (stages == profile.stages) {
    return changed;
  }
  // As many cores as were at work then; without GPUs perhaps some were left idle on purpose.
  const auto used = std::min<std::int64_t>(
      profile.cores, static_cast<std::int64_t>(profile.stages) * profile.threads);
  changed.threads = static_cast<int>(std::max<std::int64_t>(1, used / stages));
  changed.stages = stages;
  scale_sizes(changed, profile.stages, stages);
  scale_disk(changed.disk, static_cast<double>(profile.stages) / stages);
  const double threads = static_cast<double>(changed.threads) / profile.threads;
  scale_cpu_attention(changed, threads);
  if (!profile.gpu) {
    scale_device(changed, threads);
  }
  return changed;
}

}  // namespace stagecoach::plan
