#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/packing.hpp"
#include "device/device.hpp"
#include "plan/curve.hpp"

namespace stagecoach::plan {

/// Bytes a second between DRAM and a device.
struct CopyRates {
  double to_device_pinned = 0;
  double to_device_pageable = 0;
  double from_device_pinned = 0;
  double from_device_pageable = 0;
  double both_ways = 0;  ///< pinned, in both directions at once, their sum
  friend bool operator==(const CopyRates&, const CopyRates&) = default;
};

/// Bytes a second, by the bytes of a transfer, with as many in flight as the engine has.
struct DiskRates {
  Curve read;
  Curve write;
  double together = 0;  ///< reading and writing at once, their sum
  friend bool operator==(const DiskRates&, const DiskRates&) = default;
};

/// One packing of numbers on a device.
struct FormatRates {
  /// Products: floating-point operations a second by rows, for each width (inputs of the matrix).
  std::map<std::int64_t, Curve> products;
  double widen = 0;  ///< bytes of f16 a second; packed formats only
  friend bool operator==(const FormatRates&, const FormatRates&) = default;
};

/// One type of KV cache. Bytes of pages a second by page_tokens, where each sequence has one row.
struct CacheRates {
  Curve device;      ///< attention to pages in the device's memory
  Curve cpu;         ///< partial results of pages in DRAM, by the CPU
  double store = 0;  ///< new K and V into pages in DRAM: bytes of f32 rows a second, by the CPU
  friend bool operator==(const CacheRates&, const CacheRates&) = default;
};

/// Seconds that a step costs beside its work.
struct StepSeconds {
  double compute = 0;
  double copy = 0;
  double disk = 0;
  double cpu = 0;
  friend bool operator==(const StepSeconds&, const StepSeconds&) = default;
};

/// Messages between neighbouring stages.
struct LinkRates {
  double latency_seconds = 0;
  double bytes_per_second = 0;
  friend bool operator==(const LinkRates&, const LinkRates&) = default;
};

/// What another runtime than this one does otherwise, to simulate it (FlexGen, in bench/paper).
struct SoftwareTraits {
  double hidden_bytes = 4;  ///< of one number of the activations, in copies and messages
  /// Query, key and value go to DRAM in f32, and the CPU puts them into their pages; else K and V
  /// alone, in f16, straight into them.
  bool saves_query = true;
  bool page_results = true;  ///< attention on the CPU gives one of each page; else of a sequence
  double cache_bytes_per_second = 0;  ///< the cache from DRAM to the device; 0: as other copies
  double slot_seconds = 0;            ///< synchronising after a phase of a GPU batch
  bool widens_each_batch = false;     ///< weights and cache, in the compute of each GPU batch
  friend bool operator==(const SoftwareTraits&, const SoftwareTraits&) = default;
};

/// What the cost model knows of a machine: rates and sizes of one stage on it while `stages` of
/// them work at once. Measured by 'stagecoach profile', or written by hand (docs/formats.md).
struct NodeProfile {
  std::string host;
  std::string date;
  std::string description;           ///< of the device, for people
  bool gpu = false;                  ///< the device has memory of its own
  int stages = 1;                    ///< that were measured at once
  int threads = 1;                   ///< of each
  int cores = 1;                     ///< of the node
  std::size_t device_mem_bytes = 0;  ///< a stage's; without a GPU part of its DRAM
  std::size_t cpu_mem_bytes = 0;     ///< a stage's DRAM; without a GPU the device's included
  std::size_t pinned_mem_bytes = 0;  ///< of it, what may be pinned
  std::size_t disk_mem_bytes = 0;
  double watts = 0;  ///< of the node at work, its devices included; 0: not known

  double memory_bytes_per_second = 0;  ///< DRAM, of the whole node: what all its cores read
  CopyRates copies;
  DiskRates disk;
  std::map<Packing, FormatRates> formats;       ///< Packing::none (f16) at least
  std::map<device::KvType, CacheRates> caches;  ///< f16 at least
  double prompt_attention_flops = 0;            ///< a second, where a sequence has many rows
  double row_bytes_per_second = 0;  ///< norms and embedding: bytes of f32 rows, read and written
  double sampled_logits_per_second = 0;
  StepSeconds step;
  LinkRates link;        ///< to a stage on another node
  LinkRates local_link;  ///< to one on this node
  SoftwareTraits software;
  friend bool operator==(const NodeProfile&, const NodeProfile&) = default;
};

/// Reads the ini text of a profile. ConfigError `where [section] key = value: what; what to do`:
/// missing or unknown sections and keys, what is no number, rates that are zero, negative, not
/// finite or beyond what any machine does, and figures that contradict each other.
NodeProfile parse_profile(const std::string& text, const std::string& where);
/// The file's text; parse_profile gives the same profile back (and texts on one line).
std::string format_profile(const NodeProfile& profile);
NodeProfile read_profile(const std::string& path);

/// An estimate for `stages` stages on the node instead of those that were measured. The cores that
/// were at work are dealt out anew, at least one thread a stage: what the CPU computes changes as a
/// stage's threads do. DRAM and disk, sizes and rates of the disk, are dealt out in proportion.
/// Copies, links and what a step costs stay, and so does what a GPU has and does: one a stage.
NodeProfile for_stages(const NodeProfile& profile, int stages);

}  // namespace stagecoach::plan
