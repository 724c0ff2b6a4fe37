#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/memory_budget.hpp"
#include "device/device.hpp"
#include "model/spec.hpp"
#include "offload/layer_image.hpp"
#include "offload/stage_contents.hpp"
#include "offload/weight_reader.hpp"
#include "offload/weight_source.hpp"

namespace stagecoach::offload {

/// Weight and bias of a norm.
struct NormWeights {
  const Half* weight = nullptr;
  const Half* bias = nullptr;
};

/// Weight and bias of a linear map, whose rows lie in two places: the first ones where they live on
/// the device, the others where they were streamed to.
struct LinearWeights {
  device::Weights first;
  std::int64_t first_rows = 0;
  device::Weights rest;
  std::int64_t rest_rows = 0;
  const Half* bias = nullptr;
};

struct LayerWeights {
  NormWeights attn_norm, mlp_norm;
  LinearWeights q, k, v, o, up, down;
};

/// A packed matrix in its two places, and where all its rows go as f16.
struct WideMatrix {
  device::Weights first;
  std::int64_t first_rows = 0;
  device::Weights rest;
  std::int64_t rest_rows = 0;
  std::int64_t columns = 0;
  Half* out = nullptr;
};

/// Bytes of the store's file that make a part of a layer's image, page-aligned in both.
struct FileExtent {
  std::uint64_t file_offset = 0;
  std::size_t image_offset = 0;
  std::size_t size_bytes = 0;
  std::size_t least_bytes = 0;  ///< that belong to tensors: the file may end after these
};

/// The weights of one stage: of each layer the part that `cut` gives to the device and the part in
/// DRAM, and on the device whole what belongs to no layer (tables, final norm, head). What is on
/// disk stays in the store and is described by extents().
class StageWeights {
 public:
  /// Bytes on the device of what belongs to no layer.
  static std::size_t table_bytes(const model::ModelSpec& spec, const StageContents& contents,
                                 const model::WeightFormat& format);
  /// Bytes on the device and in DRAM of all layers.
  static std::size_t device_bytes(const StageContents& contents, const WeightCut& cut);
  static std::size_t cpu_bytes(const StageContents& contents, const WeightCut& cut);
  /// DRAM that reading takes while it runs.
  static std::size_t staging_bytes(const WeightSource& source, int reader_threads);
  /// Likewise, from a store that need not be there.
  static std::size_t staging_bytes(int reader_threads);
  /// Device bytes of the packed matrices of a unit (whole tensors of the image) once widened to
  /// f16: in image order, each from a multiple of 64 on.
  static std::size_t wide_bytes(const LayerImage& image, ByteRange unit);

  /// ConfigError if a part is on disk and the source has no file.
  static void check_source(const LayerImage& image, const WeightCut& cut,
                           const WeightSource& source);

  /// Reads what lives on the device and in DRAM and no other tensor, in pieces, with
  /// `reader_threads` threads at once. `progress(done_bytes, total_bytes)` is called from one
  /// thread at a time and may be empty. `image` and `source` have weights in `format`. ConfigError
  /// if a part is on disk and the source has no file.
  StageWeights(const model::ModelSpec& spec, const StageContents& contents,
               const model::WeightFormat& format, LayerImage image, const WeightCut& cut,
               const WeightSource& source, device::Device& device, MemoryBudget& dram,
               int reader_threads,
               const std::function<void(std::uint64_t, std::uint64_t)>& progress);

  /// The layer (of this stage, from 0) with its streamed bytes, the image's from `origin` on, at
  /// `buffer`.
  [[nodiscard]] LayerWeights layer(std::int64_t index, const std::byte* buffer,
                                   std::size_t origin) const;
  /// What to widen of a unit of that layer, to `wide`: wide_bytes. Nothing where nothing is packed.
  [[nodiscard]] std::vector<WideMatrix> wide_matrices(std::int64_t index, ByteRange unit,
                                                      const std::byte* buffer, std::size_t origin,
                                                      std::byte* wide) const;
  /// As layer(), with the unit's packed matrices whole at `wide`, where they were widened to.
  [[nodiscard]] LayerWeights widened_layer(std::int64_t index, ByteRange unit,
                                           const std::byte* buffer, std::size_t origin,
                                           const std::byte* wide) const;
  /// The DRAM part of a layer's image, from `range.begin` on.
  [[nodiscard]] const std::byte* in_dram(std::int64_t index, ByteRange range) const;
  [[nodiscard]] std::span<std::byte> dram() const { return dram_memory_.bytes(); }
  /// Where a part of the layer's image lies in the store. `range` begins at a page boundary.
  [[nodiscard]] std::vector<FileExtent> extents(std::int64_t index, ByteRange range) const;
  [[nodiscard]] const DirectFile& file() const { return *source_.file(); }

  [[nodiscard]] const device::Weights& token_table() const noexcept { return token_table_; }
  [[nodiscard]] const Half* position_table() const noexcept { return position_table_; }
  [[nodiscard]] const NormWeights& final_norm() const noexcept { return final_norm_; }
  [[nodiscard]] const device::Weights& head() const noexcept { return head_; }
  /// Bytes that were read.
  [[nodiscard]] std::uint64_t loaded_bytes() const noexcept { return loaded_bytes_; }

 private:
  /// Where a tensor lies, the same in every layer.
  struct VectorPlace {
    std::size_t offset = 0;  ///< in the image
    bool on_device = true;
  };
  struct LinearPlace {
    PackFormat format;
    std::int64_t columns = 0;
    std::size_t offset = 0;
    std::int64_t first_rows = 0;
    std::size_t rest_offset = 0;
    std::int64_t rest_rows = 0;
    VectorPlace bias;
    std::size_t wide_offset = 0;  ///< among the layer's widened matrices
  };
  struct NormPlace {
    VectorPlace weight, bias;
  };
  struct LayerPlaces {
    NormPlace attn_norm, mlp_norm;
    LinearPlace q, k, v, o, up, down;
  };
  struct Linear {
    LinearPlace LayerPlaces::*place;
    LinearWeights LayerWeights::*weights;
  };
  /// In image order.
  static constexpr std::array<Linear, 6> kLinears{{{&LayerPlaces::q, &LayerWeights::q},
                                                   {&LayerPlaces::k, &LayerWeights::k},
                                                   {&LayerPlaces::v, &LayerWeights::v},
                                                   {&LayerPlaces::o, &LayerWeights::o},
                                                   {&LayerPlaces::up, &LayerWeights::up},
                                                   {&LayerPlaces::down, &LayerWeights::down}}};
  void place_layers();
  /// The packed matrices of a unit.
  [[nodiscard]] std::vector<Linear> packed_linears(ByteRange unit) const;
  /// What the device's and DRAM's parts of the layers are filled with.
  [[nodiscard]] std::vector<WeightRead> layer_reads() const;
  [[nodiscard]] VectorPlace place_vector(const std::string& name) const;
  [[nodiscard]] LinearPlace place_linear(const std::string& name) const;
  [[nodiscard]] NormPlace place_norm(const std::string& name) const;

  StageContents contents_;
  LayerImage image_;
  WeightCut cut_;
  const WeightSource& source_;
  LayerPlaces places_;
  device::Buffer tables_;
  device::Buffer layers_;
  BudgetedMemory dram_memory_;
  std::uint64_t loaded_bytes_ = 0;
  device::Weights token_table_;
  const Half* position_table_ = nullptr;
  NormWeights final_norm_;
  device::Weights head_;
};

}  // namespace stagecoach::offload
