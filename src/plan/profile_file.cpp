#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.hpp"
#include "plan/node_profile.hpp"
#include "plan/profile_sections.hpp"

namespace stagecoach::plan {
namespace {

constexpr Limit kBandwidth{"bytes a second", 1, 1e14};
constexpr Limit kFlops{"floating-point operations a second", 1, 1e17};
constexpr Limit kLogits{"logits a second", 1, 1e14};
constexpr Limit kSeconds{"seconds", 0, 10};
constexpr Limit kWatts{"watts", 1, 1e7};
constexpr Limit kStages{"stages of a node", 1, 1e4};
constexpr Limit kThreads{"threads", 1, 1e6};
constexpr Limit kCores{"cores", 1, 1e6};
constexpr Limit kMemory{"bytes", 1, 1e15};
constexpr Limit kMaybeMemory{"bytes", 0, 1e15};
constexpr Limit kTransfers{"bytes of a transfer", 1, 1e13};
constexpr Limit kRows{"rows", 1, 1e9};
constexpr Limit kPages{"tokens of a page", 1, 1e6};
constexpr Limit kNumberBytes{"bytes", 1, 16};
constexpr double kWidest = 1e7;

// Figures are measured one after another on a machine that is not always the same.
constexpr double kTolerance = 1.25;

constexpr std::array<std::pair<const char*, Packing>, 3> kPackings{
    {{"f16", Packing::none}, {"int8", Packing::int8}, {"int4", Packing::int4}}};
constexpr std::array<std::pair<const char*, device::KvType>, 4> kCaches{
    {{"f16", device::KvType::f16},
     {"f32", device::KvType::f32},
     {"int8", device::KvType::int8},
     {"int4", device::KvType::int4}}};

// Each of these both reads and writes: `Profile` is const where Io writes.

template <typename Io>
void maybe_number(Io& io, const std::string& key, auto& value, double absent, const Limit& limit) {
  if constexpr (Io::kReads) {
    if (io.has(key)) {
      io.number(key, value, limit);
    }
  } else if (value != absent) {
    io.number(key, value, limit);
  }
}

template <typename Io, typename Profile>
void node(Io& io, Profile& profile) {
  io.section("node", "");
  io.text("host", profile.host);
  io.text("date", profile.date);
  io.text("device", profile.description);
  io.comment("a device with memory of its own?");
  io.flag("gpu", profile.gpu);
  io.comment("stages that worked at once, threads of each, and cores of the node");
  io.count("stages", profile.stages, kStages);
  io.count("threads", profile.threads, kThreads);
  io.count("cores", profile.cores, kCores);
  maybe_number(io, "watts", profile.watts, 0, kWatts);
}

template <typename Io, typename Profile>
void memory(Io& io, Profile& profile) {
  io.section("memory", "what a stage may use; without a GPU device_mem is a part of cpu_mem");
  io.bytes("device_mem", profile.device_mem_bytes, kMemory);
  io.bytes("cpu_mem", profile.cpu_mem_bytes, kMemory);
  if constexpr (Io::kReads) {
    profile.pinned_mem_bytes = profile.cpu_mem_bytes;
    if (io.has("pinned_mem")) {
      io.bytes("pinned_mem", profile.pinned_mem_bytes, kMaybeMemory);
    }
    if (io.has("disk_mem")) {
      io.bytes("disk_mem", profile.disk_mem_bytes, kMaybeMemory);
    }
  } else {
    io.bytes("pinned_mem", profile.pinned_mem_bytes, kMaybeMemory);
    io.bytes("disk_mem", profile.disk_mem_bytes, kMaybeMemory);
  }
  io.comment("DRAM, read by all cores of the node");
  io.number("bytes_per_s", profile.memory_bytes_per_second, kBandwidth);
}

template <typename Io, typename Profile>
void copies(Io& io, Profile& profile) {
  auto& rates = profile.copies;
  io.section("copies",
             "between DRAM and the device; both ways: pinned, the sum of both directions");
  io.number("to_device_pinned_bytes_per_s", rates.to_device_pinned, kBandwidth);
  io.number("to_device_pageable_bytes_per_s", rates.to_device_pageable, kBandwidth);
  io.number("from_device_pinned_bytes_per_s", rates.from_device_pinned, kBandwidth);
  io.number("from_device_pageable_bytes_per_s", rates.from_device_pageable, kBandwidth);
  io.number("both_ways_bytes_per_s", rates.both_ways, kBandwidth);
}

template <typename Io, typename Profile>
void disk(Io& io, Profile& profile) {
  auto& rates = profile.disk;
  if (io.optional_section("disk", "bytes a second, by bytes of a transfer; together: the sum",
                          !rates.read.empty())) {
    io.curve("read_bytes_per_s", rates.read, kTransfers, kBandwidth);
    io.curve("write_bytes_per_s", rates.write, kTransfers, kBandwidth);
    io.number("together_bytes_per_s", rates.together, kBandwidth);
  }
}

/// "int4 4096".
std::pair<Packing, std::int64_t> parse_product_key(const ProfileReader& io,
                                                   const std::string& key) {
  const auto blank = key.find(' ');
  const auto name = key.substr(0, blank);
  const auto found = std::find_if(kPackings.begin(), kPackings.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  std::int64_t width = 0;
  const char* begin = key.data() + (blank == std::string::npos ? key.size() : blank + 1);
  const char* end = key.data() + key.size();
  const auto [stop, code] = std::from_chars(begin, end, width);
  if (found == kPackings.end() || code != std::errc{} || stop != end || width < 1 ||
      static_cast<double>(width) > kWidest) {
    io.fail(key,
            "the key must be a format (f16, int8 or int4) and a matrix's inputs, like f16 4096");
  }
  return {found->second, width};
}

void read_products(ProfileReader& io, std::map<Packing, FormatRates>& formats) {
  for (const auto& key : io.other_keys()) {
    const auto [packing, width] = parse_product_key(io, key);
    Curve curve;
    io.curve(key, curve, kRows, kFlops);
    if (!formats[packing].products.emplace(width, std::move(curve)).second) {
      io.fail(key, "this format and width come twice; take one away");
    }
  }
  if (!formats.contains(Packing::none)) {
    io.fail("f16", "there are no products of f16; add a key like f16 4096");
  }
}

template <typename Io, typename Profile>
void products(Io& io, Profile& profile) {
  io.section("products",
             "format and inputs of a matrix: floating-point operations a second, by rows");
  if constexpr (Io::kReads) {
    read_products(io, profile.formats);
  } else {
    for (const auto& [name, packing] : kPackings) {
      if (const auto found = profile.formats.find(packing); found != profile.formats.end()) {
        for (const auto& [width, curve] : found->second.products) {
          io.curve(fmt::format("{} {}", name, width), curve, kRows, kFlops);
        }
      }
    }
  }
}

template <typename Io, typename Profile>
void widening(Io& io, Profile& profile) {
  const bool packed = std::any_of(profile.formats.begin(), profile.formats.end(),
                                  [](const auto& entry) { return entry.first != Packing::none; });
  if (!io.optional_section("widen", "packed weights to f16: bytes of f16 a second", packed)) {
    if (packed) {
      io.section("widen", "");  // says that it is missing
    }
    return;
  }
  for (const auto& [name, packing] : kPackings) {
    const auto key = std::string(name) + "_bytes_per_s";
    const auto found = profile.formats.find(packing);
    if (packing != Packing::none && found != profile.formats.end()) {
      io.number(key, found->second.widen, kBandwidth);
    } else if constexpr (Io::kReads) {
      if (packing != Packing::none && io.has(key)) {
        io.fail(key, fmt::format("[products] has none of {}; add them, or take this away", name));
      }
    }
  }
}

/// Whether any key of a cache is there; all of them count as known.
bool has_cache(ProfileReader& io, const std::string& name) {
  bool any = false;
  for (const char* what : {" device", " cpu", " store"}) {
    any = io.has(name + what) || any;
  }
  return any;
}

template <typename Io>
void cache(Io& io, const std::string& name, auto& rates) {
  io.curve(name + " device", rates.device, kPages, kBandwidth);
  io.curve(name + " cpu", rates.cpu, kPages, kBandwidth);
  io.number(name + " store", rates.store, kBandwidth);
}

template <typename Io, typename Profile>
void attention(Io& io, Profile& profile) {
  io.section("attention", "to many rows of a prompt: floating-point operations a second");
  io.number("prompt_flop_per_s", profile.prompt_attention_flops, kFlops);
  io.comment("to one row, by the type of cache: bytes of pages a second, by tokens of a page, on");
  io.comment("the device and, in DRAM, by the CPU; store: bytes of f32 rows that the CPU stores");
  for (const auto& [name, type] : kCaches) {
    if constexpr (Io::kReads) {
      if (has_cache(io, name) || type == device::KvType::f16) {
        cache(io, name, profile.caches[type]);
      }
    } else if (const auto found = profile.caches.find(type); found != profile.caches.end()) {
      cache(io, name, found->second);
    }
  }
}

template <typename Io, typename Profile>
void rows_and_steps(Io& io, Profile& profile) {
  io.section("rows", "norms and embedding: bytes of f32, read and written; sampling: logits");
  io.number("bytes_per_s", profile.row_bytes_per_second, kBandwidth);
  io.number("sampled_logits_per_s", profile.sampled_logits_per_second, kLogits);
  io.section("steps", "what a step costs beside its work");
  io.number("compute_s", profile.step.compute, kSeconds);
  io.number("copy_s", profile.step.copy, kSeconds);
  io.number("disk_s", profile.step.disk, kSeconds);
  io.number("cpu_s", profile.step.cpu, kSeconds);
}

template <typename Io, typename Profile>
void links(Io& io, Profile& profile) {
  const auto link = [&](auto& rates) {
    io.number("latency_s", rates.latency_seconds, kSeconds);
    io.number("bytes_per_s", rates.bytes_per_second, kBandwidth);
  };
  io.section("link", "messages to a stage on another node");
  link(profile.link);
  const bool differs = !(profile.local_link == profile.link);
  if (io.optional_section("local_link", "to a stage on this node", differs)) {
    link(profile.local_link);
  } else if constexpr (Io::kReads) {
    profile.local_link = profile.link;
  }
}

template <typename Io>
void maybe_flag(Io& io, const std::string& key, auto& value) {
  if constexpr (Io::kReads) {
    if (!io.has(key)) {
      return;
    }
  }
  io.flag(key, value);
}

template <typename Io, typename Profile>
void software(Io& io, Profile& profile) {
  auto& traits = profile.software;
  if (io.optional_section("software", "of another runtime than this one",
                          !(traits == SoftwareTraits{}))) {
    constexpr SoftwareTraits kDefault;
    maybe_number(io, "hidden_bytes", traits.hidden_bytes, kDefault.hidden_bytes, kNumberBytes);
    maybe_flag(io, "saves_query", traits.saves_query);
    maybe_flag(io, "page_results", traits.page_results);
    maybe_number(io, "cache_bytes_per_s", traits.cache_bytes_per_second,
                 kDefault.cache_bytes_per_second, kBandwidth);
    maybe_number(io, "slot_s", traits.slot_seconds, kDefault.slot_seconds, kSeconds);
    maybe_flag(io, "widens_each_batch", traits.widens_each_batch);
  }
}

template <typename Io, typename Profile>
void all(Io& io, Profile& profile) {
  node(io, profile);
  memory(io, profile);
  copies(io, profile);
  disk(io, profile);
  products(io, profile);
  widening(io, profile);
  attention(io, profile);
  rows_and_steps(io, profile);
  links(io, profile);
  software(io, profile);
}

void check_memory(const NodeProfile& profile, const std::string& where) {
  const auto fail = [&](const char* key, std::size_t bytes, const char* what) {
    throw ConfigError(fmt::format("{} [memory] {}: {} bytes are more than the {} of cpu_mem, {}",
                                  where, key, bytes, profile.cpu_mem_bytes, what));
  };
  if (profile.pinned_mem_bytes > profile.cpu_mem_bytes) {
    fail("pinned_mem", profile.pinned_mem_bytes, "of which it is a part; make it smaller");
  }
  if (!profile.gpu && profile.device_mem_bytes > profile.cpu_mem_bytes) {
    fail("device_mem", profile.device_mem_bytes,
         "of which it is a part without a GPU; make it smaller");
  }
  if (profile.disk_mem_bytes > 0 && profile.disk.read.empty()) {
    throw ConfigError(fmt::format(
        "{} [memory] disk_mem: there is no section [disk]; add it, or take disk_mem away", where));
  }
}

/// Two rates at once: at least half the slower, at most both.
void check_sum(double sum, double slower, double both, const std::string& where) {
  if (sum * kTolerance < slower / 2 || sum > both * kTolerance) {
    throw ConfigError(fmt::format(
        "{} = {}: cannot be when the two directions reach {} and {} alone; correct these figures, "
        "or measure the node again",
        where, sum, slower, both - slower));
  }
}

double highest(const Curve& curve) {
  double rate = 0;
  for (const auto& point : curve.points()) {
    rate = std::max(rate, point.rate);
  }
  return rate;
}

void check_sums(const NodeProfile& profile, const std::string& where) {
  const auto& copies = profile.copies;
  check_sum(copies.both_ways, std::min(copies.to_device_pinned, copies.from_device_pinned),
            copies.to_device_pinned + copies.from_device_pinned,
            where + " [copies] both_ways_bytes_per_s");
  if (!profile.disk.read.empty()) {
    const double read = highest(profile.disk.read);
    const double write = highest(profile.disk.write);
    check_sum(profile.disk.together, std::min(read, write), read + write,
              where + " [disk] together_bytes_per_s");
  }
}

}  // namespace

NodeProfile parse_profile(const std::string& text, const std::string& where) {
  ProfileReader reader(text, where);
  NodeProfile profile;
  all(reader, profile);
  reader.finish();
  check_memory(profile, where);
  check_sums(profile, where);
  return profile;
}

std::string format_profile(const NodeProfile& profile) {
  STAGECOACH_CHECK(profile.disk.read.empty() == profile.disk.write.empty());
  ProfileWriter writer;
  all(writer, profile);
  return writer.written();
}

}  // namespace stagecoach::plan
