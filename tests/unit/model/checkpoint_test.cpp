#include "model/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "checkpoint_writer.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::model {
namespace {

using namespace stagecoach::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(const std::string& folder) {
  try {
    const Checkpoint checkpoint(folder);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError for " << folder;
  return {};
}

/// The bytes of a tensor as the checkpoint says where they are.
std::string bytes_at(const CheckpointTensor& tensor) {
  return read_file(tensor.path).substr(tensor.offset_bytes, tensor.size_bytes);
}

TEST(Checkpoint, NamesAreThoseOfOpt) {
  EXPECT_EQ(opt_tensor_name("embedding", "token.weight"), "embed_tokens.weight");
  EXPECT_EQ(opt_tensor_name("embedding", "position.weight"), "embed_positions.weight");
  EXPECT_EQ(opt_tensor_name("layers/003", "attn_norm.bias"), "layers.3.self_attn_layer_norm.bias");
  EXPECT_EQ(opt_tensor_name("layers/003", "mlp_norm.weight"), "layers.3.final_layer_norm.weight");
  EXPECT_EQ(opt_tensor_name("layers/095", "o.weight"), "layers.95.self_attn.out_proj.weight");
  EXPECT_EQ(opt_tensor_name("layers/1000", "up.bias"), "layers.1000.fc1.bias");
  EXPECT_EQ(opt_tensor_name("layers/000", "down.weight"), "layers.0.fc2.weight");
  EXPECT_EQ(opt_tensor_name("head", "final_norm.weight"), "final_layer_norm.weight");
  EXPECT_EQ(opt_tensor_name("head", "weight"), "lm_head.weight");
}

TEST(Checkpoint, PrefixesMayBeThereOrNot) {
  for (const std::string prefix : {"", "model.", "decoder.", "model.decoder."}) {
    const TempFolder folder;
    const auto tensors = small_tensors(prefix, small_value);
    const Checkpoint checkpoint(write_checkpoint(folder, tensors));
    EXPECT_EQ(bytes_at(checkpoint.find("layers/001", "v.weight")),
              tensors.at(prefix + "layers.1.self_attn.v_proj.weight").bytes);
    EXPECT_EQ(bytes_at(checkpoint.find("head", "final_norm.bias")),
              tensors.at(prefix + "final_layer_norm.bias").bytes);
    EXPECT_EQ(bytes_at(checkpoint.find("layers/000", "mlp_norm.bias")),
              tensors.at(prefix + "layers.0.final_layer_norm.bias").bytes);
  }
}

TEST(Checkpoint, TheSameTensorTwiceIsRefused) {
  const TempFolder folder;
  auto tensors = small_tensors("model.decoder.", small_value);
  tensors["decoder.embed_tokens.weight"] = tensors["model.decoder.embed_tokens.weight"];
  EXPECT_THAT(error_of(write_checkpoint(folder, tensors)),
              HasSubstr("model.decoder.embed_tokens.weight"));
}

TEST(Checkpoint, ReadsShardsByTheirIndex) {
  const TempFolder folder;
  const auto tensors = small_tensors("model.decoder.", small_value);
  RawTensors first;
  RawTensors second;
  nlohmann::json weight_map;
  for (const auto& [name, tensor] : tensors) {
    const bool in_first = name.find("layers.1") == std::string::npos;
    (in_first ? first : second)[name] = tensor;
    weight_map[name] = in_first ? "a.safetensors" : "b.safetensors";
  }
  const nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}};
  static_cast<void>(folder.write("config.json", small_config()));
  static_cast<void>(folder.write("model.safetensors.index.json", index.dump()));
  static_cast<void>(folder.write("a.safetensors", safetensors_file(first)));
  static_cast<void>(folder.write("b.safetensors", safetensors_file(second)));
  {
    const Checkpoint checkpoint(folder.path());
    const auto& q = checkpoint.find("layers/001", "q.weight");
    EXPECT_EQ(q.path, folder.file("b.safetensors"));
    EXPECT_EQ(bytes_at(q), tensors.at("model.decoder.layers.1.self_attn.q_proj.weight").bytes);
    EXPECT_EQ(checkpoint.find("embedding", "token.weight").path, folder.file("a.safetensors"));
  }
  std::filesystem::remove(folder.file("b.safetensors"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("b.safetensors"));
  auto outside = index;
  outside["weight_map"]["x"] = "../b.safetensors";
  static_cast<void>(folder.write("model.safetensors.index.json", outside.dump()));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("\"../b.safetensors\""));
  static_cast<void>(folder.write("model.safetensors.index.json", "{}"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("weight_map"));
}

TEST(Checkpoint, MissingTensorIsOneLine) {
  const TempFolder folder;
  auto tensors = small_tensors("decoder.", small_value);
  tensors.erase("decoder.layers.1.fc2.bias");
  EXPECT_EQ(error_of(write_checkpoint(folder, tensors)),
            folder.path() + " has no tensor model.decoder.layers.1.fc2.bias");
}

TEST(Checkpoint, WrongShapeIsOneLine) {
  const TempFolder folder;
  auto tensors = small_tensors("", small_value);
  tensors["layers.0.fc1.weight"].shape = {8, 12};
  EXPECT_THAT(error_of(write_checkpoint(folder, tensors)),
              HasSubstr("tensor layers.0.fc1.weight has shape [8, 12], config.json wants [12, 8]"));
}

TEST(Checkpoint, OtherTypesAreRefusedWhereTheyAreNeeded) {
  const TempFolder folder;
  auto tensors = small_tensors("", small_value);
  tensors["rotary.inv_freq"] = {"F64", {1}, std::string(8, 'x')};
  tensors["lm_head.weight"] = {"I64", {2}, std::string(16, 'x')};
  EXPECT_NO_THROW(Checkpoint(write_checkpoint(folder, tensors)));
  tensors["layers.0.fc1.bias"] = {"F8_E4M3", {12}, std::string(12, 'x')};
  EXPECT_THAT(error_of(write_checkpoint(folder, tensors)), HasSubstr("has type \"F8_E4M3\""));
}

TEST(Checkpoint, AnUntiedHeadIsRead) {
  const TempFolder folder;
  auto tensors = small_tensors("model.decoder.", small_value);
  auto config = small_config();
  config.insert(1, "\"tie_word_embeddings\": false, ");
  tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"];
  write_checkpoint(folder, tensors);
  static_cast<void>(folder.write("config.json", config));
  EXPECT_EQ(Checkpoint(folder.path()).find("head", "weight").name, "lm_head.weight");
}

TEST(Checkpoint, TokenizerFilesComeAlong) {
  const TempFolder folder;
  write_checkpoint(folder, small_tensors("", small_value));
  EXPECT_EQ(Checkpoint(folder.path()).tokenizer().vocab_json, "");
  static_cast<void>(folder.write("vocab.json", "{}"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("only one of vocab.json and merges.txt"));
  static_cast<void>(folder.write("merges.txt", "#version: 0.2\n"));
  static_cast<void>(folder.write("added_tokens.json", "{\"a\": 1}"));
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.tokenizer().vocab_json, "{}");
  EXPECT_EQ(checkpoint.tokenizer().merges_txt, "#version: 0.2\n");
  EXPECT_EQ(checkpoint.tokenizer().special_tokens_json, "{\"a\": 1}");
}

TEST(Checkpoint, FoldersWithoutACheckpointSaySo) {
  const TempFolder folder;
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json"));
  EXPECT_THAT(error_of("/nowhere"), HasSubstr("there is no /nowhere/config.json"));
  static_cast<void>(folder.write("config.json", small_config()));
  EXPECT_THAT(error_of(folder.path()),
              AllOf(HasSubstr("neither model.safetensors nor"), HasSubstr(folder.path())));
}

}  // namespace
}  // namespace stagecoach::model
