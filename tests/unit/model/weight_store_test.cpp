#include "model/weight_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <fstream>

#include "base/error.hpp"
#include "base/half.hpp"
#include "base/hash.hpp"
#include "checkpoint_writer.hpp"
#include "support/temp_folder.hpp"

// HDF5 1.10 loses some memory when it refuses a damaged object header.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace stagecoach::model {
namespace {

using stagecoach::testing::read_file;
using stagecoach::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelSpec small_spec() {
  ModelSpec spec;
  spec.name = "small";
  spec.layers = 2;
  spec.hidden = 8;
  spec.heads = spec.kv_heads = 2;
  spec.head_dim = 4;
  spec.ffn = 12;
  spec.vocab = 16;
  spec.max_positions = 6;
  spec.position_offset = 2;
  return spec;
}

TokenizerFiles small_tokenizer() { return {"{\"a\": 0}", "#version: 0.2\na b\n", ""}; }

/// Numbers that differ for every tensor: (first, first + 1, ...) / 64.
std::vector<Half> values_of(const TensorSpec& tensor, int first) {
  std::vector<Half> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    values.push_back(to_half(static_cast<float>((first + i) % 2000) / 64.0f));
  }
  return values;
}

template <typename Visit>
void for_each_tensor(const ModelSpec& spec, Visit visit) {
  int number = 0;
  const auto visit_group = [&](const std::string& group, const std::vector<TensorSpec>& tensors) {
    for (const auto& tensor : tensors) {
      visit(group, tensor, values_of(tensor, 31 * number++));
    }
  };
  visit_group("embedding", embedding_tensors(spec));
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    visit_group(layer_group(layer), layer_tensors(spec));
  }
  visit_group("head", head_tensors(spec));
}

std::string write_store(const std::string& path, const ModelSpec& spec, std::size_t piece = 50) {
  StoreWriter writer(path, spec, small_tokenizer());
  for_each_tensor(spec, [&](const std::string& group, const TensorSpec& tensor,
                            const std::vector<Half>& values) {
    for (std::size_t at = 0; at < values.size(); at += piece) {
      writer.append(
          group, tensor.name,
          std::as_bytes(std::span(values).subspan(at, std::min(piece, values.size() - at))));
    }
  });
  writer.finish();
  return path;
}

std::string bytes_of_half(const std::vector<Half>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 2};
}

std::string error_of(const std::string& path) {
  try {
    read_store_index(path);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError for " << path;
  return {};
}

TEST(WeightStore, GivesBackSpecTokenizerAndBytes) {
  const TempFolder folder;
  for (const bool tied : {true, false}) {
    auto spec = small_spec();
    spec.tied_head = tied;
    const auto path = write_store(folder.file("model.h5"), spec);
    const auto index = read_store_index(path);
    EXPECT_EQ(index.spec, spec);
    EXPECT_EQ(index.tokenizer.vocab_json, small_tokenizer().vocab_json);
    EXPECT_EQ(index.tokenizer.merges_txt, small_tokenizer().merges_txt);
    EXPECT_EQ(index.tokenizer.special_tokens_json, "");
    EXPECT_EQ(index.groups.size(), 4u);
    const auto file = read_file(path);
    for_each_tensor(spec, [&](const std::string& group, const TensorSpec& tensor,
                              const std::vector<Half>& values) {
      const auto& stored = index.find(group, tensor.name);
      EXPECT_EQ(stored.tensor.shape, tensor.shape);
      EXPECT_EQ(stored.offset_bytes % 4096, 0u) << group << "/" << tensor.name;
      EXPECT_EQ(file.substr(stored.offset_bytes, values.size() * 2), bytes_of_half(values))
          << group << "/" << tensor.name;
      EXPECT_EQ(stored.checksum, hash_string(bytes_of_half(values)));
    });
  }
}

// Any HDF5 program can read the file: real 16-bit floats in plain datasets.
TEST(WeightStore, IsPlainHdf5) {
  const TempFolder folder;
  const auto spec = small_spec();
  const auto path = write_store(folder.file("model.h5"), spec);
  const auto file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  for_each_tensor(spec, [&](const std::string& group, const TensorSpec& tensor,
                            const std::vector<Half>& values) {
    const auto dataset = H5Dopen2(file, (group + "/" + tensor.name).c_str(), H5P_DEFAULT);
    ASSERT_GE(dataset, 0);
    const auto type = H5Dget_type(dataset);
    EXPECT_EQ(H5Tget_class(type), H5T_FLOAT);
    EXPECT_EQ(H5Tget_size(type), 2u);
    const auto creation = H5Dget_create_plist(dataset);
    EXPECT_EQ(H5Pget_layout(creation), H5D_CONTIGUOUS);
    std::vector<float> read(values.size());
    ASSERT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()), 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(read[i], to_float(values[i])) << group << "/" << tensor.name << " " << i;
    }
    H5Pclose(creation);
    H5Tclose(type);
    H5Dclose(dataset);
  });
  H5Fclose(file);
}

TEST(WeightStore, SamePiecesOrNotTheFileIsTheSame) {
  const TempFolder folder;
  const auto spec = small_spec();
  const auto first = write_store(folder.file("a.h5"), spec, 7);
  const auto second = write_store(folder.file("b.h5"), spec, 1000);
  EXPECT_TRUE(read_file(first) == read_file(second));
  EXPECT_EQ(read_store_index(first).digest(), read_store_index(second).digest());
}

TEST(WeightStore, DigestTellsStoresApart) {
  const TempFolder folder;
  auto spec = small_spec();
  const auto index = read_store_index(write_store(folder.file("a.h5"), spec));
  spec.name = "other";
  EXPECT_NE(read_store_index(write_store(folder.file("b.h5"), spec)).digest(), index.digest());
  auto changed = index;
  changed.groups["head"][0].checksum ^= 1;
  EXPECT_NE(changed.digest(), index.digest());
  changed = index;
  changed.tokenizer.merges_txt += "c d\n";
  EXPECT_NE(changed.digest(), index.digest());
}

TEST(WeightStore, UnknownTensorsAreConfigErrors) {
  const TempFolder folder;
  const auto index = read_store_index(write_store(folder.file("a.h5"), small_spec()));
  EXPECT_THROW(static_cast<void>(index.find("layers/002", "q.weight")), ConfigError);
  EXPECT_THROW(static_cast<void>(index.find("layers/001", "gate.weight")), ConfigError);
}

TEST(WeightStore, VerifyFindsOneDamagedByte) {
  const TempFolder folder;
  const auto path = write_store(folder.file("model.h5"), small_spec());
  const auto index = read_store_index(path);
  std::uint64_t last_done = 0;
  std::uint64_t last_total = 1;
  EXPECT_THAT(verify_store(index,
                           [&](std::uint64_t done, std::uint64_t total) {
                             last_done = done;
                             last_total = total;
                           }),
              IsEmpty());
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(last_total, static_cast<std::uint64_t>(parameter_count(index.spec)) * 2);
  auto bytes = read_file(path);
  bytes[index.find("layers/001", "up.weight").offset_bytes + 191] ^= 1;
  bytes[index.find("head", "final_norm.bias").offset_bytes] ^= '\x80';
  static_cast<void>(folder.write("model.h5", bytes));
  EXPECT_THAT(verify_store(read_store_index(path), {}),
              ElementsAre("head/final_norm.bias", "layers/001/up.weight"));
}

TEST(WeightStore, IncompleteStoresAreRefused) {
  const TempFolder folder;
  const auto path = folder.file("model.h5");
  {
    StoreWriter writer(path, small_spec(), {});
    writer.append("head", "final_norm.bias", std::vector<std::byte>(16));
    EXPECT_THROW(writer.append("head", "final_norm.bias", std::vector<std::byte>(1)),
                 InternalError);
    EXPECT_THROW(writer.append("head", "no.weight", std::vector<std::byte>(1)), InternalError);
    EXPECT_THROW(writer.finish(), InternalError);
  }
  EXPECT_THAT(error_of(path), HasSubstr("its conversion was not finished"));
}

TEST(WeightStore, OtherFilesAreNamed) {
  const TempFolder folder;
  EXPECT_THAT(error_of(folder.file("none.h5")), HasSubstr("there is no model file"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("there is no model file"));
  EXPECT_THAT(error_of(folder.write("text", "hello")), HasSubstr("text is not a weight store"));
  EXPECT_THAT(error_of(folder.write("empty", "")), HasSubstr("is not a weight store"));
  const auto path = folder.file("other.h5");
  H5Fclose(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  EXPECT_THAT(error_of(path), HasSubstr("is an HDF5 file but not a weight store"));
}

/// Changes a number attribute of the file's root through HDF5.
void set_root_number(const std::string& path, const char* name, std::uint64_t value) {
  const auto file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const auto attribute = H5Aopen(file, name, H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_UINT64, &value), 0);
  H5Aclose(attribute);
  H5Fclose(file);
}

TEST(WeightStore, OtherVersionsAreRefused) {
  const TempFolder folder;
  const auto path = write_store(folder.file("model.h5"), small_spec());
  for (const std::uint64_t version : {0, 3}) {
    set_root_number(path, "format_version", version);
    EXPECT_THAT(error_of(path), HasSubstr("of version " + std::to_string(version) +
                                          ", this program reads versions 1 and 2"));
  }
}

TEST(WeightStore, TensorsMustBeThereAndFit) {
  const TempFolder folder;
  const auto path = write_store(folder.file("model.h5"), small_spec());
  auto file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(H5Ldelete(file, "layers/001/k.bias", H5P_DEFAULT), 0);
  H5Fclose(file);
  EXPECT_THAT(error_of(path), HasSubstr("cannot read layers/001/k.bias"));
  file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(H5Lcreate_hard(file, "layers/001/up.bias", file, "layers/001/k.bias", H5P_DEFAULT,
                           H5P_DEFAULT),
            0);
  H5Fclose(file);
  EXPECT_THAT(error_of(path), HasSubstr("layers/001/k.bias has shape [12], the model wants [8]"));
  file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(H5Ldelete(file, "layers/001/k.bias", H5P_DEFAULT), 0);
  ASSERT_GE(H5Lcreate_hard(file, "layers/001/q.bias", file, "layers/001/k.bias", H5P_DEFAULT,
                           H5P_DEFAULT),
            0);
  H5Fclose(file);
  EXPECT_THAT(error_of(path), HasSubstr("two tensors share byte"));
}

TEST(WeightStore, CutFilesAreRefused) {
  const TempFolder folder;
  const auto whole = read_file(write_store(folder.file("model.h5"), small_spec()));
  for (std::size_t size = 0; size < whole.size(); size += 1021) {
    EXPECT_THROW(read_store_index(folder.write("cut.h5", whole.substr(0, size))), ConfigError)
        << size;
  }
  EXPECT_THROW(read_store_index(folder.write("cut.h5", whole.substr(0, whole.size() - 1))),
               FormatError);
}

void overwrite_byte(const std::string& path, std::size_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(value);
}

// Whatever byte outside the weights is damaged, either it does not matter or it is refused.
TEST(WeightStore, DamagedMetadataIsRefused) {
  const TempFolder folder;
  auto spec = small_spec();
  spec.layers = 1;
  const auto path = write_store(folder.file("model.h5"), spec);
  const auto whole = read_file(path);
  const auto index = read_store_index(path);
  std::vector<bool> is_weight(whole.size(), false);
  for (const auto& [group, tensors] : index.groups) {
    for (const auto& stored : tensors) {
      const auto begin = is_weight.begin() + static_cast<std::ptrdiff_t>(stored.offset_bytes);
      std::fill(begin, begin + stored.tensor.size_bytes(), true);
    }
  }
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    // Padding is zero; a byte here and there of it is enough.
    if (is_weight[at] || (whole[at] == 0 && at % 128 != 0)) {
      continue;
    }
    overwrite_byte(path, at, static_cast<char>(whole[at] ^ 0x5a));
    try {
      const auto read = read_store_index(path);
      ASSERT_EQ(read.spec, index.spec) << "byte " << at;
      ASSERT_EQ(read.digest(), index.digest()) << "byte " << at;
      ASSERT_EQ(read.find("head", "final_norm.bias").offset_bytes,
                index.find("head", "final_norm.bias").offset_bytes);
    } catch (const ConfigError&) {
      ++refused;
    }
    overwrite_byte(path, at, whole[at]);
  }
  EXPECT_GT(refused, 500);
}

TEST(WeightStore, ErrorPrintingOfHdf5IsLeftAsItWas) {
  H5E_auto2_t before = nullptr;
  void* before_data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &before_data);
  ASSERT_NE(before, nullptr);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(read_store_index("/nowhere/model.h5"), ConfigError);
  const TempFolder folder;
  EXPECT_THROW(read_store_index(folder.write("x", "no HDF5")), ConfigError);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  H5E_auto2_t after = nullptr;
  void* after_data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &after, &after_data);
  EXPECT_EQ(after, before);
}

TEST(WeightStore, ManyLayersHaveTheirOwnGroups) {
  EXPECT_EQ(layer_group(0), "layers/000");
  EXPECT_EQ(layer_group(95), "layers/095");
  EXPECT_EQ(layer_group(1000), "layers/1000");
  const TempFolder folder;
  auto spec = small_spec();
  spec.layers = 20;
  const auto index = read_store_index(write_store(folder.file("deep.h5"), spec));
  EXPECT_EQ(index.groups.size(), 22u);
  EXPECT_THAT(verify_store(index, {}), IsEmpty());
}

}  // namespace
}  // namespace stagecoach::model
