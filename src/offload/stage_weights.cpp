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

std::vector<Table> place_tables(const model::ModelSpec& spec, const StageContents& contents,
                                const model::WeightFormat& format) {
  std::vector<Table> tables;
  std::size_t offset = 0;
  const auto add = [&](const std::string& group, const std::vector<model::TensorSpec>& tensors) {
    for (const auto& tensor : tensors) {
      tables.push_back({group, tensor, offset});
      offset += round_up(static_cast<std::size_t>(tensor.size_bytes()), kPageBytes);
    }
  };
  if (contents.embedding) {
    add(model::kEmbeddingGroup, model::embedding_tensors(spec, format));
  } else if (contents.head && spec.tied_head) {
    add(model::kEmbeddingGroup, {model::embedding_tensors(spec, format).front()});
  }
  if (contents.head) {
    add(model::kHeadGroup, model::head_tensors(spec, format));
  }
  return tables;
}

std::size_t device_stride(const WeightCut& cut) { return round_up(cut.device_end, kPageBytes); }
std::size_t cpu_stride(const WeightCut& cut) { return cut.cpu_end - cut.stream_begin; }

/// Where the widened form of the packed matrices before `offset` ends.
std::size_t wide_bytes_before(const LayerImage& image, std::size_t offset) {
  constexpr std::size_t kWideAlignment = 64;
  std::size_t bytes = 0;
  for (const auto& part : image.parts()) {
    if (part.tensor.format.packed() && part.offset_bytes < offset) {
      bytes +=
          round_up(static_cast<std::size_t>(part.tensor.elements()) * sizeof(Half), kWideAlignment);
    }
  }
  return bytes;
}

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

std::size_t StageWeights::table_bytes(const model::ModelSpec& spec, const StageContents& contents,
                                      const model::WeightFormat& format) {
  std::size_t bytes = 0;
  for (const auto& table : place_tables(spec, contents, format)) {
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

std::size_t StageWeights::staging_bytes(const WeightSource& source, int reader_threads) {
  return read_staging_bytes(source, reader_threads);
}

std::size_t StageWeights::staging_bytes(int reader_threads) {
  return read_staging_bytes(std::size_t{0}, reader_threads);
}

std::size_t StageWeights::wide_bytes(const LayerImage& image, ByteRange unit) {
  return wide_bytes_before(image, unit.end) - wide_bytes_before(image, unit.begin);
}

void StageWeights::check_source(const LayerImage& image, const WeightCut& cut,
                                const WeightSource& source) {
  if (cut.cpu_end < image.size_bytes() && source.file() == nullptr) {
    throw ConfigError("--percent puts weights on disk, but " + source.why_no_file());
  }
}

StageWeights::StageWeights(const model::ModelSpec& spec, const StageContents& contents,
                           const model::WeightFormat& format, LayerImage image,
                           const WeightCut& cut, const WeightSource& source, device::Device& device,
                           MemoryBudget& dram, int reader_threads,
                           const std::function<void(std::uint64_t, std::uint64_t)>& progress)
    : contents_(contents), image_(std::move(image)), cut_(cut), source_(source) {
  check_source(image_, cut, source);
  place_layers();
  tables_ = device.allocate(table_bytes(spec, contents, format), "tables and head");
  layers_ = device.allocate(device_bytes(contents, cut), "weights");
  dram_memory_ = BudgetedMemory(dram, cpu_bytes(contents, cut), "weights");
  auto reads = layer_reads();
  std::map<std::pair<std::string, std::string>, device::Weights> address;
  for (const auto& table : place_tables(spec, contents, format)) {
    auto* const to = tables_.data() + table.offset_bytes;
    reads.push_back({.group = table.group,
                     .tensor = table.tensor,
                     .size_bytes = static_cast<std::size_t>(table.tensor.size_bytes()),
                     .to = to,
                     .to_device = true});
    address[{table.group, table.tensor.name}] = {to, table.tensor.format};
  }
  loaded_bytes_ = read_weights(reads, source, device, dram, reader_threads, progress);
  if (contents.embedding) {
    token_table_ = address.at({model::kEmbeddingGroup, "token.weight"});
    position_table_ = address.at({model::kEmbeddingGroup, "position.weight"}).halves();
  }
  if (contents.head) {
    final_norm_ = {address.at({model::kHeadGroup, "final_norm.weight"}).halves(),
                   address.at({model::kHeadGroup, "final_norm.bias"}).halves()};
    head_ = spec.tied_head ? address.at({model::kEmbeddingGroup, "token.weight"})
                           : address.at({model::kHeadGroup, "weight"});
  }
}

void StageWeights::place_layers() {
  places_ = {.attn_norm = place_norm("attn_norm"),
             .mlp_norm = place_norm("mlp_norm"),
             .q = place_linear("q"),
             .k = place_linear("k"),
             .v = place_linear("v"),
             .o = place_linear("o"),
             .up = place_linear("up"),
             .down = place_linear("down")};
}

std::vector<WeightRead> StageWeights::layer_reads() const {
  std::vector<WeightRead> reads;
  for (std::int64_t i = 0; i < contents_.layers; ++i) {
    const auto group = model::layer_group(contents_.first_layer + i);
    const auto index = static_cast<std::size_t>(i);
    add_reads(reads, group, image_, {0, cut_.device_end},
              layers_.data() + index * device_stride(cut_), true);
    add_reads(reads, group, image_, {cut_.stream_begin, cut_.cpu_end},
              dram_memory_.data() + index * cpu_stride(cut_), false);
  }
  return reads;
}

LayerWeights StageWeights::layer(std::int64_t index, const std::byte* buffer,
                                 std::size_t origin) const {
  const auto* const resident =
      layers_.data() + static_cast<std::size_t>(index) * device_stride(cut_);
  const auto streamed = [&](std::size_t offset) {
    return buffer == nullptr || offset < origin ? nullptr : buffer + (offset - origin);
  };
  const auto vector = [&](const VectorPlace& place) {
    return reinterpret_cast<const Half*>(place.on_device ? resident + place.offset
                                                         : streamed(place.offset));
  };
  const auto norm = [&](const NormPlace& place) {
    return NormWeights{vector(place.weight), vector(place.bias)};
  };
  const auto linear = [&](const LinearPlace& place) {
    return LinearWeights{.first = {resident + place.offset, place.format},
                         .first_rows = place.first_rows,
                         .rest = {streamed(place.rest_offset), place.format},
                         .rest_rows = place.rest_rows,
                         .bias = vector(place.bias)};
  };
  return {.attn_norm = norm(places_.attn_norm),
          .mlp_norm = norm(places_.mlp_norm),
          .q = linear(places_.q),
          .k = linear(places_.k),
          .v = linear(places_.v),
          .o = linear(places_.o),
          .up = linear(places_.up),
          .down = linear(places_.down)};
}

std::vector<StageWeights::Linear> StageWeights::packed_linears(ByteRange unit) const {
  std::vector<Linear> found;
  for (const auto& linear : kLinears) {
    const auto& place = places_.*linear.place;
    if (place.format.packed() && place.offset >= unit.begin && place.offset < unit.end) {
      found.push_back(linear);
    }
  }
  return found;
}

std::vector<WideMatrix> StageWeights::wide_matrices(std::int64_t index, ByteRange unit,
                                                    const std::byte* buffer, std::size_t origin,
                                                    std::byte* wide) const {
  const auto packed = layer(index, buffer, origin);
  const auto begin = wide_bytes_before(image_, unit.begin);
  std::vector<WideMatrix> matrices;
  for (const auto& linear : packed_linears(unit)) {
    const auto& place = places_.*linear.place;
    const auto& weights = packed.*linear.weights;
    matrices.push_back({.first = weights.first,
                        .first_rows = weights.first_rows,
                        .rest = weights.rest,
                        .rest_rows = weights.rest_rows,
                        .columns = place.columns,
                        .out = reinterpret_cast<Half*>(wide + (place.wide_offset - begin))});
  }
  return matrices;
}

LayerWeights StageWeights::widened_layer(std::int64_t index, ByteRange unit,
                                         const std::byte* buffer, std::size_t origin,
                                         const std::byte* wide) const {
  auto widened = layer(index, buffer, origin);
  const auto begin = wide_bytes_before(image_, unit.begin);
  for (const auto& linear : packed_linears(unit)) {
    const auto& place = places_.*linear.place;
    auto& weights = widened.*linear.weights;
    weights = {.first = {wide + (place.wide_offset - begin), PackFormat{}},
               .first_rows = place.first_rows + place.rest_rows,
               .rest = {},
               .rest_rows = 0,
               .bias = weights.bias};
  }
  return widened;
}

StageWeights::VectorPlace StageWeights::place_vector(const std::string& name) const {
  const auto& part = image_.part(name);
  const auto end = part.offset_bytes + static_cast<std::size_t>(part.tensor.size_bytes());
  return {part.offset_bytes, end <= cut_.device_end};
}

StageWeights::LinearPlace StageWeights::place_linear(const std::string& name) const {
  const auto& part = image_.part(name + ".weight");
  const auto rows = part.tensor.rows();
  const auto row_bytes = static_cast<std::size_t>(part.tensor.row_bytes());
  const auto before =
      cut_.device_end > part.offset_bytes
          ? static_cast<std::int64_t>((cut_.device_end - part.offset_bytes) / row_bytes)
          : 0;
  const auto first_rows = std::min(rows, before);
  return {.format = part.tensor.format,
          .columns = part.tensor.columns(),
          .offset = part.offset_bytes,
          .first_rows = first_rows,
          .rest_offset = part.offset_bytes + static_cast<std::size_t>(first_rows) * row_bytes,
          .rest_rows = rows - first_rows,
          .bias = place_vector(name + ".bias"),
          .wide_offset = wide_bytes_before(image_, part.offset_bytes)};
}

StageWeights::NormPlace StageWeights::place_norm(const std::string& name) const {
  return {place_vector(name + ".weight"), place_vector(name + ".bias")};
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
