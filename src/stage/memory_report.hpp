#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stage/schedule.hpp"

namespace stagecoach::stage {

/// What a job needs of its KV cache, from its requests.
struct KvDemand {
  std::int64_t longest_pages = 0;  ///< pages a layer of the longest request: the least that runs
  std::int64_t wanted_pages = 0;   ///< pages a layer with every place taken by the longest ones
};

struct MemoryLine {
  std::string what;
  std::size_t size_bytes = 0;
};

/// Every byte that a stage takes, known before the first is taken.
struct MemoryReport {
  std::vector<MemoryLine> lines;
  std::size_t budget_bytes = 0;
  std::int64_t kv_pages_per_layer = 0;  ///< that fit, at most those wanted

  [[nodiscard]] std::size_t total_bytes() const;
};

/// Bytes of one KV page of `shape` (K and V of page_tokens tokens in one layer).
std::size_t kv_page_bytes(const StageShape& shape);
/// Rows of logits that the head works on at once.
std::int64_t head_chunk_rows(const StageShape& shape);
/// Bytes of the operations' workspace (see decoder_layer.hpp).
std::size_t workspace_bytes(const StageShape& shape);
std::size_t hidden_buffer_bytes(const StageShape& shape);

/// The report of a stage with as many KV pages as the budget allows, at most those wanted.
/// `device_scratch_bytes` is the device's own, `staging_bytes` what loading the weights takes.
/// OutOfMemory, with the numbers and what to change, if not even the longest request fits.
MemoryReport plan_memory(const StageShape& shape, const KvDemand& demand, std::size_t budget_bytes,
                         std::size_t device_scratch_bytes, std::size_t staging_bytes);

/// The same with a given number of pages: after the stages have agreed on the smallest.
MemoryReport plan_memory_with_pages(const StageShape& shape, std::int64_t kv_pages_per_layer,
                                    std::size_t budget_bytes, std::size_t device_scratch_bytes,
                                    std::size_t staging_bytes);

/// A table, one line an entry, with total and budget.
std::string format_report(const MemoryReport& report);

}  // namespace stagecoach::stage
