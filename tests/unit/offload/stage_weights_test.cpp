#include "offload/stage_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "base/abort_signal.hpp"
#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "device/host/host_device.hpp"
#include "model/convert.hpp"
#include "model/dummy_weights.hpp"
#include "model/weight_store.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::offload {
namespace {

using stagecoach::testing::TempFolder;

constexpr std::uint64_t kSeed = 7;

model::ModelSpec spec_of(std::int64_t hidden, std::int64_t vocab, bool tied) {
  model::ModelSpec spec;
  spec.layers = 3;
  spec.hidden = hidden;
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = hidden / 4;
  spec.ffn = 100;
  spec.vocab = vocab;
  spec.max_positions = 32;
  spec.position_offset = 2;
  spec.tied_head = tied;
  return spec;
}

model::ModelSpec small_spec() { return spec_of(64, 50, true); }

constexpr StageContents kAll{.first_layer = 0, .layers = 3, .embedding = true, .head = true};

LayerImage image_of(const model::ModelSpec& spec) { return LayerImage(model::layer_tensors(spec)); }

/// Remembers which bytes of which tensors were asked for.
class Watched final : public WeightSource {
 public:
  explicit Watched(std::unique_ptr<WeightSource> source = make_dummy_source(kSeed))
      : source_(std::move(source)) {}

  void read(const std::string& group, const model::TensorSpec& tensor, std::uint64_t first_byte,
            std::span<std::byte> out, std::span<std::byte> scratch) const override {
    if (tensor.name == fail_on) {
      throw IoError("cannot read " + tensor.name);
    }
    source_->read(group, tensor, first_byte, out, scratch);
    const std::lock_guard lock(mutex_);
    auto& seen = seen_[group + "/" + tensor.name];
    for (std::size_t i = 0; i < out.size(); ++i) {
      seen.insert(first_byte + i);
    }
  }
  [[nodiscard]] const DirectFile* file() const override { return source_->file(); }
  [[nodiscard]] std::uint64_t file_offset(const std::string& group,
                                          const std::string& tensor) const override {
    return source_->file_offset(group, tensor);
  }

  std::string fail_on;
  /// Byte numbers by "group/tensor".
  [[nodiscard]] const std::map<std::string, std::set<std::uint64_t>>& seen() const { return seen_; }

 private:
  std::unique_ptr<WeightSource> source_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::set<std::uint64_t>> seen_;
};

std::vector<Half> expected_values(const std::string& group, const model::TensorSpec& tensor) {
  std::vector<Half> values(static_cast<std::size_t>(tensor.elements()));
  model::fill_dummy(kSeed, group, tensor, 0, values);
  return values;
}

void expect_tensor(const Half* values, const std::string& group, const model::TensorSpec& tensor) {
  const auto expected = expected_values(group, tensor);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), values)) << group << "/" << tensor.name;
}

void expect_linear(const LinearWeights& weights, const std::string& group, const LayerImage& image,
                   const std::string& name) {
  const auto& tensor = image.part(name + ".weight").tensor;
  const auto row = tensor.shape[1];
  ASSERT_EQ(weights.first_rows + weights.rest_rows, tensor.shape[0]);
  const auto expected = expected_values(group, tensor);
  const auto cut = expected.begin() + weights.first_rows * row;
  EXPECT_TRUE(weights.first_rows == 0 || std::equal(expected.begin(), cut, weights.first.halves()))
      << group << "/" << name << " first";
  EXPECT_TRUE(weights.rest_rows == 0 || std::equal(cut, expected.end(), weights.rest.halves()))
      << group << "/" << name << " rest";
  expect_tensor(weights.bias, group, image.part(name + ".bias").tensor);
}

void expect_layer(const LayerWeights& layer, const std::string& group, const LayerImage& image) {
  expect_tensor(layer.attn_norm.weight, group, image.part("attn_norm.weight").tensor);
  expect_tensor(layer.attn_norm.bias, group, image.part("attn_norm.bias").tensor);
  expect_tensor(layer.mlp_norm.weight, group, image.part("mlp_norm.weight").tensor);
  expect_tensor(layer.mlp_norm.bias, group, image.part("mlp_norm.bias").tensor);
  expect_linear(layer.q, group, image, "q");
  expect_linear(layer.k, group, image, "k");
  expect_linear(layer.v, group, image, "v");
  expect_linear(layer.o, group, image, "o");
  expect_linear(layer.up, group, image, "up");
  expect_linear(layer.down, group, image, "down");
}

/// What a stage streams to the device for one layer: its part in DRAM, then its part on disk.
std::vector<std::byte> streamed(const StageWeights& weights, const LayerImage& image,
                                const WeightCut& cut, std::int64_t layer) {
  std::vector<std::byte> buffer(image.size_bytes() - cut.stream_begin);
  if (cut.cpu_end > cut.stream_begin) {
    const auto* const from = weights.in_dram(layer, {cut.stream_begin, cut.cpu_end});
    std::copy(from, from + (cut.cpu_end - cut.stream_begin), buffer.begin());
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

std::string store_of(const TempFolder& folder, const model::ModelSpec& spec) {
  const auto path = folder.file("model.h5");
  model::convert_dummy(spec, kSeed, path, true, {});
  return path;
}

class StageWeightsTest : public ::testing::Test {
 protected:
  StageWeights load(const model::ModelSpec& spec, const StageContents& contents,
                    const TierShares& shares, const WeightSource& source, int threads = 2) {
    const auto image = image_of(spec);
    return {spec,   contents, {},    image,   cut_by_shares(image, shares),
            source, *device_, dram_, threads, nullptr};
  }

  AbortSignal abort_;
  std::unique_ptr<device::Device> device_ = device::make_host_device({}, abort_);
  MemoryBudget dram_{"CPU memory", std::size_t{1} << 30};
  Watched source_;
};

TEST_F(StageWeightsTest, TablesAndHeadAreWholeOnTheDevice) {
  const auto spec = spec_of(64, 70000, false);  // tables longer than one piece of reading
  for (const int threads : {1, 4}) {
    const auto source = make_dummy_source(kSeed);
    const auto weights = load(spec, kAll, {0, 1}, *source, threads);
    const auto embedding = model::embedding_tensors(spec);
    const auto head = model::head_tensors(spec);
    expect_tensor(weights.token_table().halves(), model::kEmbeddingGroup, embedding[0]);
    expect_tensor(weights.position_table(), model::kEmbeddingGroup, embedding[1]);
    expect_tensor(weights.final_norm().weight, model::kHeadGroup, head[0]);
    expect_tensor(weights.final_norm().bias, model::kHeadGroup, head[1]);
    expect_tensor(weights.head().halves(), model::kHeadGroup, head[2]);
  }
}

TEST_F(StageWeightsTest, ATiedHeadIsTheTokenTable) {
  const auto weights = load(small_spec(), kAll, {1, 0}, source_);
  EXPECT_EQ(weights.head().data, weights.token_table().data);
}

TEST_F(StageWeightsTest, EveryTensorIsWhereItsLayerSaysForAnyShares) {
  const TempFolder folder;
  const auto spec = small_spec();
  const auto image = image_of(spec);
  const auto source = open_store_source(model::read_store_index(store_of(folder, spec)));
  for (int device = 0; device <= 100; device += 10) {
    for (int cpu = 0; device + cpu <= 100; cpu += 10) {
      SCOPED_TRACE("device " + std::to_string(device) + " cpu " + std::to_string(cpu));
      const TierShares shares{device / 100.0, cpu / 100.0};
      const auto cut = cut_by_shares(image, shares);
      const auto weights = load(spec, {.first_layer = 1, .layers = 2}, shares, *source);
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        const auto buffer = streamed(weights, image, cut, layer);
        expect_layer(weights.layer(layer, buffer.data(), cut.stream_begin),
                     model::layer_group(1 + layer), image);
      }
    }
    if (HasFailure()) {
      return;
    }
  }
}

TEST_F(StageWeightsTest, EveryCutOfALayerKeepsItsTensors) {
  const auto spec = small_spec();
  const auto image = image_of(spec);
  for (int permille = 0; permille <= 1000; permille += 7) {
    SCOPED_TRACE(permille);
    const TierShares shares{permille / 1000.0, 1 - permille / 1000.0};
    const auto cut = cut_by_shares(image, shares);
    const auto source = make_dummy_source(kSeed);
    const auto weights = load(spec, {.first_layer = 0, .layers = 1}, shares, *source, 1);
    const auto buffer = streamed(weights, image, cut, 0);
    expect_layer(weights.layer(0, buffer.data(), cut.stream_begin), "layers/000", image);
  }
}

TEST_F(StageWeightsTest, ALayerAllOnTheDeviceNeedsNoBuffer) {
  const auto spec = small_spec();
  const auto weights = load(spec, kAll, {1, 0}, source_);
  EXPECT_TRUE(weights.dram().empty());
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    expect_layer(weights.layer(layer, nullptr, 0), model::layer_group(layer), image_of(spec));
  }
}

TEST_F(StageWeightsTest, HalfALayerInABufferHasItsOwnOrigin) {
  const auto spec = small_spec();
  const auto image = image_of(spec);
  const auto weights = load(spec, kAll, {0, 1}, source_);
  const auto origin = image.part("mlp_norm.weight").offset_bytes;
  const auto* const half = weights.in_dram(2, {origin, image.size_bytes()});
  const auto layer = weights.layer(2, half, origin);
  expect_linear(layer.up, "layers/002", image, "up");
  expect_linear(layer.down, "layers/002", image, "down");
  EXPECT_EQ(layer.attn_norm.weight, nullptr);
}

TEST_F(StageWeightsTest, AStageReadsItsOwnLayersAndNoOthers) {
  load(small_spec(), {.first_layer = 1, .layers = 1}, {0.5, 0.5}, source_);
  EXPECT_EQ(source_.seen().size(), 16u);
  for (const auto& [name, bytes] : source_.seen()) {
    EXPECT_EQ(name.rfind("layers/001/", 0), 0u) << name;
  }
}

TEST_F(StageWeightsTest, WhatIsOnDiskIsNotReadAndTheRestIs) {
  const TempFolder folder;
  const auto spec = small_spec();
  const auto image = image_of(spec);
  const auto index = model::read_store_index(store_of(folder, spec));
  for (const auto& shares : {TierShares{0.2, 0.5}, {0, 0.3}, {0.4, 0}, {0, 0}}) {
    const Watched watched(open_store_source(index));
    const auto cut = cut_by_shares(image, shares);
    const auto kept_end = std::max(cut.device_end, cut.cpu_end);
    load(spec, {.first_layer = 2, .layers = 1}, shares, watched);
    for (const auto& part : image.parts()) {
      std::set<std::uint64_t> expected;
      for (std::uint64_t byte = 0; byte < static_cast<std::uint64_t>(part.tensor.size_bytes());
           ++byte) {
        if (part.offset_bytes + byte < kept_end) {
          expected.insert(byte);
        }
      }
      const auto found = watched.seen().find("layers/002/" + part.tensor.name);
      EXPECT_EQ(found == watched.seen().end() ? std::set<std::uint64_t>{} : found->second, expected)
          << part.tensor.name;
    }
  }
}

TEST_F(StageWeightsTest, LoadedBytesAreTheTensorBytesThatStay) {
  const TempFolder folder;
  const auto spec = small_spec();
  const auto image = image_of(spec);
  const auto source = open_store_source(model::read_store_index(store_of(folder, spec)));
  const auto cut = cut_by_shares(image, {0, 0.4});
  const auto weights = load(spec, {.first_layer = 0, .layers = 3}, {0, 0.4}, *source);
  EXPECT_EQ(weights.loaded_bytes(), 3 * image.tensor_bytes_before(cut.cpu_end));
}

TEST_F(StageWeightsTest, TakesTheMemoryThatWasReported) {
  const auto spec = small_spec();
  const auto cut = cut_by_shares(image_of(spec), {0.3, 0.7});
  const auto weights = load(spec, kAll, {0.3, 0.7}, source_);
  EXPECT_EQ(device_->allocated_bytes(),
            StageWeights::table_bytes(spec, kAll, {}) + StageWeights::device_bytes(kAll, cut));
  EXPECT_EQ(dram_.used_bytes(), StageWeights::cpu_bytes(kAll, cut));
  EXPECT_LE(dram_.peak_bytes(),
            StageWeights::cpu_bytes(kAll, cut) + StageWeights::staging_bytes(source_, 2));
}

TEST_F(StageWeightsTest, TheLastStageReadsTheHead) {
  load(spec_of(64, 50, false), {.first_layer = 2, .layers = 1, .head = true}, {1, 0}, source_);
  EXPECT_EQ(source_.seen().count("head/weight"), 1u);
  EXPECT_EQ(source_.seen().count("embedding/token.weight"), 0u);
  const Watched tied;
  load(small_spec(), {.first_layer = 2, .layers = 1, .head = true}, {1, 0}, tied);
  EXPECT_EQ(tied.seen().count("embedding/token.weight"), 1u);
  EXPECT_EQ(tied.seen().count("embedding/position.weight"), 0u);
}

TEST_F(StageWeightsTest, GeneratedWeightsCannotBeOnDisk) {
  EXPECT_THROW(load(small_spec(), kAll, {0.5, 0.4}, source_), ConfigError);
  EXPECT_TRUE(source_.seen().empty());
  EXPECT_EQ(dram_.used_bytes(), 0u);
}

TEST_F(StageWeightsTest, AFailedReadIsThrownOnce) {
  source_.fail_on = "q.weight";
  EXPECT_THROW(load(small_spec(), kAll, {1, 0}, source_, 4), IoError);
  EXPECT_EQ(dram_.used_bytes(), 0u);
}

TEST_F(StageWeightsTest, ReportsItsProgressToTheEnd) {
  const auto spec = small_spec();
  const auto image = image_of(spec);
  std::uint64_t last = 0, total = 0;
  const StageWeights weights(spec, {.first_layer = 0, .layers = 1}, {}, image,
                             cut_by_shares(image, {0.5, 0.5}), source_, *device_, dram_, 3,
                             [&](std::uint64_t done, std::uint64_t all) {
                               EXPECT_GT(done, last);
                               last = done;
                               total = all;
                             });
  EXPECT_EQ(last, total);
  EXPECT_EQ(last, weights.loaded_bytes());
}

TEST_F(StageWeightsTest, ExtentsCoverTheirRangeOnceAndInPages) {
  const TempFolder folder;
  const auto spec = small_spec();
  const auto image = image_of(spec);
  const auto source = open_store_source(model::read_store_index(store_of(folder, spec)));
  const auto weights = load(spec, kAll, {0, 0}, *source);
  for (std::size_t begin = 0; begin < image.size_bytes(); begin += kPageBytes) {
    for (const auto end : {begin + kPageBytes, image.size_bytes()}) {
      auto next = begin;
      for (const auto& extent : weights.extents(1, {begin, end})) {
        EXPECT_EQ(extent.image_offset, next);
        EXPECT_EQ(extent.file_offset % kPageBytes, 0u);
        EXPECT_EQ(extent.size_bytes % kPageBytes, 0u);
        EXPECT_LE(extent.least_bytes, extent.size_bytes);
        EXPECT_GT(extent.least_bytes + kPageBytes, extent.size_bytes);
        next += extent.size_bytes;
      }
      EXPECT_EQ(next, end);
    }
  }
}

TEST_F(StageWeightsTest, DiskReadsBringHardlyMoreThanTheTensors) {
  const TempFolder folder;
  auto spec = spec_of(512, 50, true);
  spec.ffn = 4 * spec.hidden;
  const auto image = image_of(spec);
  const auto source = open_store_source(model::read_store_index(store_of(folder, spec)));
  for (const auto& shares : {TierShares{0, 0}, {0.25, 0}, {0, 0.5}}) {
    const auto cut = cut_by_shares(image, shares);
    const auto weights = load(spec, {.first_layer = 0, .layers = 1}, shares, *source);
    const auto extents = weights.extents(0, {cut.cpu_end, image.size_bytes()});
    double bytes = 0;
    for (const auto& extent : extents) {
      bytes += static_cast<double>(extent.size_bytes);
    }
    const auto needed = image.tensor_bytes() - image.tensor_bytes_before(cut.cpu_end);
    EXPECT_LE(bytes / static_cast<double>(needed), 1.01);
    EXPECT_LE(extents.size(), 3u) << "tensors that follow each other are read as one";
  }
}

}  // namespace
}  // namespace stagecoach::offload
