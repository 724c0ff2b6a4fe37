#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "unit/device/device_cases.hpp"

namespace stagecoach::test {

using device::AttentionArgs;
using device::KvFormat;
using device::KvType;

/// The shape of a layer's attention.
struct AttentionModel {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;
  std::int64_t head_dim = 64;
  std::int64_t page_tokens = 16;
  KvFormat type = KvType::f16;

  [[nodiscard]] std::size_t page_bytes() const {
    return static_cast<std::size_t>(2 * kv_heads *
                                    device::kv_head_bytes(type, page_tokens, head_dim));
  }
  [[nodiscard]] std::string type_name() const {
    return type.packed() ? describe(type.pack()) : type == KvType::f32 ? "f32" : "f16";
  }
  [[nodiscard]] std::string name() const {
    return fmt::format("{} heads, {} KV, {} wide, pages of {}, {}", heads, kv_heads, head_dim,
                       page_tokens, type_name());
  }
};

/// Pages of one sequence, full of NaN at first: what is not stored must not be read.
class Cache {
 public:
  Cache(const AttentionModel& model, std::int64_t tokens) {
    for (std::int64_t first = 0; first < tokens; first += model.page_tokens) {
      pages_.emplace_back(model.page_bytes(), std::byte{0xff});
    }
  }
  [[nodiscard]] std::vector<std::byte*> pages() {
    std::vector<std::byte*> pointers;
    for (auto& page : pages_) {
      pointers.push_back(page.data());
    }
    return pointers;
  }
  [[nodiscard]] const std::vector<std::vector<std::byte>>& contents() const { return pages_; }

 private:
  std::vector<std::vector<std::byte>> pages_;
};

/// Query, key and value of a number of tokens side by side, as one fused projection leaves them.
struct Tokens {
  Tokens(const AttentionModel& model, std::int64_t count, unsigned seed)
      : stride((model.heads + 2 * model.kv_heads) * model.head_dim + 3),
        key_at(model.heads * model.head_dim),
        value_at(key_at + model.kv_heads * model.head_dim),
        data(random_floats(count * stride, seed)) {}

  std::int64_t stride;
  std::int64_t key_at;
  std::int64_t value_at;
  std::vector<float> data;
};

inline AttentionArgs make_args(const AttentionModel& model, const Tokens& tokens,
                               std::int64_t first_token, float* out) {
  AttentionArgs args;
  const float* row = tokens.data.data() + first_token * tokens.stride;
  args.query = row;
  args.key = row + tokens.key_at;
  args.value = row + tokens.value_at;
  args.row_stride = tokens.stride;
  args.out = out;
  args.heads = model.heads;
  args.kv_heads = model.kv_heads;
  args.head_dim = model.head_dim;
  args.page_tokens = model.page_tokens;
  args.scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
  args.kv_format = model.type;
  return args;
}

}  // namespace stagecoach::test
