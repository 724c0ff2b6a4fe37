#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "base/packing.hpp"
#include "device/stream.hpp"

namespace stagecoach::device {

class Device;

/// Owns bytes of a device's memory. Must not outlive its Device, nor be freed while a stream uses
/// it.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(Device& owner, std::byte* data, std::size_t size_bytes) noexcept
      : owner_(&owner), data_(data), size_bytes_(size_bytes) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  /// A device address: on a GPU the host must not touch it.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  Device* owner_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

/// Rows of weights, row-major and dense: f16, or packed rows (base/packing.hpp), which mean f16
/// numbers too.
struct Weights {
  const std::byte* data = nullptr;
  PackFormat format{};

  Weights() = default;
  Weights(const Half* rows) : data(reinterpret_cast<const std::byte*>(rows)) {}
  Weights(const std::byte* rows, const PackFormat& row_format) : data(rows), format(row_format) {}

  /// Of one row of `columns` numbers.
  [[nodiscard]] std::int64_t row_bytes(std::int64_t columns) const {
    return format.packed() ? packed_row_bytes(format, columns) : 2 * columns;
  }
  [[nodiscard]] Weights from_row(std::int64_t row, std::int64_t columns) const {
    return {data + row * row_bytes(columns), format};
  }
  /// The first row; only where nothing is packed.
  [[nodiscard]] const Half* halves() const { return reinterpret_cast<const Half*>(data); }
};

/// How the KV cache keeps its numbers.
enum class KvType { f16, f32, int8, int4 };
struct KvFormat {
  KvType type = KvType::f16;
  std::int64_t group = 64;  ///< numbers of one group, where packed

  KvFormat() = default;
  constexpr KvFormat(KvType kv_type, std::int64_t kv_group = 64) : type(kv_type), group(kv_group) {}

  [[nodiscard]] constexpr bool packed() const {
    return type == KvType::int8 || type == KvType::int4;
  }
  [[nodiscard]] constexpr PackFormat pack() const {
    const auto packing = type == KvType::int4   ? Packing::int4
                         : type == KvType::int8 ? Packing::int8
                                                : Packing::none;
    return {packing, group};
  }
  /// Formats that are not packed do not differ in their groups.
  friend bool operator==(const KvFormat& a, const KvFormat& b) {
    return a.type == b.type && (!a.packed() || a.group == b.group);
  }
};

/// Bytes of K, or of V, of one KV head in a page. Dense: [page_tokens, head_dim]. Packed: the
/// groups' parameters [page_tokens, groups], then the codes [page_tokens, code_bytes], each token's
/// numbers a run of its own, so that a new token changes no other.
constexpr std::int64_t kv_head_bytes(const KvFormat& format, std::int64_t page_tokens,
                                     std::int64_t head_dim) {
  if (!format.packed()) {
    return page_tokens * head_dim * (format.type == KvType::f16 ? 2 : 4);
  }
  return page_tokens *
         (4 * pack_groups(format.pack(), head_dim) + code_bytes(format.pack(), head_dim));
}

/// What is done with a product before it is stored.
enum class Epilogue {
  none,       ///< out = x W^T + bias
  relu,       ///< out = max(0, x W^T + bias)
  add_to_out  ///< out += x W^T + bias (the residual connection)
};

/// out[rows, out_features] (f32) from x[rows, in_features] (f32) and weight[out_features,
/// in_features], all row-major and dense. `bias` may be null. Each output element is the same bits
/// whatever `rows` is and whichever other rows are there, for any number of threads, whether weight
/// rows are given in one call or several, and whether they are packed or were widened before.
struct LinearArgs {
  const float* x = nullptr;
  Weights weight{};
  const Half* bias = nullptr;
  float* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::int64_t out_stride = 0;  ///< elements between rows of `out` (>= out_features)
  Epilogue epilogue = Epilogue::none;
};

/// out[rows, columns] = what packed rows mean, in f16.
struct WidenArgs {
  Weights weight{};
  Half* out = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// LayerNorm over the last dimension, two passes in f32 (mean, then the mean square of
/// differences).
struct LayerNormArgs {
  const float* x = nullptr;      ///< [rows, width]
  const Half* weight = nullptr;  ///< [width]
  const Half* bias = nullptr;    ///< [width]
  float* out = nullptr;          ///< [rows, width]; may be x
  std::int64_t rows = 0;
  std::int64_t width = 0;
  float epsilon = 1e-5f;
};

/// out[i] = token_table[tokens[i]] + position_table[positions[i]], in f32. The tables' row numbers
/// are final: the caller has added the model's position offset.
struct EmbedArgs {
  std::vector<std::int32_t> tokens{};
  std::vector<std::int32_t> positions{};
  Weights token_table{};                 ///< [vocab, width]
  const Half* position_table = nullptr;  ///< [positions, width]
  float* out = nullptr;                  ///< [tokens.size(), width]
  std::int64_t width = 0;
};

/// out[i] = x[rows[i]].
struct GatherRowsArgs {
  const float* x = nullptr;
  std::vector<std::int32_t> rows{};
  float* out = nullptr;
  std::int64_t width = 0;
};

/// Which earlier positions a row of one head keeps with sparse attention: those with a score above
/// the threshold, and of those that equal it the ones up to `last_equal`. The newest position is
/// kept besides.
struct AttentionSelection {
  float threshold = 0;
  std::int32_t last_equal = -1;
};

/// The rows that one sequence has in a GPU batch, and where its K and V lie.
struct SequenceRows {
  std::int32_t first_row = 0;       ///< of this sequence in the batch's matrices
  std::int32_t num_rows = 0;        ///< consecutive tokens
  std::int32_t first_position = 0;  ///< of the first of them; earlier positions are in the pages
  /// Pages in position order, those of this visit included. A page holds K then V, each with
  /// kv_head_bytes for every KV head. Null: not in this device's reach.
  std::vector<std::byte*> pages{};
  /// Empty, or one a page: that page's partial result, or null. Each is [num_rows, heads,
  /// head_dim + 2], f32 and dense: the largest scaled score among the page's tokens that the row
  /// sees, the sum of e^(score - largest), and the values weighted so, not normalised. Rows before
  /// the page's first position do not see it: theirs are neither written nor read.
  std::vector<float*> partials{};

  /// Its rows keep `AttentionArgs::sparsity` of the earlier positions.
  bool sparse = false;
  /// Where pages of a sparse sequence (of one row) lie in several places, the selection is made in
  /// one of them from the scores of all: attention_scores, select_top, and then attention and
  /// attention_partials by what was selected. All null: every page is here.
  float* scores = nullptr;                  ///< [heads, pages.size() * page_tokens], scaled
  AttentionSelection* selection = nullptr;  ///< [heads]
  /// Values on their way: [kv_heads, value_records()] records.
  std::byte* values = nullptr;
};

/// Positions that a sparse row with `earlier` positions before its own keeps of these.
inline std::int64_t kept_positions(double sparsity, std::int64_t earlier) {
  return static_cast<std::int64_t>(std::ceil(sparsity * static_cast<double>(earlier) - 1e-9));
}

/// Elements of one page's partial result.
constexpr std::int64_t attention_partial_floats(std::int64_t rows, std::int64_t heads,
                                                std::int64_t head_dim) {
  return rows * heads * (head_dim + 2);
}

/// Multi-head attention of a GPU batch in one layer; row r of sequence s attends to its positions
/// 0 .. first_position + r. Store and attend are two operations so that stores may be elsewhere;
/// so may be a part of the pages, with another device that computes their partial results.
struct AttentionArgs {
  const float* query = nullptr;  ///< [rows, heads, head_dim] with `row_stride` elements a row
  const float* key = nullptr;    ///< [rows, kv_heads, head_dim], likewise
  const float* value = nullptr;  ///< [rows, kv_heads, head_dim], likewise
  std::int64_t row_stride = 0;
  float* out = nullptr;  ///< [rows, heads * head_dim], dense
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t page_tokens = 0;
  float scale = 1;
  KvFormat kv_format{};
  double sparsity = 1;  ///< in (0, 1]
  std::vector<SequenceRows> sequences{};
};

/// One value on its way: its position (int32; -1: no more of this KV head), and its numbers as in
/// the page (packed: parameters, then codes), padded to 4 bytes.
constexpr std::int64_t value_record_bytes(const KvFormat& format, std::int64_t head_dim) {
  return 4 + (kv_head_bytes(format, 1, head_dim) + 3) / 4 * 4;
}
/// Records of one KV head: its query heads may select different positions.
inline std::int64_t value_records(double sparsity, std::int64_t earlier, std::int64_t group) {
  return kept_positions(sparsity, earlier) * group;
}

/// How one row of logits becomes a token (or only logprobs).
struct SampleSpec {
  std::int32_t row = 0;      ///< of the logits matrix
  std::int32_t target = -1;  ///< >= 0: no choice is made, this token is scored (prompt logprobs)
  double temperature = 0;    ///< 0 = greedy: the highest logit, the lowest id among equals
  std::int32_t top_k = 0;    ///< 0 = off; among equal logits lower ids come first
  double top_p = 1;          ///< 1 = off; after top_k, over the renormalised probabilities
  double uniform = 0;        ///< in [0, 1)
  std::int32_t num_logprobs =
      -1;  ///< -1: no logprob at all; n >= 0: the chosen one's and the top n
};

struct SampleResult {
  std::int32_t token = -1;
  float logprob = 0;  ///< natural log of the softmax of the raw logits, computed in f64
  std::vector<std::int32_t> top_tokens{};
  std::vector<float> top_logprobs{};
};

struct SampleArgs {
  const float* logits = nullptr;  ///< [rows, vocab], dense
  std::int64_t vocab = 0;
  std::vector<SampleSpec> specs{};
  /// One result a spec, in order; host memory that must live until the operation has run.
  std::span<SampleResult> results{};
};

/// Shapes that a device's own scratch depends on.
struct ScratchShape {
  std::int64_t max_in_features = 0;
  std::int64_t head_dim = 0;
  std::int64_t page_tokens = 0;
  std::int64_t vocab = 0;
  std::int64_t sparse_tokens = 0;  ///< of the longest sequence with sparse attention; 0: none
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t max_rows = 0;       ///< of a GPU batch
  std::int64_t max_sequences = 0;  ///< of a GPU batch
  std::int64_t longest_pages = 0;  ///< of one sequence
};

/// Host memory that is pinned as long as this lives; it must not outlive the memory nor the device.
class Pinned {
 public:
  virtual ~Pinned() = default;
};

/// A processor with memory of its own and about a dozen operations. Operations are enqueued on a
/// stream that this device made, run in that stream's order, and take their arguments by value; the
/// memory that they point to must stay until they have run. Calls may come from one thread at a
/// time.
class Device {
 public:
  virtual ~Device() = default;

  /// "host, avx512, 2 threads".
  [[nodiscard]] virtual std::string description() const = 0;
  /// Names what decides the bits of a result; ranks with different ones must not work together.
  [[nodiscard]] virtual std::string instruction_set() const = 0;

  /// Whether host and device may touch each other's memory, so that nothing needs to be copied.
  [[nodiscard]] virtual bool host_addressable() const = 0;

  /// Takes device memory, aligned to 256 bytes, page-aligned where the host may address it. It is
  /// not cleared. Throws OutOfMemory naming `purpose`.
  virtual Buffer allocate(std::size_t size_bytes, const std::string& purpose) = 0;
  /// Bytes that buffers and scratch hold now.
  [[nodiscard]] virtual std::size_t allocated_bytes() const = 0;
  /// The most that they have held at once.
  [[nodiscard]] virtual std::size_t peak_bytes() const = 0;
  /// Bytes that `reserve_scratch` takes, for the memory report: of the device, and of host memory
  /// beside it.
  [[nodiscard]] virtual std::size_t scratch_bytes(const ScratchShape& shape) const = 0;
  [[nodiscard]] virtual std::size_t host_scratch_bytes(const ScratchShape& shape) const = 0;
  /// Takes the scratch of every operation; called once, before the first operation. Throws
  /// OutOfMemory.
  virtual void reserve_scratch(const ScratchShape& shape) = 0;
  /// What people had better know of how it runs, once scratch is reserved: a line each.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }

  /// Pins host memory: it is not paged out, and a GPU copies from and to it beside other work.
  /// Null: the system refuses.
  [[nodiscard]] virtual std::unique_ptr<Pinned> pin(std::span<std::byte> memory) = 0;

  virtual std::unique_ptr<Stream> create_stream(const std::string& name) = 0;

  virtual void copy_from_host(Stream& stream, std::byte* to, const std::byte* from,
                              std::size_t size_bytes) = 0;
  virtual void copy_to_host(Stream& stream, std::byte* to, const std::byte* from,
                            std::size_t size_bytes) = 0;
  virtual void embed(Stream& stream, EmbedArgs args) = 0;
  virtual void layer_norm(Stream& stream, LayerNormArgs args) = 0;
  virtual void linear(Stream& stream, LinearArgs args) = 0;
  virtual void widen(Stream& stream, WidenArgs args) = 0;
  /// Most rows of a product that had better read packed weights as they lie. Where one has more,
  /// the weights are widened first, once for all of a visit's GPU batches.
  [[nodiscard]] virtual std::int64_t packed_product_rows() const = 0;
  /// Writes K and V of the batch's rows into their pages, packed as their format says; rows whose
  /// page is null are skipped.
  virtual void store_kv(Stream& stream, AttentionArgs args) = 0;
  /// One partial result a page, merged in page order, so the bits depend on nothing but the row,
  /// its sequence and the page size. Where a page that some row sees is null its partial result is
  /// taken from `partials`, and must be there.
  ///
  /// A row of a sparse sequence weighs all positions that it sees, but adds up the values of those
  /// alone that it keeps: the kept_positions with the highest scores (among equal ones the earlier)
  /// and its own. Found from its scores, or given by `selection` together with `scores`.
  virtual void attention(Stream& stream, AttentionArgs args) = 0;
  /// Computes the partial results of those pages that have both a page and a place in `partials`.
  /// Uses neither `key`, `value` nor `out`. Merged by `attention` they give the bits that it would
  /// have given with the pages themselves.
  virtual void attention_partials(Stream& stream, AttentionArgs args) = 0;
  /// For sequences that have `scores`: the scores of the tokens in those pages that are here.
  virtual void attention_scores(Stream& stream, AttentionArgs args) = 0;
  /// For sequences that have `scores`, of all their pages: `selection`.
  virtual void select_top(Stream& stream, AttentionArgs args) = 0;
  /// For sequences that have `values`: records of the selected earlier positions in those pages
  /// that are here, by position.
  virtual void gather_values(Stream& stream, AttentionArgs args) = 0;
  /// The other way: records into those pages that are here.
  virtual void scatter_values(Stream& stream, AttentionArgs args) = 0;
  virtual void gather_rows(Stream& stream, GatherRowsArgs args) = 0;
  virtual void sample(Stream& stream, SampleArgs args) = 0;

 protected:
  friend class Buffer;
  virtual void release(std::byte* data, std::size_t size_bytes) noexcept = 0;
};

}  // namespace stagecoach::device
