#include "model/checkpoint.hpp"

#include <array>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "model/json_fields.hpp"
#include "model/store_format.hpp"

namespace stagecoach::model {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// First part of a store name ("q" of "q.weight") and what OPT calls it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kOptParts{
    {{"attn_norm", "self_attn_layer_norm"},
     {"q", "self_attn.q_proj"},
     {"k", "self_attn.k_proj"},
     {"v", "self_attn.v_proj"},
     {"o", "self_attn.out_proj"},
     {"mlp_norm", "final_layer_norm"},
     {"up", "fc1"},
     {"down", "fc2"},
     {"token", "embed_tokens"},
     {"position", "embed_positions"},
     {"final_norm", "final_layer_norm"}}};

/// A tensor as some file of the checkpoint has it.
struct Found {
  const SafetensorsFile* file = nullptr;
  const std::string* name = nullptr;
  const SafetensorsEntry* entry = nullptr;
};
using FoundTensors = std::map<std::string, Found>;

std::string join(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string read_if_there(const std::string& path) {
  return exists(path) ? read_text_file(path) : std::string();
}

std::string read_config(const std::string& folder) {
  const auto path = join(folder, "config.json");
  if (!exists(path)) {
    throw ConfigError(fmt::format(
        "there is no {}: a Hugging Face checkpoint folder has config.json and model.safetensors",
        path));
  }
  return read_text_file(path);
}

/// The shards that an index names, in order, each once.
std::set<std::string> shard_names(const std::string& index_path) {
  const JsonFields index(read_text_file(index_path), index_path);
  const auto& weight_map = index.require("weight_map");
  if (!weight_map.is_object()) {
    throw FormatError(fmt::format("{}: weight_map must be an object", index_path));
  }
  std::set<std::string> names;
  for (const auto& [tensor, shard] : weight_map.items()) {
    if (!shard.is_string() || shard.get<std::string>().find('/') != std::string::npos) {
      throw FormatError(fmt::format("{}: weight_map names {} for tensor {}, not a file beside it",
                                    index_path, describe_json(shard), describe_json(tensor)));
    }
    names.insert(shard.get<std::string>());
  }
  return names;
}

std::vector<SafetensorsFile> read_files(const std::string& folder) {
  std::vector<SafetensorsFile> files;
  if (exists(join(folder, kSingleFile))) {
    files.push_back(read_safetensors(join(folder, kSingleFile)));
  } else if (exists(join(folder, kIndexFile))) {
    for (const auto& name : shard_names(join(folder, kIndexFile))) {
      files.push_back(read_safetensors(join(folder, name)));
    }
  } else {
    throw ConfigError(fmt::format(
        "there is neither {} nor {} in {} (other formats, as pytorch_model.bin, are not read: save "
        "the model as safetensors)",
        kSingleFile, kIndexFile, folder));
  }
  return files;
}

std::string without_prefixes(std::string_view name) {
  for (const std::string_view prefix : {"model.", "decoder."}) {
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
    }
  }
  return std::string(name);
}

FoundTensors collect(const std::vector<SafetensorsFile>& files) {
  FoundTensors tensors;
  for (const auto& file : files) {
    for (const auto& [name, entry] : file.tensors) {
      const auto [place, is_new] =
          tensors.try_emplace(without_prefixes(name), Found{&file, &name, &entry});
      if (!is_new) {
        throw FormatError(fmt::format("tensor {} of {} is also in {} as {}", describe_json(name),
                                      file.path, place->second.file->path,
                                      describe_json(*place->second.name)));
      }
    }
  }
  return tensors;
}

CheckpointTensor checked_source(const FoundTensors& tensors, const std::string& wanted,
                                const std::vector<std::int64_t>& shape, const std::string& folder) {
  const auto found = tensors.find(wanted);
  if (found == tensors.end()) {
    throw ConfigError(fmt::format("{} has no tensor model.decoder.{}", folder, wanted));
  }
  const auto& [file, name, entry] = found->second;
  if (entry->shape != shape) {
    throw ConfigError(fmt::format("{}: tensor {} has shape [{}], config.json wants [{}]",
                                  file->path, *name, fmt::join(entry->shape, ", "),
                                  fmt::join(shape, ", ")));
  }
  if (!entry->type) {
    throw ConfigError(fmt::format("{}: tensor {} has type {}, only F16, BF16 and F32 are supported",
                                  file->path, *name, describe_json(entry->dtype)));
  }
  return {file->path, *name, *entry->type, entry->offset_bytes, entry->size_bytes};
}

}  // namespace

TokenizerFiles read_tokenizer_files(const std::string& folder) {
  TokenizerFiles files{read_if_there(join(folder, "vocab.json")),
                       read_if_there(join(folder, "merges.txt")),
                       read_if_there(join(folder, "special_tokens_map.json"))};
  if (files.special_tokens_json.empty()) {
    files.special_tokens_json = read_if_there(join(folder, "added_tokens.json"));
  }
  if (files.vocab_json.empty() != files.merges_txt.empty()) {
    throw ConfigError(
        fmt::format("{} has only one of vocab.json and merges.txt: a tokenizer needs "
                    "both, and prompt_token_ids need neither",
                    folder));
  }
  return files;
}

std::string opt_tensor_name(const std::string& group, const std::string& name) {
  if (group == kHeadGroup && name == "weight") {
    return "lm_head.weight";
  }
  const auto dot = name.find('.');
  std::string translated;
  for (const auto& [ours, theirs] : kOptParts) {
    if (name.substr(0, dot) == ours) {
      translated = std::string(theirs) + name.substr(dot);
    }
  }
  STAGECOACH_CHECK(!translated.empty(), "no OPT name for {}/{}", group, name);
  const std::string_view layers = "layers/";
  if (!group.starts_with(layers)) {
    return translated;
  }
  return fmt::format("layers.{}.{}", std::stoll(group.substr(layers.size())), translated);
}

Checkpoint::Checkpoint(const std::string& folder)
    : spec_(spec_from_hf_config(read_config(folder), join(folder, "config.json"))),
      tokenizer_(read_tokenizer_files(folder)) {
  if (spec_.name.empty()) {
    spec_.name =
        std::filesystem::absolute(folder + "/.").lexically_normal().parent_path().filename();
  }
  const auto files = read_files(folder);
  const auto found = collect(files);
  for (const auto& [group, tensors] : store_layout(spec_, {})) {
    for (const auto& tensor : tensors) {
      tensors_.emplace(
          group + "/" + tensor.name,
          checked_source(found, opt_tensor_name(group, tensor.name), tensor.shape, folder));
    }
  }
}

const CheckpointTensor& Checkpoint::find(const std::string& group, const std::string& name) const {
  const auto found = tensors_.find(group + "/" + name);
  STAGECOACH_CHECK(found != tensors_.end(), "the checkpoint has no {}/{}", group, name);
  return found->second;
}

}  // namespace stagecoach::model
