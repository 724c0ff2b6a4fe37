#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/packing.hpp"
#include "model/convert.hpp"
#include "model/dummy_weights.hpp"
#include "model/weight_store.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::offload {

inline constexpr std::uint64_t kPackedSeed = 9;

/// Rows of 72 and 100 numbers: the last group of each is a part.
inline model::ModelSpec uneven_spec() {
  model::ModelSpec spec;
  spec.layers = 3;
  spec.hidden = 72;
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = 18;
  spec.ffn = 100;
  spec.vocab = 50;
  spec.max_positions = 32;
  spec.tied_head = false;
  return spec;
}

/// A dummy tensor as its format has it, row by row.
inline std::vector<std::byte> expected_bytes(const std::string& group,
                                             const model::TensorSpec& tensor) {
  std::vector<Half> values(static_cast<std::size_t>(tensor.elements()));
  model::fill_dummy(kPackedSeed, group, tensor, 0, values);
  const auto plain = std::as_bytes(std::span(values));
  if (!tensor.format.packed()) {
    return {plain.begin(), plain.end()};
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.size_bytes()));
  const auto columns = static_cast<std::size_t>(tensor.columns());
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    pack_row(tensor.format,
             std::span(values).subspan(static_cast<std::size_t>(row) * columns, columns),
             bytes.data() + row * tensor.row_bytes());
  }
  return bytes;
}

inline model::StoreIndex dummy_store(const testing::TempFolder& folder,
                                     const model::ModelSpec& spec,
                                     const model::WeightFormat& format) {
  const auto path = folder.file(format.packed() ? "packed.h5" : "plain.h5");
  model::convert_dummy(spec, kPackedSeed, path, true, {}, format);
  return model::read_store_index(path);
}

}  // namespace stagecoach::offload
