#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_folder.hpp"

namespace stagecoach::testing {

/// One tensor of a checkpoint that a test makes up.
struct RawTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

/// Length, header and data, one file's content.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

/// A whole safetensors file of the tensors, in name order.
inline std::string safetensors_file(const RawTensors& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return safetensors_file(header.dump(), data);
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Every tensor of a safetensors file, read without the code under test.
inline RawTensors read_raw_tensors(const std::string& path) {
  const auto file = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  RawTensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      const std::uint64_t begin = entry["data_offsets"][0];
      const std::uint64_t end = entry["data_offsets"][1];
      tensors[name] = {entry["dtype"], entry["shape"],
                       file.substr(8 + length + begin, end - begin)};
    }
  }
  return tensors;
}

/// A two-layer OPT, small enough to look at: hidden 8, 2 heads, ffn 12, 16 tokens, 6 positions.
inline std::string small_config() {
  return R"({"model_type": "opt", "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 2,
             "ffn_dim": 12, "num_attention_heads": 2, "max_position_embeddings": 6})";
}

template <typename Stored>
std::string bytes_of_values(const std::vector<Stored>& values) {
  std::string bytes(values.size() * sizeof(Stored), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// All tensors of that model; `value(name, i)` gives element i. dtype F32.
inline RawTensors small_tensors(
    const std::string& prefix,
    const std::function<float(const std::string&, std::int64_t)>& value) {
  RawTensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const auto extent : shape) {
      count *= extent;
    }
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(value(name, i));
    }
    tensors[prefix + name] = {"F32", std::move(shape), bytes_of_values(values)};
  };
  const auto add_pair = [&](const std::string& name, std::vector<std::int64_t> shape) {
    add(name + ".bias", {shape[0]});
    add(name + ".weight", std::move(shape));
  };
  add("embed_tokens.weight", {16, 8});
  add("embed_positions.weight", {8, 8});
  add_pair("final_layer_norm", {8});
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    for (const std::string name : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
      add_pair(layer + "self_attn." + name, {8, 8});
    }
    add_pair(layer + "self_attn_layer_norm", {8});
    add_pair(layer + "final_layer_norm", {8});
    add_pair(layer + "fc1", {12, 8});
    add_pair(layer + "fc2", {8, 12});
  }
  return tensors;
}

/// Different for every tensor and element, and exact in f16 and bf16.
inline float small_value(const std::string& name, std::int64_t element) {
  const auto mixed = static_cast<std::int64_t>(std::hash<std::string>()(name) % 97) * 7 + element;
  return static_cast<float>(mixed % 255 - 127) / 64.0f;
}

/// A folder with config.json and model.safetensors.
inline std::string write_checkpoint(const TempFolder& folder, const RawTensors& tensors) {
  static_cast<void>(folder.write("config.json", small_config()));
  static_cast<void>(folder.write("model.safetensors", safetensors_file(tensors)));
  return folder.path();
}

}  // namespace stagecoach::testing
