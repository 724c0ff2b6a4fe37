#include <random>

#include "cuda/attention_case.hpp"

namespace stagecoach::test {
namespace {

using device::Device;

// Zeros of both signs, groups all alike, not finite, beyond f16, on its border, tiny.
std::vector<float> awkward_floats(std::int64_t count, unsigned seed) {
  auto values = random_floats(count, seed);
  std::mt19937 random(seed + 1);
  for (std::size_t i = 0; i < values.size(); i += 16) {
    const auto kind = random() % 14;
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
        case 5:
          values[k] = sign * (65504.0f + static_cast<float>(random() % 32));
          break;
        case 6:
          values[k] *= 1e-40f;
          break;
        default:
          break;
      }
    }
    if (random() % 30 == 0) {
      values[i] = random() % 3 == 0   ? std::bit_cast<float>(0x7f812345u)
                  : random() % 2 == 0 ? -kNan
                                      : -kInfinity;
    }
  }
  return values;
}

// Every page has the bits that the host device gives it, what is not stored included.
TEST(CudaKvStore, GivesTheBitsOfTheHost) {
  for (const auto& model : cuda_models()) {
    for (unsigned seed = 9; seed < 12; ++seed) {
      AttentionCase gpu;
      Tokens tokens(model, 24, seed);
      tokens.data = awkward_floats(static_cast<std::int64_t>(tokens.data.size()), seed);
      Cache first(model, 30);
      Cache second(model, 70);
      auto host = make_args(model, tokens, 0, nullptr);
      host.sequences = {{1, 21, 3, first.pages()}, {22, 0, 0, {}}, {22, 2, 66, second.pages()}};
      const auto args = gpu.copy_args(model, tokens, host);
      TestDevice().run(&Device::store_kv, host);
      gpu.run(device::cuda::store_kv, args);
      for (std::size_t s = 0; s < host.sequences.size(); ++s) {
        for (std::size_t p = 0; p < host.sequences[s].pages.size(); ++p) {
          const auto page = gpu.get(args.sequences[s].pages[p], model.page_bytes());
          ASSERT_EQ(std::memcmp(page.data(), host.sequences[s].pages[p], page.size()), 0)
              << model.name() << ", sequence " << s << ", page " << p << ", seed " << seed;
        }
      }
    }
  }
}

TEST(CudaKvStore, SkipsPagesThatAreElsewhere) {
  for (const auto type : {KvType::f16, KvType::int4}) {
    const AttentionModel model{2, 2, 40, 16, {type, 32}};
    AttentionCase gpu;
    const Tokens tokens(model, 40, 5);
    Cache cache(model, 40);
    auto host = make_args(model, tokens, 0, nullptr);
    host.sequences = {{0, 40, 0, cache.pages()}};
    host.sequences[0].pages[1] = nullptr;
    const auto args = gpu.copy_args(model, tokens, host);
    TestDevice().run(&Device::store_kv, host);
    gpu.run(device::cuda::store_kv, args);
    for (const std::size_t p : {0U, 2U}) {
      const auto page = gpu.get(args.sequences[0].pages[p], model.page_bytes());
      EXPECT_EQ(std::memcmp(page.data(), host.sequences[0].pages[p], page.size()), 0);
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
