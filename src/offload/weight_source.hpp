#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "model/weight_store.hpp"

namespace stagecoach::offload {

/// Where a stage's weights come from. `read` may be called from several threads at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Fills `out` with the tensor's f16 bytes from `first_byte` (even) on.
  virtual void read(const std::string& group, const model::TensorSpec& tensor,
                    std::uint64_t first_byte, std::span<std::byte> out) const = 0;
};

/// Bytes straight from the store file. IoError names the file.
std::unique_ptr<WeightSource> open_store_source(model::StoreIndex index);

/// Weights from the counter-based generator: no file at all.
std::unique_ptr<WeightSource> make_dummy_source(std::uint64_t seed);

}  // namespace stagecoach::offload
