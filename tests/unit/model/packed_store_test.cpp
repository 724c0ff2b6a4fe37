#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/packing.hpp"
#include "checkpoint_writer.hpp"
#include "model/convert.hpp"
#include "model/dummy_weights.hpp"
#include "model/pack_rows.hpp"
#include "model/store_format.hpp"
#include "model/weight_store.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::model {
namespace {

using stagecoach::testing::read_file;
using stagecoach::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kSeed = 5;

/// Rows of 72 and 100 numbers: the last group of each is a part.
ModelSpec uneven_spec() {
  ModelSpec spec;
  spec.layers = 2;
  spec.hidden = 72;
  spec.heads = spec.kv_heads = 2;
  spec.head_dim = 36;
  spec.ffn = 100;
  spec.vocab = 30;
  spec.max_positions = 6;
  spec.position_offset = 2;
  spec.tied_head = false;
  return spec;
}

std::vector<WeightFormat> packed_formats() {
  std::vector<WeightFormat> formats;
  for (const auto packing : {Packing::int4, Packing::int8}) {
    for (const std::int64_t group : {32, 64, 128}) {
      formats.push_back({{packing, group}, group != 64});
    }
  }
  return formats;
}

std::string store_of(const TempFolder& folder, const WeightFormat& weights,
                     const std::string& name = "model.h5") {
  const auto path = folder.file(name);
  convert_dummy(uneven_spec(), kSeed, path, true, {}, weights);
  return path;
}

std::vector<Half> dummy_row(const std::string& group, const TensorSpec& tensor, std::int64_t row) {
  std::vector<Half> values(static_cast<std::size_t>(tensor.columns()));
  fill_dummy(kSeed, group, tensor, row * tensor.columns(), values);
  return values;
}

/// Half a step of a group is all that rounding may cost, and what f16 adds to it.
void expect_near_by_groups(const std::vector<Half>& means, const std::vector<Half>& values,
                           const PackFormat& format) {
  const auto group = static_cast<std::size_t>(format.group);
  const float steps = format.packing == Packing::int4 ? 15 : 255;
  for (std::size_t first = 0; first < values.size(); first += group) {
    float least = 1e9f, most = -1e9f;
    const auto end = std::min(values.size(), first + group);
    for (auto i = first; i < end; ++i) {
      least = std::min(least, to_float(values[i]));
      most = std::max(most, to_float(values[i]));
    }
    for (auto i = first; i < end; ++i) {
      ASSERT_NEAR(to_float(means[i]), to_float(values[i]), (most - least) / steps * 0.52f + 4e-5f)
          << i;
    }
  }
}

bool is_matrix(const std::string& group, const TensorSpec& tensor, bool embeddings) {
  const bool table = group == kEmbeddingGroup || group == kHeadGroup;
  return tensor.shape.size() == 2 && tensor.name != "position.weight" && (!table || embeddings);
}

TEST(PackedStore, MatricesArePackedAndTheRestIsAsItWas) {
  const TempFolder folder;
  for (const auto& weights : packed_formats()) {
    SCOPED_TRACE(describe(weights));
    const auto path = store_of(folder, weights);
    const auto file = read_file(path);
    const auto index = read_store_index(path);
    EXPECT_EQ(index.weights, weights);
    EXPECT_EQ(index.spec, uneven_spec());
    for (const auto& [group, tensors] : index.groups) {
      for (const auto& [tensor, offset, checksum] : tensors) {
        SCOPED_TRACE(group + "/" + tensor.name);
        const auto format =
            is_matrix(group, tensor, weights.embeddings) ? weights.layers : PackFormat{};
        ASSERT_EQ(tensor.format, format);
        EXPECT_EQ(offset % 4096, 0u);
        EXPECT_EQ(hash_string(file.substr(offset, static_cast<std::size_t>(tensor.size_bytes()))),
                  checksum);
        for (std::int64_t row = 0; row < tensor.rows(); ++row) {
          const auto expected = dummy_row(group, tensor, row);
          std::vector<Half> found(expected.size());
          const auto* const bytes =
              reinterpret_cast<const std::byte*>(file.data()) + offset + row * tensor.row_bytes();
          if (format.packed()) {
            unpack_row(format, bytes, found);
            expect_near_by_groups(found, expected, format);
          } else {
            std::memcpy(found.data(), bytes, 2 * found.size());
            ASSERT_TRUE(std::equal(found.begin(), found.end(), expected.begin(),
                                   [](Half a, Half b) { return a.bits == b.bits; }));
          }
        }
      }
    }
    EXPECT_THAT(verify_store(index, {}), IsEmpty());
  }
}

std::uint64_t root_number(hid_t file, const char* name) {
  const auto attribute = H5Aopen(file, name, H5P_DEFAULT);
  std::uint64_t value = 0;
  EXPECT_GE(H5Aread(attribute, H5T_NATIVE_UINT64, &value), 0);
  H5Aclose(attribute);
  return value;
}

TEST(PackedStore, IsPlainHdf5) {
  const TempFolder folder;
  const auto path = store_of(folder, {{Packing::int4, 32}, true});
  const auto file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  EXPECT_EQ(root_number(file, "format_version"), 2u);
  EXPECT_EQ(root_number(file, "weights_group"), 32u);
  EXPECT_EQ(root_number(file, "weights_embeddings"), 1u);
  const auto dataset = H5Dopen2(file, "layers/001/down.weight", H5P_DEFAULT);
  const auto type = H5Dget_type(dataset);
  EXPECT_GT(H5Tequal(type, H5T_STD_U8LE), 0);
  const auto space = H5Dget_space(dataset);
  std::vector<hsize_t> shape(2);
  ASSERT_EQ(H5Sget_simple_extent_dims(space, shape.data(), nullptr), 2);
  // A row of 100: four groups' parameters in 16 bytes, four blocks of 16 bytes of codes.
  EXPECT_THAT(shape, ElementsAre(72u, 16u + 64u));
  const auto creation = H5Dget_create_plist(dataset);
  EXPECT_EQ(H5Pget_layout(creation), H5D_CONTIGUOUS);
  H5Pclose(creation);
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(dataset);
  H5Fclose(file);
}

TEST(PackedStore, StoresInF16HaveNothingOfIt) {
  const TempFolder folder;
  const auto path = store_of(folder, {});
  const auto file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  EXPECT_EQ(root_number(file, "format_version"), 1u);
  EXPECT_EQ(H5Aexists(file, "weights_packing"), 0);
  EXPECT_EQ(H5Aexists(file, "weights_group"), 0);
  EXPECT_EQ(H5Aexists(file, "weights_embeddings"), 0);
  H5Fclose(file);
}

TEST(PackedStore, TheSameInputIsTheSameFile) {
  const TempFolder folder;
  const WeightFormat weights{{Packing::int8, 64}, true};
  EXPECT_TRUE(read_file(store_of(folder, weights, "a.h5")) ==
              read_file(store_of(folder, weights, "b.h5")));
}

TEST(PackedStore, TheDigestTellsFormatsApart) {
  const TempFolder folder;
  std::set<std::uint64_t> digests{read_store_index(store_of(folder, {})).digest()};
  for (const auto& weights : packed_formats()) {
    digests.insert(read_store_index(store_of(folder, weights)).digest());
  }
  EXPECT_EQ(digests.size(), 7u);
  auto index = read_store_index(store_of(folder, {{Packing::int4, 64}, false}));
  const auto digest = index.digest();
  index.weights.layers.group = 32;
  EXPECT_NE(index.digest(), digest) << "with the same checksums";
}

TEST(PackedStore, VerifyFindsOneDamagedCode) {
  const TempFolder folder;
  const auto path = store_of(folder, {{Packing::int4, 64}, false});
  const auto index = read_store_index(path);
  auto bytes = read_file(path);
  bytes[index.find("layers/001", "up.weight").offset_bytes + 191] ^= 1;
  static_cast<void>(folder.write("model.h5", bytes));
  EXPECT_THAT(verify_store(read_store_index(path), {}), ElementsAre("layers/001/up.weight"));
}

/// A packed store whose root can be changed through HDF5.
class Damaged {
 public:
  explicit Damaged(const WeightFormat& weights)
      : path_(store_of(folder_, weights)),
        file_(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)) {}
  Damaged(const Damaged&) = delete;
  Damaged& operator=(const Damaged&) = delete;
  Damaged(Damaged&&) = delete;
  Damaged& operator=(Damaged&&) = delete;
  ~Damaged() { close(); }

  Damaged& without(const char* name) {
    EXPECT_GE(H5Adelete(file_, name), 0);
    return *this;
  }
  Damaged& with(const char* name, std::uint64_t value) {
    return make(name, H5Tcopy(H5T_STD_U64LE), &value);
  }
  Damaged& with(const char* name, const std::string& value) {
    const auto type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, value.size());
    return make(name, type, value.data());
  }
  std::string error() {
    close();
    try {
      read_store_index(path_);
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
      return error.what();
    }
    ADD_FAILURE() << "no FormatError";
    return {};
  }

 private:
  Damaged& make(const char* name, hid_t type, const void* value) {
    if (H5Aexists(file_, name) > 0) {
      H5Adelete(file_, name);
    }
    const auto scalar = H5Screate(H5S_SCALAR);
    const auto attribute = H5Acreate2(file_, name, type, scalar, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Awrite(attribute, type, value), 0);
    H5Aclose(attribute);
    H5Sclose(scalar);
    H5Tclose(type);
    return *this;
  }
  void close() {
    if (file_ >= 0) {
      H5Fclose(file_);
      file_ = -1;
    }
  }

  TempFolder folder_;
  std::string path_;
  hid_t file_;
};

TEST(PackedStore, DamagedAttributesAreRefused) {
  const WeightFormat weights{{Packing::int4, 64}, false};
  EXPECT_THAT(Damaged(weights).with("weights_packing", "int5").error(),
              HasSubstr("weights_packing is no packing of this program"));
  EXPECT_THAT(Damaged(weights).with("weights_packing", "none").error(),
              HasSubstr("weights_packing is no packing of this program"));
  EXPECT_THAT(Damaged(weights).with("weights_packing", 4).error(), HasSubstr("is no text"));
  EXPECT_THAT(Damaged(weights).with("weights_group", 48).error(),
              HasSubstr("weights_group is 48, it must be one of 32, 64, 128"));
  EXPECT_THAT(Damaged(weights).with("weights_group", "64").error(),
              HasSubstr("weights_group is no 64-bit number"));
  EXPECT_THAT(Damaged(weights).without("weights_group").error(),
              HasSubstr("cannot read weights_group"));
  EXPECT_THAT(Damaged(weights).with("weights_embeddings", 2).error(),
              HasSubstr("weights_embeddings is 2, it must be 0 or 1"));
}

TEST(PackedStore, ContradictionsAreRefused) {
  const WeightFormat weights{{Packing::int4, 64}, false};
  EXPECT_THAT(Damaged(weights).with("format_version", 1).error(), HasSubstr("contradict"));
  EXPECT_THAT(Damaged(weights).without("weights_packing").error(), HasSubstr("contradict"));
  EXPECT_THAT(Damaged({}).with("format_version", 2).error(), HasSubstr("contradict"));
  EXPECT_THAT(Damaged({}).with("weights_packing", "int8").error(), HasSubstr("contradict"));
  EXPECT_THAT(Damaged(weights).with("weights_embeddings", 1).error(),
              HasSubstr("embedding/token.weight is not of the byte type"));
  EXPECT_THAT(Damaged(weights).with("weights_packing", "int8").error(),
              HasSubstr("layers/000/q.weight has shape [72, 64], the model wants [72, 112]"));
}

TEST(PackRows, AreThoseOfPackRowForAnyThreads) {
  constexpr std::int64_t kColumns = 100;
  std::vector<Half> values(37 * kColumns);
  fill_dummy(kSeed, "layers/000", {"q.weight", {37, kColumns}, {}}, 0, values);
  values[3 * kColumns + 40].bits = 0x7c00;   // infinity, in the second group of 32
  values[3 * kColumns + 99].bits = 0xfe00;   // NaN, in the fourth
  values[36 * kColumns + 99].bits = 0x7e01;  // NaN
  for (const auto packing : {Packing::int4, Packing::int8}) {
    const PackFormat format{packing, 32};
    const auto row_bytes = static_cast<std::size_t>(packed_row_bytes(format, kColumns));
    std::vector<std::byte> expected(37 * row_bytes);
    for (std::size_t row = 0; row < 37; ++row) {
      pack_row(format, std::span(values).subspan(row * kColumns, kColumns),
               expected.data() + row * row_bytes);
    }
    for (const int threads : {1, 2, 5, 64}) {
      std::vector<std::byte> packed(expected.size(), std::byte{0xee});
      EXPECT_EQ(pack_rows(format, values, kColumns, packed, threads), 3);
      EXPECT_TRUE(packed == expected) << threads;
    }
  }
}

// The example of docs/formats.md.
TEST(PackRows, TheExampleIsTrue) {
  std::vector<Half> values(40);
  const std::vector<float> first = {0.5f, -0.25f, 0, 1, 0.125f, -0.5f, 0.75f, 0.3f};
  std::transform(first.begin(), first.end(), values.begin(), to_half);
  values[35] = to_half(2.0f);
  const std::vector<int> expected = {0x00, 0xb8, 0x66, 0x2e, 0x00, 0x00, 0x44, 0x30, 0,    0,
                                     0,    0,    0,    0,    0,    0,    0x5a, 0x53, 0x55, 0x5f,
                                     0x56, 0x50, 0x5d, 0x58, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55,
                                     0x55, 0x55, 0,    0,    0,    0x0f, 0,    0,    0,    0,
                                     0,    0,    0,    0,    0,    0,    0,    0};
  std::vector<std::byte> packed(48);
  pack_rows({Packing::int4, 32}, values, 40, packed, 1);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(packed[i]), expected[i]) << i;
  }
}

TEST(PackedStore, LongTensorsArePackedPieceByPiece) {
  const TempFolder folder;
  auto spec = uneven_spec();
  spec.hidden = 8;
  spec.head_dim = 4;
  spec.vocab = 300'000;  // as many rows of 32 bytes: more than a piece of 8 MiB
  const auto path = folder.file("model.h5");
  const PackFormat format{Packing::int4, 64};
  std::uint64_t done = 0, total = 0;
  convert_dummy(spec, kSeed, path, false,
                [&](std::uint64_t now, std::uint64_t of) {
                  EXPECT_GT(now, done);
                  done = now;
                  total = of;
                },
                {format, true});
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, static_cast<std::uint64_t>(weight_bytes(spec, {format, true})));
  const auto index = read_store_index(path);
  const auto& [tensor, offset, checksum] = index.find(kEmbeddingGroup, "token.weight");
  const auto file = read_file(path);
  for (std::int64_t row = 0; row < spec.vocab; row += 7) {
    std::vector<std::byte> expected(32);
    pack_row(format, dummy_row(kEmbeddingGroup, tensor, row), expected.data());
    ASSERT_EQ(std::memcmp(file.data() + offset + row * 32, expected.data(), 32), 0) << row;
  }
}

TEST(PackedStore, GroupsThatAreNaNAreCounted) {
  using namespace stagecoach::testing;
  const TempFolder folder;
  auto tensors = small_tensors("model.decoder.", small_value);
  std::vector<float> values(12 * 8, 1.0f);
  values[3] = std::numeric_limits<float>::infinity();
  values[5] = std::numeric_limits<float>::quiet_NaN();
  values[95] = std::numeric_limits<float>::quiet_NaN();
  tensors["model.decoder.layers.1.fc1.weight"].bytes = bytes_of_values(values);
  std::vector<float> bias(8, 1.0f);
  bias[0] = std::numeric_limits<float>::infinity();
  tensors["model.decoder.layers.0.fc2.bias"].bytes = bytes_of_values(bias);
  const auto to = folder.file("model.h5");
  const PackFormat format{Packing::int4, 32};
  const auto report =
      convert_checkpoint(write_checkpoint(folder, tensors), to, false, {}, {format, false});
  EXPECT_THAT(
      report.warnings,
      ElementsAre(AllOf(HasSubstr("layers.0.fc2.bias has 0 NaN and 1 infinite values"),
                        ::testing::Not(HasSubstr("groups"))),
                  HasSubstr("layers.1.fc1.weight has 2 NaN and 1 infinite values: 2 groups with "
                            "not finite numbers are NaN throughout")));
  const auto file = read_file(to);
  const auto index = read_store_index(to);
  const auto& stored = index.find("layers/001", "up.weight");
  for (std::int64_t row = 0; row < 12; ++row) {
    std::vector<Half> means(8);
    unpack_row(format,
               reinterpret_cast<const std::byte*>(file.data()) + stored.offset_bytes +
                   row * stored.tensor.row_bytes(),
               means);
    for (const auto value : means) {
      EXPECT_EQ(std::isnan(to_float(value)), row == 0 || row == 11) << row;
    }
  }
}

TEST(PackedStore, FiniteOverflowStaysRefused) {
  using namespace stagecoach::testing;
  const TempFolder folder;
  auto tensors = small_tensors("model.decoder.", small_value);
  tensors["model.decoder.layers.1.fc1.weight"].bytes =
      bytes_of_values(std::vector<float>(12 * 8, 1e6f));
  EXPECT_THROW(convert_checkpoint(write_checkpoint(folder, tensors), folder.file("model.h5"), false,
                                  {}, {{Packing::int8, 64}, false}),
               ConfigError);
}

}  // namespace
}  // namespace stagecoach::model
