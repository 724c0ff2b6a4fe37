#include "model/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "checkpoint_writer.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::model {
namespace {

using stagecoach::testing::RawTensors;
using stagecoach::testing::safetensors_file;
using stagecoach::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The FormatError's message for a file of this header and `data_bytes` bytes of data.
std::string error_of(const std::string& header, std::size_t data_bytes) {
  const TempFolder folder;
  const auto path =
      folder.write("x.safetensors", safetensors_file(header, std::string(data_bytes, 'd')));
  try {
    read_safetensors(path);
  } catch (const FormatError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(path), Not(HasSubstr("\n"))));
    return error.what();
  }
  ADD_FAILURE() << "no FormatError for " << header;
  return {};
}

std::string one_tensor(const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
  return R"({"w": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" +
         offsets + "}}";
}

TEST(Safetensors, FindsEveryTensor) {
  const TempFolder folder;
  const auto content = safetensors_file(RawTensors{{"a", {"F32", {2, 3}, std::string(24, 'a')}},
                                                   {"b", {"BF16", {4}, std::string(8, 'b')}},
                                                   {"c", {"F16", {}, std::string(2, 'c')}},
                                                   {"d", {"I64", {1}, std::string(8, 'd')}},
                                                   {"e", {"F16", {0, 5}, ""}}});
  const auto file = read_safetensors(folder.write("x.safetensors", content));
  ASSERT_EQ(file.tensors.size(), 5u);
  const auto& a = file.tensors.at("a");
  EXPECT_EQ(a.type, NumberType::f32);
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(content.substr(a.offset_bytes, a.size_bytes), std::string(24, 'a'));
  const auto& b = file.tensors.at("b");
  EXPECT_EQ(b.type, NumberType::bf16);
  EXPECT_EQ(content.substr(b.offset_bytes, b.size_bytes), std::string(8, 'b'));
  EXPECT_EQ(file.tensors.at("c").type, NumberType::f16);
  EXPECT_FALSE(file.tensors.at("d").type.has_value());
  EXPECT_EQ(file.tensors.at("e").size_bytes, 0u);
}

TEST(Safetensors, RangesMustLieInTheFile) {
  EXPECT_THAT(error_of(one_tensor("F32", "[2]", "[0, 8]"), 7),
              HasSubstr("tensor \"w\": its bytes 0 to 8 are not within the 7 data bytes"));
  EXPECT_THAT(error_of(one_tensor("F32", "[2]", "[8, 0]"), 8), HasSubstr("bytes 8 to 0"));
  EXPECT_THAT(error_of(one_tensor("F32", "[2]", "[-8, 0]"), 8), HasSubstr("holds -8"));
  EXPECT_THAT(error_of(one_tensor("F32", "[2]", "[0, 18446744073709551615]"), 8),
              HasSubstr("not a size"));
  EXPECT_THAT(error_of(one_tensor("F32", "[2]", "[0, 8.0]"), 8), HasSubstr("not a size"));
  EXPECT_THAT(error_of(one_tensor("F32", "[2]", "[0]"), 8), HasSubstr("not two numbers"));
}

TEST(Safetensors, SizesMustFitShapeAndType) {
  EXPECT_THAT(error_of(one_tensor("F32", "[2]", "[0, 4]"), 8), HasSubstr("has 4 bytes"));
  EXPECT_THAT(error_of(one_tensor("F16", "[4, 4294967296, 4294967296]", "[0, 0]"), 0),
              HasSubstr("impossibly large"));
  // 2^62 numbers of four bytes are 2^64 bytes: zero, if it overflowed unseen.
  EXPECT_THAT(error_of(one_tensor("F32", "[4611686018427387904]", "[0, 0]"), 0),
              HasSubstr("want another number"));
  EXPECT_THAT(error_of(one_tensor("F32", "[-2]", "[0, 8]"), 8), HasSubstr("shape holds -2"));
  EXPECT_THAT(error_of(one_tensor("F32", "\"2\"", "[0, 8]"), 8), HasSubstr("not a short list"));
}

TEST(Safetensors, TensorsMustNotShareBytes) {
  const std::string header =
      R"({"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]},
          "b": {"dtype": "F16", "shape": [2], "data_offsets": [3, 7]}})";
  EXPECT_THAT(error_of(header, 8), HasSubstr("tensor \"b\": shares bytes with tensor \"a\""));
}

TEST(Safetensors, HeadersMustBeWhole) {
  EXPECT_THAT(error_of("{", 0), HasSubstr("no valid JSON"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("must be a JSON object"));
  EXPECT_THAT(error_of(R"({"w": 3})", 0), HasSubstr("is 3, not an object"));
  EXPECT_THAT(error_of(R"({"w": {"shape": [], "data_offsets": [0, 0]}})", 0),
              HasSubstr("has no dtype"));
  EXPECT_THAT(error_of(R"({"w\n": {"dtype": "F16", "shape": [1]}})", 0),
              HasSubstr("tensor \"w\\n\": has no data_offsets"));
}

TEST(Safetensors, LengthsMustFitTheFile) {
  const TempFolder folder;
  const auto whole = safetensors_file(one_tensor("F32", "[2]", "[0, 8]"), std::string(8, 'd'));
  EXPECT_NO_THROW(read_safetensors(folder.write("whole", whole)));
  // Cut anywhere, the file is refused.
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(read_safetensors(folder.write("cut", whole.substr(0, size))), FormatError) << size;
  }
  EXPECT_THROW(read_safetensors(folder.write("long", std::string(64, '\xff'))), FormatError);
}

TEST(Safetensors, MissingFilesAreNamed) {
  EXPECT_THROW(read_safetensors("/nowhere/x.safetensors"), ConfigError);
}

}  // namespace
}  // namespace stagecoach::model
