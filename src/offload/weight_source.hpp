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
  /// Fills `out` with the tensor's bytes, as its format has them, from `first_byte` on (even where
  /// they are f16). `scratch` has scratch_bytes() and is the call's alone.
  virtual void read(const std::string& group, const model::TensorSpec& tensor,
                    std::uint64_t first_byte, std::span<std::byte> out,
                    std::span<std::byte> scratch) const = 0;
  /// What a call of `read` works in.
  [[nodiscard]] virtual std::size_t scratch_bytes() const { return 0; }
  /// The file that holds the weights, opened for direct transfers; null: there is none.
  [[nodiscard]] virtual const DirectFile* file() const = 0;
  /// Where there is none: why, and how to get one, for errors.
  [[nodiscard]] virtual std::string why_no_file() const { return {}; }
  /// Where a tensor begins in that file: at a page boundary.
  [[nodiscard]] virtual std::uint64_t file_offset(const std::string& group,
                                                  const std::string& tensor) const = 0;
};

/// Bytes straight from the store file. IoError names the file.
std::unique_ptr<WeightSource> open_store_source(model::StoreIndex index);

/// Weights from the counter-based generator: no file at all. f16.
std::unique_ptr<WeightSource> make_dummy_source(std::uint64_t seed);

/// The f16 weights of `source`, packed as `format` says while they are read: the bytes that
/// 'stagecoach convert --quantize' would have stored, in no file.
std::unique_ptr<WeightSource> make_packing_source(std::unique_ptr<const WeightSource> source,
                                                  const model::ModelSpec& spec,
                                                  const model::WeightFormat& format);

}  // namespace stagecoach::offload
