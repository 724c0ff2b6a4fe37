#include "model/convert.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.hpp"
#include "base/half.hpp"
#include "checkpoint_writer.hpp"
#include "model/dummy_weights.hpp"
#include "model/weight_store.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::model {
namespace {

using namespace stagecoach::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A stored tensor's bytes, read without the code under test but for its offset.
std::string stored_bytes(const StoreIndex& index, const std::string& group,
                         const std::string& name) {
  const auto& stored = index.find(group, name);
  return read_file(index.path)
      .substr(stored.offset_bytes, static_cast<std::size_t>(stored.tensor.size_bytes()));
}

std::string error_of(const std::string& from, const std::string& to, bool overwrite = false) {
  try {
    convert_checkpoint(from, to, overwrite, {});
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return {};
}

int files_in(const TempFolder& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    count += entry.is_regular_file();
  }
  return count;
}

TEST(Convert, TheBundledModelKeepsItsBytes) {
  const TempFolder folder;
  const auto path = folder.file("model.h5");
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  const auto report =
      convert_checkpoint(tiny_opt_folder(), path, false, [&](std::uint64_t now, std::uint64_t of) {
        EXPECT_GT(now, done);
        done = now;
        total = of;
      });
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, 13948928u);
  EXPECT_EQ(report.size_bytes, std::filesystem::file_size(path));
  EXPECT_TRUE(report.has_tokenizer);
  EXPECT_THAT(report.warnings, IsEmpty());
  const auto index = read_store_index(path);
  EXPECT_EQ(index.spec.name, "tiny-opt");
  const auto raw = read_raw_tensors(tiny_opt_folder() + "/model.safetensors");
  const std::map<std::pair<std::string, std::string>, std::string> pairs = {
      {{"embedding", "token.weight"}, "embed_tokens.weight"},
      {{"embedding", "position.weight"}, "embed_positions.weight"},
      {{"layers/000", "q.weight"}, "layers.0.self_attn.q_proj.weight"},
      {{"layers/003", "k.bias"}, "layers.3.self_attn.k_proj.bias"},
      {{"layers/004", "v.weight"}, "layers.4.self_attn.v_proj.weight"},
      {{"layers/005", "o.weight"}, "layers.5.self_attn.out_proj.weight"},
      {{"layers/006", "attn_norm.weight"}, "layers.6.self_attn_layer_norm.weight"},
      {{"layers/006", "mlp_norm.bias"}, "layers.6.final_layer_norm.bias"},
      {{"layers/007", "up.weight"}, "layers.7.fc1.weight"},
      {{"layers/007", "down.weight"}, "layers.7.fc2.weight"},
      {{"head", "final_norm.weight"}, "final_layer_norm.weight"}};
  for (const auto& [ours, theirs] : pairs) {
    const auto& expected = raw.at("model.decoder." + theirs);
    EXPECT_TRUE(stored_bytes(index, ours.first, ours.second) == expected.bytes) << theirs;
    EXPECT_EQ(index.find(ours.first, ours.second).tensor.shape, expected.shape) << theirs;
  }
  EXPECT_EQ(index.tokenizer.vocab_json, read_file(tiny_opt_folder() + "/vocab.json"));
  EXPECT_EQ(index.tokenizer.merges_txt, read_file(tiny_opt_folder() + "/merges.txt"));
  EXPECT_THAT(verify_store(index, {}), IsEmpty());
}

TEST(Convert, TypesMayMix) {
  const TempFolder source;
  auto tensors = small_tensors("model.decoder.", small_value);
  const std::string up = "model.decoder.layers.1.fc1.weight";
  const std::string down = "model.decoder.layers.0.fc2.weight";
  // 1.25 and -2 as bfloat16 and as f16.
  std::vector<std::uint16_t> bf16(96, 0x3fa0);
  bf16[95] = 0xc000;
  tensors[up] = {"BF16", {12, 8}, bytes_of_values(bf16)};
  std::vector<std::uint16_t> f16(96, 0x3d00);
  f16[0] = 0xc000;
  tensors[down] = {"F16", {8, 12}, bytes_of_values(f16)};
  const auto to = source.file("model.h5");
  convert_checkpoint(write_checkpoint(source, tensors), to, false, {});
  const auto index = read_store_index(to);
  std::vector<std::uint16_t> expected(96, 0x3d00);
  expected[95] = 0xc000;
  EXPECT_EQ(stored_bytes(index, "layers/001", "up.weight"), bytes_of_values(expected));
  EXPECT_EQ(stored_bytes(index, "layers/000", "down.weight"), bytes_of_values(f16));
  const auto q = stored_bytes(index, "layers/001", "q.weight");
  for (std::int64_t i = 0; i < 64; ++i) {
    Half half;
    std::memcpy(&half, q.data() + 2 * i, 2);
    EXPECT_EQ(to_float(half), small_value("layers.1.self_attn.q_proj.weight", i)) << i;
  }
}

TEST(Convert, ValuesTooLargeForF16AreRefused) {
  const TempFolder folder;
  auto tensors = small_tensors("model.decoder.", small_value);
  std::vector<float> values(8, 1.0f);
  values[2] = 65520.0f;
  values[7] = -70000.0f;
  tensors["model.decoder.layers.1.fc2.bias"].bytes = bytes_of_values(values);
  const auto error = error_of(write_checkpoint(folder, tensors), folder.file("model.h5"));
  EXPECT_THAT(error, HasSubstr("tensor model.decoder.layers.1.fc2.bias: 2 finite values"));
  EXPECT_THAT(error, HasSubstr("70000"));
  EXPECT_EQ(files_in(folder), 2) << "nothing but the checkpoint must be left";
}

TEST(Convert, NanAndInfinityPassWithAWarning) {
  const TempFolder folder;
  auto tensors = small_tensors("model.decoder.", small_value);
  std::vector<float> values(8, 1.0f);
  values[2] = std::numeric_limits<float>::infinity();
  values[7] = std::numeric_limits<float>::quiet_NaN();
  tensors["model.decoder.layers.1.fc2.bias"].bytes = bytes_of_values(values);
  const auto to = folder.file("model.h5");
  const auto report = convert_checkpoint(write_checkpoint(folder, tensors), to, false, {});
  EXPECT_THAT(report.warnings,
              ElementsAre(HasSubstr("layers.1.fc2.bias has 1 NaN and 1 infinite values")));
  const auto bytes = stored_bytes(read_store_index(to), "layers/001", "down.bias");
  EXPECT_EQ(bytes.substr(4, 2), std::string("\x00\x7c", 2));
}

TEST(Convert, ExistingOutputStaysWithoutOverwrite) {
  const TempFolder folder;
  write_checkpoint(folder, small_tensors("", small_value));
  const auto to = folder.write("model.h5", "precious");
  EXPECT_THAT(error_of(folder.path(), to), HasSubstr("--overwrite"));
  EXPECT_EQ(read_file(to), "precious");
  convert_checkpoint(folder.path(), to, true, {});
  EXPECT_NO_THROW(read_store_index(to));
}

TEST(Convert, AFailureKeepsTheOldStore) {
  const TempFolder folder;
  auto tensors = small_tensors("", small_value);
  const auto to = folder.file("model.h5");
  convert_checkpoint(write_checkpoint(folder, tensors), to, false, {});
  const auto before = read_file(to);
  tensors["final_layer_norm.bias"].bytes = bytes_of_values(std::vector<float>(8, 1e9f));
  EXPECT_THAT(error_of(write_checkpoint(folder, tensors), to, true), HasSubstr("8 finite values"));
  EXPECT_TRUE(read_file(to) == before);
}

TEST(Convert, ABadTargetIsNamed) {
  EXPECT_THAT(error_of(tiny_opt_folder(), "/nowhere/model.h5"), HasSubstr("no folder /nowhere"));
  EXPECT_THAT(error_of("/nowhere", "/tmp/model.h5"), HasSubstr("/nowhere/config.json"));
}

TEST(Convert, DummyStoresHoldTheDummyWeights) {
  const TempFolder folder;
  auto spec = spec_from_hf_config(small_config(), "config");
  // More than one piece of 8 MiB for the token table.
  spec.vocab = 700'000;
  const auto to = folder.file("model.h5");
  const auto report = convert_dummy(spec, 17, to, false, {});
  EXPECT_FALSE(report.has_tokenizer);
  const auto index = read_store_index(to);
  EXPECT_EQ(index.spec, spec);
  for (const auto& [group, name] :
       {std::pair<std::string, std::string>{"embedding", "token.weight"},
        {"layers/001", "up.bias"}}) {
    const auto& tensor = index.find(group, name).tensor;
    std::vector<Half> expected(static_cast<std::size_t>(tensor.elements()));
    fill_dummy(17, group, tensor, 0, expected);
    EXPECT_TRUE(stored_bytes(index, group, name) ==
                std::string(reinterpret_cast<const char*>(expected.data()), expected.size() * 2));
  }
  EXPECT_THAT(verify_store(index, {}), IsEmpty());
}

/// A checkpoint whose token table is `vocab` x 8 F32 numbers: a hole of zeros in the file, but for
/// `values` at some elements.
void write_large_checkpoint(const TempFolder& folder, std::int64_t vocab,
                            const std::map<std::int64_t, float>& values) {
  auto tensors = small_tensors("", small_value);
  tensors.erase("embed_tokens.weight");
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const auto table_bytes = static_cast<std::size_t>(vocab) * 8 * 4;
  header["embed_tokens.weight"] = {{"dtype", "F32"},
                                   {"shape", {vocab, 8}},
                                   {"data_offsets", {data.size(), data.size() + table_bytes}}};
  const auto path = folder.write("model.safetensors", safetensors_file(header.dump(), data));
  const auto table_offset = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, table_offset + table_bytes);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const auto& [element, value] : values) {
    file.seekp(static_cast<std::streamoff>(table_offset) + element * 4);
    file.write(reinterpret_cast<const char*>(&value), 4);
  }
  auto config = nlohmann::json::parse(small_config());
  config["vocab_size"] = vocab;
  static_cast<void>(folder.write("config.json", config.dump()));
}

/// Element `element` of a stored tensor.
float stored_value(const StoreIndex& index, const std::string& group, const std::string& name,
                   std::int64_t element) {
  std::ifstream file(index.path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(index.find(group, name).offset_bytes) + element * 2);
  Half value;
  file.read(reinterpret_cast<char*>(&value), 2);
  return to_float(value);
}

/// Peak resident bytes of a child process that runs `work`; -1 if it failed.
template <typename Work>
std::int64_t peak_bytes_of_child(Work work) {
  const auto child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  struct rusage usage {};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  return status == 0 ? std::int64_t{usage.ru_maxrss} * 1024 : -1;
}

TEST(Convert, MemoryStaysBelowTheLargestTensor) {
  const TempFolder folder;
  constexpr std::int64_t kVocab = 19'000'000;
  constexpr std::int64_t kLargestBytes = kVocab * 8 * 2;  // as stored; the source has twice as much
  // On both sides of the borders of 8 MiB pieces, and at both ends.
  const std::map<std::int64_t, float> values = {{0, 1.5f},
                                                {(4 << 20) - 1, 2.5f},
                                                {4 << 20, -3.0f},
                                                {(12 << 20) + 7, 4.0f},
                                                {kVocab * 8 - 1, 0.125f}};
  write_large_checkpoint(folder, kVocab, values);
  const auto idle = peak_bytes_of_child([] {});
  const auto peak = peak_bytes_of_child(
      [&] { convert_checkpoint(folder.path(), folder.file("model.h5"), false, {}); });
  ASSERT_GT(peak, 0);
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_LT(peak, kLargestBytes * 3 / 2);
  // What the copy itself took is two pieces and change, however large the tensor.
  EXPECT_LT(peak - idle, std::int64_t{100} << 20);
  const auto index = read_store_index(folder.file("model.h5"));
  for (const auto& [element, value] : values) {
    EXPECT_EQ(stored_value(index, "embedding", "token.weight", element), value) << element;
    if (element > 0) {
      EXPECT_EQ(stored_value(index, "embedding", "token.weight", element - 2), 0) << element;
    }
  }
  EXPECT_THAT(verify_store(index, {}), IsEmpty());
}

}  // namespace
}  // namespace stagecoach::model
