#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.hpp"
#include "offload/weight_source.hpp"
#include "packed_model.hpp"

namespace stagecoach::offload {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

/// Bytes of a read, with guards around them and around the scratch that was said to be enough.
std::vector<std::byte> read(const WeightSource& source, const std::string& group,
                            const model::TensorSpec& tensor, std::size_t first, std::size_t size) {
  constexpr std::size_t kGuard = 64;
  constexpr std::byte kMark{0xa5};
  std::vector<std::byte> out(size + kGuard, kMark);
  std::vector<std::byte> scratch(source.scratch_bytes() + kGuard, kMark);
  source.read(group, tensor, first, std::span(out).first(size),
              std::span(scratch).first(source.scratch_bytes()));
  for (std::size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(out[size + i], kMark);
    EXPECT_EQ(scratch[source.scratch_bytes() + i], kMark);
  }
  out.resize(size);
  return out;
}

TEST(PackingSource, AnyPieceIsTheStoresBytes) {
  constexpr unsigned kRandomSeed = 3;
  SCOPED_TRACE(kRandomSeed);
  std::mt19937 random(kRandomSeed);
  const TempFolder folder;
  const auto spec = uneven_spec();
  const auto plain = dummy_store(folder, spec, {});
  for (const auto packing : {Packing::int4, Packing::int8}) {
    const model::WeightFormat format{{packing, 32}, true};
    const auto stored = open_store_source(dummy_store(folder, spec, format));
    const auto packed = make_packing_source(open_store_source(plain), spec, format);
    const auto made = make_packing_source(make_dummy_source(kPackedSeed), spec, format);
    for (const auto& tensor : model::layer_tensors(spec, format)) {
      const auto expected = expected_bytes("layers/002", tensor);
      for (int i = 0; i < 20; ++i) {
        // Even, as pieces of f16 are.
        const auto first = random() % expected.size() / 2 * 2;
        const auto size = 2 * (1 + random() % ((expected.size() - first) / 2));
        const std::vector<std::byte> wanted(
            expected.begin() + static_cast<std::ptrdiff_t>(first),
            expected.begin() + static_cast<std::ptrdiff_t>(first + size));
        for (const auto* source : {stored.get(), packed.get(), made.get()}) {
          ASSERT_TRUE(read(*source, "layers/002", tensor, first, size) == wanted)
              << tensor.name << " " << first << "+" << size;
        }
      }
    }
  }
}

TEST(PackingSource, LongReadsTakeSeveralChunks) {
  auto spec = uneven_spec();
  spec.vocab = 30'000;  // 4.3 MB of f16
  const model::WeightFormat format{{Packing::int4, 64}, true};
  const auto source = make_packing_source(make_dummy_source(kPackedSeed), spec, format);
  const auto table = model::embedding_tensors(spec, format).front();
  const auto expected = expected_bytes(model::kEmbeddingGroup, table);
  EXPECT_TRUE(read(*source, model::kEmbeddingGroup, table, 0, expected.size()) == expected);
  EXPECT_LT(source->scratch_bytes(), std::size_t{2} << 20);
}

TEST(PackingSource, RowsLongerThanAChunkFit) {
  auto spec = uneven_spec();
  spec.ffn = 600'000;  // `down` has rows of 1.2 MB
  spec.hidden = 4;
  spec.head_dim = 1;
  const model::WeightFormat format{{Packing::int8, 128}, false};
  const auto source = make_packing_source(make_dummy_source(kPackedSeed), spec, format);
  for (const auto& tensor : model::layer_tensors(spec, format)) {
    if (tensor.name == "down.weight") {
      const auto expected = expected_bytes("layers/000", tensor);
      EXPECT_TRUE(read(*source, "layers/000", tensor, 0, expected.size()) == expected);
    }
  }
}

TEST(PackingSource, SaysWhyThereIsNoFileAndWhatToDo) {
  const TempFolder folder;
  const auto spec = uneven_spec();
  const auto plain = dummy_store(folder, spec, {});
  const auto packed = make_packing_source(open_store_source(plain), spec,
                                          model::WeightFormat{{Packing::int4, 64}, false});
  EXPECT_EQ(packed->file(), nullptr);
  EXPECT_EQ(packed->why_no_file(),
            "the weights are packed while they are read and are in no file: make a packed store "
            "with 'stagecoach convert --quantize int4' and give it with --model");
  EXPECT_THAT(make_packing_source(open_store_source(plain), spec, {{Packing::int8, 128}, true})
                  ->why_no_file(),
              HasSubstr("convert --quantize int8 --quantize-group 128 --quantize-embeddings'"));
  EXPECT_EQ(
      make_packing_source(make_dummy_source(1), spec, {{Packing::int8, 64}, false})->why_no_file(),
      "--dummy weights are in no file: make a store with 'stagecoach convert --dummy "
      "--quantize int8' and give it with --model");
  EXPECT_THROW(static_cast<void>(packed->file_offset("layers/000", "q.weight")), InternalError);
}

TEST(StoreSource, OtherFormatsThanTheStoresAreRefused) {
  const TempFolder folder;
  const auto spec = uneven_spec();
  const auto plain = open_store_source(dummy_store(folder, spec, {}));
  const auto packed = open_store_source(dummy_store(folder, spec, {{Packing::int4, 64}, false}));
  const model::TensorSpec matrix{"q.weight", {72, 72}, {}};
  const model::TensorSpec packed_matrix{"q.weight", {72, 72}, {Packing::int4, 64}};
  EXPECT_NO_THROW(read(*plain, "layers/000", matrix, 0, 64));
  EXPECT_THROW(read(*plain, "layers/000", packed_matrix, 0, 64), InternalError);
  EXPECT_THROW(read(*packed, "layers/000", matrix, 0, 64), InternalError);
  EXPECT_THROW(read(*make_dummy_source(1), "layers/000", packed_matrix, 0, 64), InternalError);
}

}  // namespace
}  // namespace stagecoach::offload
