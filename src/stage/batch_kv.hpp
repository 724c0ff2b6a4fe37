#pragma once

#include <cstdint>
#include <vector>

#include "offload/kv_pages.hpp"

namespace stagecoach::stage {

/// One page of one sequence in a visit: where it lives, and its places in the buffers of the step.
/// -1: in none of them.
struct PagePlace {
  offload::PageUse use;
  std::int32_t staged = -1;      ///< among the pages staged on the device
  std::int32_t cpu_staged = -1;  ///< among the disk pages staged in DRAM
  std::int32_t passing = -1;     ///< among the disk pages that begin and are full in the visit
  std::int32_t partial = -1;     ///< among the partial results that the CPU gives

  bool keys_only = false;  ///< of what is loaded: the kept values follow

  [[nodiscard]] bool on_device() const { return use.tier == offload::Tier::device; }
  /// Has tokens that are loaded from DRAM to the page's place in staging.
  [[nodiscard]] bool loaded(bool direct) const {
    return staged >= 0 && use.has_old && (!use.on_disk() || !direct);
  }
};

struct SequenceKv {
  /// The CPU attends to the pages outside the device; else they are staged on the device.
  bool cpu_attends = false;
  /// Among the sequences whose rows keep a share of the positions, and whose pages lie in several
  /// places: one place has to select from the scores of all. -1: none of these.
  std::int32_t split = -1;
  std::vector<PagePlace> pages;  ///< in position order
};

/// Pages of a GPU batch in a visit, the same in every layer, and how many of each kind.
struct BatchKv {
  std::vector<SequenceKv> sequences;  ///< by entry
  std::int32_t staged = 0;            ///< on the device
  std::int32_t loads = 0;             ///< of these, loaded whole from DRAM
  std::int32_t key_loads = 0;         ///< of these, their keys loaded from DRAM
  std::int32_t reads = 0;             ///< pages read from disk
  std::int32_t cpu_staged = 0;        ///< disk pages that pass through DRAM
  std::int32_t passing = 0;
  std::int32_t stores = 0;  ///< pages outside the device that take new tokens
  std::int32_t writes = 0;  ///< pages written to disk
  std::int32_t partials = 0;
  std::int32_t attended_by_cpu = 0;  ///< pages
  std::int32_t splits = 0;           ///< sequences

  /// Some page is not on the device.
  [[nodiscard]] bool offloaded() const { return staged + attended_by_cpu > 0; }
  /// The CPU gives something that attention on the device needs.
  [[nodiscard]] bool asks_cpu() const { return attended_by_cpu + splits > 0; }
};

/// What one entry of a visit brings.
struct EntryPages {
  std::vector<offload::PageUse> uses;
  std::int64_t rows = 0;
  bool sparse = false;  ///< sparse attention
};

/// Places for the pages of one batch, by entry. With `cpu_attention` the CPU attends for sequences
/// of one row: for more rows, moving the pages is less work than moving results. `direct`: disk
/// reads can go to the device's memory.
BatchKv place_pages(const std::vector<EntryPages>& entries, bool cpu_attention, bool direct);

}  // namespace stagecoach::stage
