#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/scalar_reference.hpp"
#include "unit/device/attention_cases.hpp"

namespace stagecoach::test {
namespace {

using Model = AttentionModel;
using device::Device;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void store_and_attend(const TestDevice& device, const AttentionArgs& args) {
  device.run(&Device::store_kv, args);
  device.run(&Device::attention, args);
}

std::vector<Model> models() {
  return {{4, 4, 64, 16, KvType::f16},  {2, 2, 80, 32, KvType::f16}, {6, 2, 100, 16, KvType::f16},
          {8, 1, 128, 64, KvType::f16}, {3, 3, 8, 16, KvType::f32},  {4, 2, 33, 5, KvType::f16},
          {2, 1, 256, 16, KvType::f32}, {1, 1, 1, 1, KvType::f32}};
}

std::vector<Model> packed_models() {
  return {{4, 4, 64, 16, {KvType::int4, 64}},  {2, 2, 128, 32, {KvType::int4, 32}},
          {8, 1, 128, 64, {KvType::int4, 64}}, {6, 2, 80, 16, {KvType::int4, 128}},
          {4, 4, 64, 16, {KvType::int8, 64}},  {2, 2, 40, 5, {KvType::int4, 32}},
          {3, 3, 80, 32, {KvType::int8, 32}},  {2, 1, 256, 64, {KvType::int4, 128}},
          {4, 2, 33, 16, {KvType::int8, 128}}, {1, 1, 1, 1, {KvType::int4, 64}}};
}

std::vector<Model> all_models() {
  auto all = models();
  const auto packed = packed_models();
  all.insert(all.end(), packed.begin(), packed.end());
  return all;
}

// Three sequences in one batch with a gap between their rows: a prompt piece that ends in the
// middle of a page, a decoded token, one that has nothing this time, and a piece that continues.
TEST(Attention, AgreesWithScalarReference) {
  for (const auto& device : equal_devices()) {
    for (const auto& model : all_models()) {
      const Tokens history(model, 60, 5);
      const Tokens batch(model, 40, 6);
      Cache whole(model, 37);
      Cache decoded(model, 61);
      Cache idle(model, 1);
      Cache continued(model, 41);
      std::vector<float> unused(static_cast<std::size_t>(60 * model.heads * model.head_dim));
      auto earlier = make_args(model, history, 0, unused.data());
      earlier.sequences = {{0, 60, 0, decoded.pages()}, {0, 39, 0, continued.pages()}};
      device->run(&Device::store_kv, earlier);
      std::vector<float> out(static_cast<std::size_t>(40 * model.heads * model.head_dim), -1.0f);
      auto args = make_args(model, batch, 0, out.data());
      args.sequences = {{1, 36, 0, whole.pages()},
                        {37, 1, 60, decoded.pages()},
                        {38, 0, 0, idle.pages()},
                        {38, 2, 39, continued.pages()}};
      store_and_attend(*device, args);
      const auto expected = reference_attention(args);
      const auto width = model.heads * model.head_dim;
      for (std::int64_t i = 0; i < 40 * width; ++i) {
        const auto k = static_cast<std::size_t>(i);
        if (i < width) {
          ASSERT_EQ(out[k], -1.0f) << "row 0 is nobody's";
        } else {
          ASSERT_NEAR(out[k], expected[k], 4e-6)
              << model.name() << ", row " << i / width << ", " << (*device)->description();
        }
      }
    }
  }
}

TEST(Attention, StoresRoundedKeysAndValuesInTheirSlots) {
  for (const auto& model : models()) {
    const TestDevice device("auto", 2);
    const Tokens tokens(model, 21, 9);
    Cache cache(model, 30);
    std::vector<float> unused(1);
    auto args = make_args(model, tokens, 0, unused.data());
    args.sequences = {{0, 21, 3, cache.pages()}};
    device.run(&Device::store_kv, args);
    for (std::int64_t position = 0; position < 30; ++position) {
      const auto& page = cache.contents()[static_cast<std::size_t>(position / model.page_tokens)];
      for (std::int64_t i = 0; i < 2 * model.kv_heads * model.head_dim; ++i) {
        const std::int64_t head = i / model.head_dim;  // the values' heads follow the keys'
        const std::int64_t element =
            (head * model.page_tokens + position % model.page_tokens) * model.head_dim +
            i % model.head_dim;
        const bool stored = position >= 3 && position < 24;
        const float value = stored ? tokens.data[static_cast<std::size_t>(
                                         (position - 3) * tokens.stride + tokens.key_at + i)]
                                   : 0.0f;
        if (model.type == KvType::f16) {
          const auto half = reinterpret_cast<const Half*>(page.data())[element];
          ASSERT_EQ(half.bits, stored ? to_half(value).bits : 0xffff) << position << " " << i;
        } else {
          const auto full = reinterpret_cast<const float*>(page.data())[element];
          ASSERT_TRUE(stored ? full == value : std::isnan(full)) << position << " " << i;
        }
      }
    }
  }
}

// Numbers of all sorts: zeros of both signs, groups all alike, not finite, beyond f16, tiny.
std::vector<float> awkward_floats(std::int64_t count) {
  auto values = random_floats(count, 77);
  std::mt19937 random(78);
  for (std::size_t i = 0; i < values.size(); i += 16) {
    const auto kind = random() % 12;
    for (std::size_t k = i; k < std::min(i + 16, values.size()); ++k) {
      const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
      switch (kind) {
        case 0:
          values[k] = sign * 0.0f;
          break;
        case 1:
          values[k] = std::max(sign * 0.0f, values[k]) * sign;
          break;
        case 2:
          values[k] = -3.25f;
          break;
        case 3:
          values[k] *= 1e-7f;
          break;
        case 4:
          values[k] *= 3e4f;
          break;
        default:
          break;
      }
    }
    if (random() % 40 == 0) {
      values[i] = random() % 2 == 0 ? NAN : -kInfinity;
    }
  }
  return values;
}

std::span<const std::byte> bytes_at(const std::vector<std::byte>& page, std::int64_t at,
                                    std::int64_t size) {
  return std::span(page).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
}

// Every token of every head is what base/packing.hpp makes of it, and the rest of a page untouched.
TEST(Attention, StoresPackedKeysAndValuesInTheirSlots) {
  for (const auto& model : packed_models()) {
    for (const auto& device : equal_devices()) {
      Tokens tokens(model, 21, 9);
      tokens.data = awkward_floats(static_cast<std::int64_t>(tokens.data.size()));
      Cache cache(model, 30);
      auto args = make_args(model, tokens, 0, nullptr);
      args.sequences = {{0, 21, 3, cache.pages()}};
      device->run(&Device::store_kv, args);
      const auto format = model.type.pack();
      const auto groups = pack_groups(format, model.head_dim);
      const auto size = code_bytes(format, model.head_dim);
      std::vector<std::byte> params(static_cast<std::size_t>(4 * groups));
      std::vector<std::byte> codes(static_cast<std::size_t>(size));
      for (std::int64_t position = 0; position < 30; ++position) {
        const auto slot = position % model.page_tokens;
        for (std::int64_t head = 0; head < 2 * model.kv_heads; ++head) {
          std::fill(params.begin(), params.end(), std::byte{0xff});
          std::fill(codes.begin(), codes.end(), std::byte{0xff});
          if (position >= 3 && position < 24) {
            const float* from = tokens.data.data() + (position - 3) * tokens.stride +
                                tokens.key_at + head * model.head_dim;
            pack(format, {from, static_cast<std::size_t>(model.head_dim)},
                 reinterpret_cast<GroupParams*>(params.data()), codes.data());
          }
          const auto& page =
              cache.contents()[static_cast<std::size_t>(position / model.page_tokens)];
          const auto start = head * model.page_tokens * (4 * groups + size);
          ASSERT_TRUE(same_bits(std::span<const std::byte>(params),
                                bytes_at(page, start + slot * 4 * groups, 4 * groups)))
              << model.name() << ", position " << position << ", head " << head;
          ASSERT_TRUE(
              same_bits(std::span<const std::byte>(codes),
                        bytes_at(page, start + model.page_tokens * 4 * groups + slot * size, size)))
              << model.name() << ", position " << position << ", head " << head;
        }
      }
    }
  }
}

// A number that is not finite makes its group NaN, and so the result of every row that sees it.
TEST(Attention, PackedNumbersThatAreNotFiniteMakeTheResultNan) {
  for (const auto& device : equal_devices()) {
    for (const auto type : {KvType::int8, KvType::int4}) {
      for (const bool in_value : {false, true}) {
        const Model model{1, 1, 64, 16, {type, 64}};
        Tokens tokens(model, 20, 41);
        const auto at = in_value ? tokens.value_at : tokens.key_at;
        tokens.data[static_cast<std::size_t>(3 * tokens.stride + at + 40)] = kInfinity;
        Cache cache(model, 20);
        std::vector<float> out(20 * 64);
        auto args = make_args(model, tokens, 0, out.data());
        args.sequences = {{0, 20, 0, cache.pages()}};
        store_and_attend(*device, args);
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(std::isnan(out[i]), i >= 3 * 64) << "row " << i / 64;
        }
      }
    }
  }
}

struct Run {
  std::vector<float> out;
  std::vector<std::vector<std::byte>> pages;
};

// A prompt of `count` tokens that crosses in pieces of `piece`.
Run run_in_pieces(const TestDevice& device, const Model& model, const Tokens& tokens,
                  std::int64_t count, std::int64_t piece) {
  Cache cache(model, count);
  Run run;
  const std::int64_t width = model.heads * model.head_dim;
  run.out.resize(static_cast<std::size_t>(count * width));
  for (std::int64_t first = 0; first < count; first += piece) {
    auto args = make_args(model, tokens, first, run.out.data() + first * width);
    args.sequences = {{0, static_cast<std::int32_t>(std::min(piece, count - first)),
                       static_cast<std::int32_t>(first), cache.pages()}};
    store_and_attend(device, args);
  }
  run.pages = cache.contents();
  return run;
}

TEST(Attention, BitsDoNotDependOnPiecesThreadsOrRegisterWidth) {
  const auto devices = equal_devices();
  for (const auto& model : all_models()) {
    constexpr std::int64_t kCount = 101;
    const Tokens tokens(model, kCount, 11);
    const auto first = run_in_pieces(*devices.front(), model, tokens, kCount, kCount);
    for (const auto& device : devices) {
      for (const std::int64_t piece : {1, 3, 16, 50, 101}) {
        const auto other = run_in_pieces(*device, model, tokens, kCount, piece);
        EXPECT_TRUE(same_bits(std::span<const float>(first.out), std::span<const float>(other.out)))
            << model.name() << ", pieces of " << piece << ", " << (*device)->description();
        EXPECT_EQ(first.pages, other.pages);
      }
    }
  }
}

TEST(Attention, BitsDoNotDependOnTheBatch) {
  const Model model{4, 2, 80, 16, KvType::f16};
  for (const auto& device : equal_devices()) {
    const Tokens tokens(model, 90, 21);
    const std::int64_t width = model.heads * model.head_dim;
    Cache alone_cache(model, 30);
    std::vector<float> alone(static_cast<std::size_t>(30 * width));
    auto args = make_args(model, tokens, 40, alone.data());
    args.sequences = {{0, 30, 0, alone_cache.pages()}};
    store_and_attend(*device, args);

    Cache before(model, 40);
    Cache cache(model, 30);
    Cache after(model, 20);
    std::vector<float> out(static_cast<std::size_t>(90 * width));
    args = make_args(model, tokens, 0, out.data());
    args.sequences = {
        {0, 40, 0, before.pages()}, {40, 30, 0, cache.pages()}, {70, 20, 0, after.pages()}};
    store_and_attend(*device, args);
    EXPECT_TRUE(same_bits(
        std::span<const float>(alone),
        std::span<const float>(out).subspan(static_cast<std::size_t>(40 * width), alone.size())));
  }
}

// A sequence of `scores.size()` tokens of one head of width 1 with f32 KV: query 1, keys `scores`,
// values 0, 1, 2, ...; the last row's result.
float weighted_position(const TestDevice& device, const std::vector<float>& scores,
                        std::int64_t page_tokens) {
  const Model model{1, 1, 1, page_tokens, KvType::f32};
  const auto count = static_cast<std::int64_t>(scores.size());
  Cache cache(model, count);
  std::vector<float> value(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    value[i] = static_cast<float>(i);
  }
  const std::vector<float> query(scores.size(), 1.0f);
  std::vector<float> out(scores.size());
  AttentionArgs args;
  args.query = query.data();
  args.key = scores.data();
  args.value = value.data();
  args.row_stride = 1;
  args.out = out.data();
  args.heads = args.kv_heads = args.head_dim = 1;
  args.page_tokens = page_tokens;
  args.kv_format = KvType::f32;
  args.sequences = {{0, static_cast<std::int32_t>(count), 0, cache.pages()}};
  store_and_attend(device, args);
  return out.back();
}

TEST(Attention, ExtremeScores) {
  for (const auto& device : equal_devices()) {
    const auto run = [&](const std::vector<float>& scores) {
      return weighted_position(*device, scores, 4);
    };
    // The largest score is in the first page, in the last one, and in the middle.
    EXPECT_EQ(run({3e38f, 0, 0, 0, 0, 0, -3e38f}), 0.0f);
    EXPECT_EQ(run({-3e38f, 0, 0, 0, 0, 0, 3e38f}), 6.0f);
    EXPECT_EQ(run({0, 0, 0, 0, 0, 200, 0, 0, 0, 0}), 5.0f);
    // Equal scores, however large, weigh the same.
    EXPECT_NEAR(run(std::vector<float>(9, -1e30f)), 4.0f, 1e-5f);
    EXPECT_NEAR(run(std::vector<float>(9, 1e30f)), 4.0f, 1e-5f);
    // Minus infinity weighs nothing, also where a whole page is that.
    EXPECT_EQ(run({-kInfinity, -kInfinity, -kInfinity, -kInfinity, 0, -kInfinity}), 4.0f);
    EXPECT_EQ(run({-kInfinity, 1, -kInfinity, -kInfinity, -kInfinity, -kInfinity}), 1.0f);
    // Nothing to weigh, or no meaning: NaN, never a number that looks right.
    EXPECT_TRUE(std::isnan(run({-kInfinity, -kInfinity})));
    EXPECT_TRUE(std::isnan(run({0, kInfinity, 0, 0, 0})));
    EXPECT_TRUE(std::isnan(run({0, 1, 0, 0, NAN})));
    EXPECT_TRUE(std::isnan(run({NAN, 1, 0, 0, 0})));
    EXPECT_TRUE(std::isnan(run({NAN, -kInfinity, -kInfinity, -kInfinity, 0})));
  }
}

TEST(Attention, OneTokenAttendsToItselfExactly) {
  for (const auto& device : equal_devices()) {
    const Model model{2, 2, 16, 16, KvType::f32};
    const Tokens tokens(model, 1, 31);
    Cache cache(model, 1);
    std::vector<float> out(32);
    auto args = make_args(model, tokens, 0, out.data());
    args.sequences = {{0, 1, 0, cache.pages()}};
    store_and_attend(*device, args);
    const float* value = tokens.data.data() + tokens.value_at;
    EXPECT_TRUE(same_bits(std::span<const float>(out), std::span<const float>(value, 32)));
  }
}

TEST(Attention, RefusesTooFewPages) {
  const TestDevice device;
  const Model model;
  const Tokens tokens(model, 17, 1);
  Cache cache(model, 16);
  std::vector<float> out(1);
  auto args = make_args(model, tokens, 0, out.data());
  args.sequences = {{0, 17, 0, cache.pages()}};
  EXPECT_THROW(device->attention(device.stream(), args), InternalError);
  EXPECT_THROW(device->store_kv(device.stream(), args), InternalError);
}

}  // namespace
}  // namespace stagecoach::test
