#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/abort_signal.hpp"
#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "device/host/host_device.hpp"
#include "offload/stage_weights.hpp"
#include "packed_model.hpp"

namespace stagecoach::offload {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

constexpr StageContents kAll{.first_layer = 0, .layers = 3, .embedding = true, .head = true};

constexpr std::pair<const char*, LinearWeights LayerWeights::*> kLinears[] = {
    {"q", &LayerWeights::q}, {"k", &LayerWeights::k},   {"v", &LayerWeights::v},
    {"o", &LayerWeights::o}, {"up", &LayerWeights::up}, {"down", &LayerWeights::down}};

bool same(const void* found, const std::vector<std::byte>& expected, std::size_t first,
          std::size_t size) {
  return size == 0 || std::memcmp(found, expected.data() + first, size) == 0;
}

/// What a stage streams to the device for one layer, from DRAM and from its store's file.
std::vector<std::byte> streamed(const StageWeights& weights, const LayerImage& image,
                                const WeightCut& cut, std::int64_t layer) {
  std::vector<std::byte> buffer(image.size_bytes() - cut.stream_begin);
  const ByteRange in_dram{cut.stream_begin, cut.cpu_end};
  if (!in_dram.empty()) {
    std::copy_n(weights.in_dram(layer, in_dram), in_dram.size(), buffer.begin());
  }
  if (cut.cpu_end < image.size_bytes()) {
    std::ifstream file(weights.file().path(), std::ios::binary);
    for (const auto& extent : weights.extents(layer, {cut.cpu_end, image.size_bytes()})) {
      file.clear();
      file.seekg(static_cast<std::streamoff>(extent.file_offset));
      file.read(reinterpret_cast<char*>(buffer.data() + (extent.image_offset - cut.stream_begin)),
                static_cast<std::streamsize>(extent.size_bytes));
      EXPECT_GE(file.gcount(), static_cast<std::streamsize>(extent.least_bytes));
    }
  }
  return buffer;
}

void expect_layer(const LayerWeights& layer, const std::string& group, const LayerImage& image) {
  for (const auto& [name, member] : kLinears) {
    SCOPED_TRACE(group + "/" + name);
    const auto& tensor = image.part(std::string(name) + ".weight").tensor;
    const auto& found = layer.*member;
    const auto expected = expected_bytes(group, tensor);
    ASSERT_EQ(found.first_rows + found.rest_rows, tensor.rows());
    EXPECT_EQ(found.first.format, tensor.format);
    EXPECT_EQ(found.rest.format, tensor.format);
    const auto cut = static_cast<std::size_t>(found.first_rows * tensor.row_bytes());
    EXPECT_TRUE(same(found.first.data, expected, 0, cut));
    EXPECT_TRUE(same(found.rest.data, expected, cut, expected.size() - cut));
    const auto bias = expected_bytes(group, image.part(std::string(name) + ".bias").tensor);
    EXPECT_TRUE(same(found.bias, bias, 0, bias.size()));
  }
  const auto norm = expected_bytes(group, image.part("mlp_norm.bias").tensor);
  EXPECT_TRUE(same(layer.mlp_norm.bias, norm, 0, norm.size()));
}

class PackedWeights : public ::testing::Test {
 protected:
  StageWeights load(const TierShares& shares, const WeightSource& source, int threads = 2) {
    return {spec_,  kAll,     format_, image_,  cut_by_shares(image_, shares),
            source, *device_, dram_,   threads, nullptr};
  }

  const model::ModelSpec spec_ = uneven_spec();
  const model::WeightFormat format_{{Packing::int4, 32}, true};
  const LayerImage image_{model::layer_tensors(spec_, format_)};
  const TempFolder folder_;
  AbortSignal abort_;
  std::unique_ptr<device::Device> device_ = device::make_host_device({}, abort_);
  MemoryBudget dram_{"CPU memory", std::size_t{1} << 30};
};

TEST_F(PackedWeights, EveryRowIsWhereItsLayerSaysForAnyShares) {
  const auto source = open_store_source(dummy_store(folder_, spec_, format_));
  for (int device = 0; device <= 100; device += 10) {
    for (int cpu = 0; device + cpu <= 100; cpu += 25) {
      SCOPED_TRACE("device " + std::to_string(device) + " cpu " + std::to_string(cpu));
      const TierShares shares{device / 100.0, cpu / 100.0};
      const auto cut = cut_by_shares(image_, shares);
      const auto weights = load(shares, *source);
      const auto buffer = streamed(weights, image_, cut, 1);
      expect_layer(weights.layer(1, buffer.data(), cut.stream_begin), "layers/001", image_);
    }
    if (HasFailure()) {
      return;
    }
  }
}

TEST_F(PackedWeights, PackedAtLoadTheBytesAreTheSame) {
  const auto store =
      make_packing_source(open_store_source(dummy_store(folder_, spec_, {})), spec_, format_);
  const auto dummy = make_packing_source(make_dummy_source(kPackedSeed), spec_, format_);
  for (const auto* source : {store.get(), dummy.get()}) {
    for (int permille = 0; permille <= 1000; permille += 37) {
      SCOPED_TRACE(permille);
      const TierShares shares{permille / 1000.0, 1 - permille / 1000.0};
      const auto cut = cut_by_shares(image_, shares);
      const auto weights = load(shares, *source);
      const auto buffer = streamed(weights, image_, cut, 2);
      expect_layer(weights.layer(2, buffer.data(), cut.stream_begin), "layers/002", image_);
    }
  }
}

TEST_F(PackedWeights, TablesAndHeadArePackedWhereTheFormatSaysSo) {
  for (const bool embeddings : {true, false}) {
    const model::WeightFormat format{format_.layers, embeddings};
    const auto source = make_packing_source(make_dummy_source(kPackedSeed), spec_, format);
    const StageWeights weights(spec_, kAll, format, image_, cut_by_shares(image_, {1, 0}), *source,
                               *device_, dram_, 2, nullptr);
    const auto tables = model::embedding_tensors(spec_, format);
    const auto head = model::head_tensors(spec_, format).back();
    EXPECT_EQ(weights.token_table().format, format.tables());
    EXPECT_EQ(weights.head().format, format.tables());
    const auto token = expected_bytes(model::kEmbeddingGroup, tables[0]);
    const auto position = expected_bytes(model::kEmbeddingGroup, tables[1]);
    const auto matrix = expected_bytes(model::kHeadGroup, head);
    EXPECT_TRUE(same(weights.token_table().data, token, 0, token.size()));
    EXPECT_TRUE(same(weights.position_table(), position, 0, position.size()));
    EXPECT_TRUE(same(weights.head().data, matrix, 0, matrix.size()));
    const auto pages = [](std::size_t bytes) { return round_up(bytes, kPageBytes); };
    EXPECT_EQ(StageWeights::table_bytes(spec_, kAll, format),
              pages(token.size()) + pages(position.size()) + pages(matrix.size()) + 2 * kPageBytes);
  }
}

TEST_F(PackedWeights, PackingAtLoadTakesTheMemoryThatWasReported) {
  const auto dummy = make_dummy_source(kPackedSeed);
  const auto source = make_packing_source(make_dummy_source(kPackedSeed), spec_, format_);
  EXPECT_GT(StageWeights::staging_bytes(*source, 2), StageWeights::staging_bytes(*dummy, 2));
  const auto cut = cut_by_shares(image_, {0.3, 0.7});
  const auto most = StageWeights::cpu_bytes(kAll, cut) + StageWeights::staging_bytes(*source, 1);
  const auto weights = load({0.3, 0.7}, *source, 1);
  EXPECT_EQ(dram_.peak_bytes(), most);
  EXPECT_EQ(device_->allocated_bytes(), StageWeights::table_bytes(spec_, kAll, format_) +
                                            StageWeights::device_bytes(kAll, cut));
}

TEST_F(PackedWeights, PackedAtLoadTheyCannotBeOnDisk) {
  const auto source =
      make_packing_source(open_store_source(dummy_store(folder_, spec_, {})), spec_, format_);
  try {
    load({0.5, 0.4}, *source);
    ADD_FAILURE() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("--percent puts weights on disk, but the weights are packed while"));
  }
}

/// Widens as a device would, by the definition.
void widen(const WideMatrix& matrix) {
  const auto columns = static_cast<std::size_t>(matrix.columns);
  for (std::int64_t row = 0; row < matrix.first_rows + matrix.rest_rows; ++row) {
    const auto from = row < matrix.first_rows
                          ? matrix.first.from_row(row, matrix.columns)
                          : matrix.rest.from_row(row - matrix.first_rows, matrix.columns);
    unpack_row(from.format, from.data, {matrix.out + row * matrix.columns, columns});
  }
}

/// All of a tensor's numbers, as f16.
std::vector<std::byte> wide_bytes_of(const std::string& group, const model::TensorSpec& tensor) {
  const auto packed = expected_bytes(group, tensor);
  std::vector<Half> values(static_cast<std::size_t>(tensor.elements()));
  const auto columns = static_cast<std::size_t>(tensor.columns());
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    unpack_row(tensor.format, packed.data() + row * tensor.row_bytes(),
               {values.data() + static_cast<std::size_t>(row) * columns, columns});
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST_F(PackedWeights, AWidenedUnitHasItsMatricesWholeAndTheOthersAsTheyWere) {
  const auto source = make_packing_source(make_dummy_source(kPackedSeed), spec_, format_);
  const auto middle = image_.part("mlp_norm.weight").offset_bytes;
  const auto end = image_.size_bytes();
  for (int permille = 0; permille <= 1000; permille += 61) {
    const TierShares shares{permille / 1000.0, 1 - permille / 1000.0};
    const auto cut = cut_by_shares(image_, shares);
    const auto weights = load(shares, *source);
    const auto buffer = streamed(weights, image_, cut, 1);
    const auto packed = weights.layer(1, buffer.data(), cut.stream_begin);
    for (const auto& unit : {ByteRange{0, end}, {0, middle}, {middle, end}}) {
      SCOPED_TRACE(fmt::format("{} permille, unit {} to {}", permille, unit.begin, unit.end));
      const AlignedMemory wide(StageWeights::wide_bytes(image_, unit), "widened weights");
      for (const auto& matrix :
           weights.wide_matrices(1, unit, buffer.data(), cut.stream_begin, wide.data())) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.out) % 64, 0u);
        widen(matrix);
      }
      const auto layer =
          weights.widened_layer(1, unit, buffer.data(), cut.stream_begin, wide.data());
      const auto* next = wide.data();
      for (const auto& [name, member] : kLinears) {
        SCOPED_TRACE(name);
        const auto& part = image_.part(std::string(name) + ".weight");
        const auto& found = layer.*member;
        const auto& before = packed.*member;
        EXPECT_EQ(found.bias, before.bias);
        if (part.offset_bytes < unit.begin || part.offset_bytes >= unit.end) {
          EXPECT_EQ(found.first.data, before.first.data);
          EXPECT_EQ(found.rest_rows, before.rest_rows);
          continue;
        }
        EXPECT_FALSE(found.first.format.packed());
        ASSERT_EQ(found.first_rows, part.tensor.rows());
        ASSERT_EQ(found.rest_rows, 0);
        ASSERT_EQ(found.first.data, next) << "in image order";
        const auto expected = wide_bytes_of("layers/001", part.tensor);
        EXPECT_TRUE(same(found.first.data, expected, 0, expected.size()));
        next += round_up(expected.size(), 64);
      }
      EXPECT_EQ(next, wide.data() + wide.size_bytes());
      EXPECT_EQ(layer.mlp_norm.weight, packed.mlp_norm.weight);
    }
  }
}

TEST_F(PackedWeights, WhatIsF16IsNotWidened) {
  const LayerImage plain(model::layer_tensors(spec_));
  const ByteRange all{0, plain.size_bytes()};
  EXPECT_EQ(StageWeights::wide_bytes(plain, all), 0u);
  const auto source = make_dummy_source(kPackedSeed);
  const StageWeights weights(spec_, kAll, {}, plain, cut_by_shares(plain, {1, 0}), *source,
                             *device_, dram_, 2, nullptr);
  EXPECT_TRUE(weights.wide_matrices(0, all, nullptr, 0, nullptr).empty());
  EXPECT_EQ(weights.widened_layer(0, all, nullptr, 0, nullptr).up.first.data,
            weights.layer(0, nullptr, 0).up.first.data);
}

}  // namespace
}  // namespace stagecoach::offload
