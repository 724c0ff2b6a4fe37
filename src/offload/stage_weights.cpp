#include "offload/stage_weights.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "model/weight_store.hpp"
#include "offload/weight_reader.hpp"

namespace stagecoach::offload {
namespace {

/// A tensor that belongs to no layer, and its place in the device's buffer.
struct Table {
  std::string group;
  model::TensorSpec tensor;
  std::size_t offset_bytes = 0;
};

std::vector<Table> place_tables(const model::ModelSpec& spec, const StageContents& contents) {
  std::vector<Table> tables;
  std::size_t offset = 0;
  const auto add = [&](const std::string& group, const std::vector<model::TensorSpec>& tensors) {
    for (const auto& tensor : tensors) {
      tables.push_back({group, tensor, offset});
      offset += round_up(static_cast<std::size_t>(tensor.size_bytes()), kPageBytes);
    }
  };
  if (contents.embedding) {
    add(model::kEmbeddingGroup, model::embedding_tensors(spec));
  } else if (contents.head && spec.tied_head) {
    add(model::kEmbeddingGroup, {model::embedding_tensors(spec).front()});
  }
  if (contents.head) {
    add(model::kHeadGroup, model::head_tensors(spec));
  }
  return tables;
}

std::size_t device_stride(const WeightCut& cut) { return round_up(cut.device_end, kPageBytes); }
std::size_t cpu_stride(const WeightCut& cut) { return cut.cpu_end - cut.stream_begin; }

/// Reads that bring the image's bytes of `range` to `to`.
void add_reads(std::vector<WeightRead>& reads, const std::string& group, const LayerImage& image,
               ByteRange range, std::byte* to, bool to_device) {
  for (const auto& part : image.parts()) {
    const auto begin = std::max(range.begin, part.offset_bytes);
    const auto end =
        std::min(range.end, part.offset_bytes + static_cast<std::size_t>(part.tensor.size_bytes()));
    if (begin < end) {
      reads.push_back({.group = group,
                       .tensor = part.tensor,
                       .first_byte = begin - part.offset_bytes,
                       .size_bytes = end - begin,
                       .to = to + (begin - range.begin),
                       .to_device = to_device});
    }
  }
}

}  // namespace

std::size_t StageWeights::table_bytes(const model::ModelSpec& spec, const StageContents& contents) {
  std::size_t bytes = 0;
  for (const auto& table : place_tables(spec, contents)) {
    bytes += round_up(static_cast<std::size_t>(table.tensor.size_bytes()), kPageBytes);
  }
  return bytes;
}

std::size_t StageWeights::device_bytes(const StageContents& contents, const WeightCut& cut) {
  return static_cast<std::size_t>(contents.layers) * device_stride(cut);
}

std::size_t StageWeights::cpu_bytes(const StageContents& contents, const WeightCut& cut) {
  return static_cast<std::size_t>(contents.layers) * cpu_stride(cut);
}

std::size_t StageWeights::staging_bytes(int reader_threads) {
  return read_staging_bytes(reader_threads);
}

StageWeights::StageWeights(const model::ModelSpec& spec, const StageContents& contents,
                           LayerImage image, const WeightCut& cut, const WeightSource& source,
                           device::Device& device, MemoryBudget& dram, int reader_threads,
                           const std::function<void(std::uint64_t, std::uint64_t)>& progress)
    : contents_(contents), image_(std::move(image)), cut_(cut), source_(source) {
  if (cut.cpu_end < image_.size_bytes() && source.file() == nullptr) {
    throw ConfigError(
        "--percent puts weights on disk, but --dummy weights are in no file: make a store with "
        "'stagecoach convert --dummy' and give it with --model");
  }
  tables_ = device.allocate(table_bytes(spec, contents), "tables and head");
  layers_ = device.allocate(device_bytes(contents, cut), "weights");
  dram_memory_ = BudgetedMemory(dram, cpu_bytes(contents, cut), "weights");
  std::vector<WeightRead> reads;
  std::map<std::pair<std::string, std::string>, const Half*> address;
  for (const auto& table : place_tables(spec, contents)) {
    auto* const to = tables_.data() + table.offset_bytes;
    reads.push_back({.group = table.group,
                     .tensor = table.tensor,
                     .size_bytes = static_cast<std::size_t>(table.tensor.size_bytes()),
                     .to = to,
                     .to_device = true});
    address[{table.group, table.tensor.name}] = reinterpret_cast<const Half*>(to);
  }
  for (std::int64_t i = 0; i < contents.layers; ++i) {
    const auto group = model::layer_group(contents.first_layer + i);
    const auto index = static_cast<std::size_t>(i);
    add_reads(reads, group, image_, {0, cut.device_end},
              layers_.data() + index * device_stride(cut), true);
    add_reads(reads, group, image_, {cut.stream_begin, cut.cpu_end},
              dram_memory_.data() + index * cpu_stride(cut), false);
  }
  loaded_bytes_ = read_weights(reads, source, device, dram, reader_threads, progress);
  if (contents.embedding) {
    token_table_ = address.at({model::kEmbeddingGroup, "token.weight"});
    position_table_ = address.at({model::kEmbeddingGroup, "position.weight"});
  }
  if (contents.head) {
    final_norm_ = {address.at({model::kHeadGroup, "final_norm.weight"}),
                   address.at({model::kHeadGroup, "final_norm.bias"})};
    head_ = spec.tied_head ? address.at({model::kEmbeddingGroup, "token.weight"})
                           : address.at({model::kHeadGroup, "weight"});
  }
}

LayerWeights StageWeights::layer(std::int64_t index, const std::byte* buffer,
                                 std::size_t origin) const {
  const auto* const resident =
      layers_.data() + static_cast<std::size_t>(index) * device_stride(cut_);
  const auto streamed = [&](std::size_t offset) {
    return buffer == nullptr || offset < origin
               ? nullptr
               : reinterpret_cast<const Half*>(buffer + (offset - origin));
  };
  const auto vector = [&](const std::string& name) {
    const auto& part = image_.part(name);
    const auto end = part.offset_bytes + static_cast<std::size_t>(part.tensor.size_bytes());
    return end <= cut_.device_end ? reinterpret_cast<const Half*>(resident + part.offset_bytes)
                                  : streamed(part.offset_bytes);
  };
  const auto linear = [&](const std::string& name) {
    const auto& part = image_.part(name + ".weight");
    const auto rows = part.tensor.shape.front();
    const auto row_bytes = static_cast<std::size_t>(part.tensor.size_bytes() / rows);
    const auto before =
        cut_.device_end > part.offset_bytes ? (cut_.device_end - part.offset_bytes) / row_bytes : 0;
    LinearWeights weights;
    weights.first_rows = std::min(rows, static_cast<std::int64_t>(before));
    weights.first = reinterpret_cast<const Half*>(resident + part.offset_bytes);
    weights.rest_rows = rows - weights.first_rows;
    weights.rest =
        streamed(part.offset_bytes + static_cast<std::size_t>(weights.first_rows) * row_bytes);
    weights.bias = vector(name + ".bias");
    return weights;
  };
  const auto norm = [&](const std::string& name) {
    return NormWeights{vector(name + ".weight"), vector(name + ".bias")};
  };
  return {.attn_norm = norm("attn_norm"),
          .mlp_norm = norm("mlp_norm"),
          .q = linear("q"),
          .k = linear("k"),
          .v = linear("v"),
          .o = linear("o"),
          .up = linear("up"),
          .down = linear("down")};
}

const std::byte* StageWeights::in_dram(std::int64_t index, ByteRange range) const {
  STAGECOACH_CHECK(range.begin >= cut_.stream_begin && range.end <= cut_.cpu_end);
  return dram_memory_.data() + static_cast<std::size_t>(index) * cpu_stride(cut_) +
         (range.begin - cut_.stream_begin);
}

std::vector<FileExtent> StageWeights::extents(std::int64_t index, ByteRange range) const {
  const auto group = model::layer_group(contents_.first_layer + index);
  std::vector<FileExtent> extents;
  for (const auto& part : image_.parts()) {
    const auto size = static_cast<std::size_t>(part.tensor.size_bytes());
    const auto begin = std::max(range.begin, part.offset_bytes);
    const auto end = std::min(range.end, part.offset_bytes + round_up(size, kPageBytes));
    if (begin >= end) {
      continue;
    }
    const auto file_offset =
        source_.file_offset(group, part.tensor.name) + (begin - part.offset_bytes);
    const auto least = std::min(end, part.offset_bytes + size) - begin;
    auto* const last = extents.empty() ? nullptr : &extents.back();
    if (last != nullptr && last->file_offset + last->size_bytes == file_offset) {
      last->least_bytes = last->size_bytes + least;
      last->size_bytes += end - begin;
    } else {
      extents.push_back({file_offset, begin, end - begin, least});
    }
  }
  return extents;
}

}  // namespace stagecoach::offload
