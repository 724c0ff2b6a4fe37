#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "model/weight_store.hpp"
#include "offload/direct_file.hpp"

namespace stagecoach::offload {

/// Where a stage's weights come from. `read` may be called from several threads at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Fills `out` with the tensor's f16 bytes from `first_byte` (even) on.
  virtual void read(const std::string& group, const model::TensorSpec& tensor,
                    std::uint64_t first_byte, std::span<std::byte> out) const = 0;
  /// The file that holds the weights, opened for direct transfers; null: there is none.
  [[nodiscard]] virtual const DirectFile* file() const = 0;
  /// Where a tensor begins in that file: at a page boundary.
  [[nodiscard]] virtual std::uint64_t file_offset(const std::string& group,
                                                  const std::string& tensor) const = 0;
};

/// Bytes straight from the store file. IoError names the file.
std::unique_ptr<WeightSource> open_store_source(model::StoreIndex index);

/// Weights from the counter-based generator: no file at all.
std::unique_ptr<WeightSource> make_dummy_source(std::uint64_t seed);

}  // namespace stagecoach::offload
