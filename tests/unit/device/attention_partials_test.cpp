#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/scalar_reference.hpp"
#include "unit/device/attention_cases.hpp"

namespace stagecoach::test {
namespace {

using Model = AttentionModel;
using device::Device;
using device::SequenceRows;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Places for one sequence's partial results, full of NaN at first: rows that do not see a page
/// must not be read.
class Partials {
 public:
  Partials(const Model& model, std::int64_t rows, std::size_t pages)
      : places_(pages, std::vector<float>(static_cast<std::size_t>(device::attention_partial_floats(
                                              rows, model.heads, model.head_dim)),
                                          kNan)) {}

  [[nodiscard]] std::vector<float*> pointers() {
    std::vector<float*> pointers;
    for (auto& place : places_) {
      pointers.push_back(place.data());
    }
    return pointers;
  }
  [[nodiscard]] const std::vector<float>& operator[](std::size_t page) const {
    return places_[page];
  }
  [[nodiscard]] bool untouched(std::size_t page) const {
    return std::all_of(places_[page].begin(), places_[page].end(),
                       [](float value) { return std::isnan(value); });
  }

 private:
  std::vector<std::vector<float>> places_;
};

/// What one sequence of a batch brings.
struct Piece {
  std::int64_t earlier = 0;  ///< tokens in the pages already
  std::int64_t rows = 0;
};

std::vector<Piece> pieces_of(const Model& model, std::mt19937& random) {
  const auto below = [&](std::int64_t count) {
    return std::uniform_int_distribution<std::int64_t>(0, count - 1)(random);
  };
  const auto tokens = model.page_tokens;
  return {{below(4 * tokens), 1},      // decoded
          {3 * tokens - 1, 1},         // decoded, the last of a page
          {2 * tokens, 1},             // decoded, the first of a page
          {tokens, 0},                 // nothing this time
          {0, 1 + below(3 * tokens)},  // the start of a prompt
          {below(3 * tokens), 2 + below(60)}};
}

/// A batch of sequences with all their pages, and the arguments for a part of them.
class Scene {
 public:
  Scene(const Model& model, std::uint32_t seed) : model_(model), random_(seed) {
    pieces_ = pieces_of(model, random_);
    for (const auto& piece : pieces_) {
      rows_ += piece.rows;
      caches_.emplace_back(model, piece.earlier + piece.rows);
      partials_.emplace_back(model, piece.rows, caches_.back().pages().size());
    }
    batch_ = std::make_unique<Tokens>(model, rows_, seed + 1);
    const TestDevice device;
    store_earlier(device, seed + 2);
    device.run(&Device::store_kv, all_here(nullptr));
    draw();
  }

  /// Chooses anew which pages are elsewhere.
  void draw() {
    elsewhere_.clear();
    partials_.clear();
    for (std::size_t s = 0; s < pieces_.size(); ++s) {
      partials_.emplace_back(model_, pieces_[s].rows, caches_[s].pages().size());
      elsewhere_.emplace_back();
      for (std::size_t p = 0; p < caches_[s].pages().size(); ++p) {
        elsewhere_[s].push_back(random_() % 2 == 0);
      }
    }
  }

  [[nodiscard]] AttentionArgs all_here(float* out) {
    auto args = make_args(model_, *batch_, 0, out);
    std::int32_t row = 0;
    for (std::size_t s = 0; s < pieces_.size(); ++s) {
      const auto rows = static_cast<std::int32_t>(pieces_[s].rows);
      args.sequences.push_back(
          {row, rows, static_cast<std::int32_t>(pieces_[s].earlier), caches_[s].pages()});
      row += rows;
    }
    return args;
  }

  /// Without the pages that are elsewhere, but with places for their partial results.
  [[nodiscard]] AttentionArgs some_here(float* out) {
    auto args = all_here(out);
    for (std::size_t s = 0; s < pieces_.size(); ++s) {
      args.sequences[s].partials = partials_[s].pointers();
      for (std::size_t p = 0; p < elsewhere_[s].size(); ++p) {
        if (elsewhere_[s][p]) {
          args.sequences[s].pages[p] = nullptr;
        } else {
          args.sequences[s].partials[p] = nullptr;
        }
      }
    }
    return args;
  }

  /// The other pages, with the same places.
  [[nodiscard]] AttentionArgs others() {
    auto args = all_here(nullptr);
    args.key = args.value = nullptr;
    for (std::size_t s = 0; s < pieces_.size(); ++s) {
      args.sequences[s].partials = partials_[s].pointers();
      for (std::size_t p = 0; p < elsewhere_[s].size(); ++p) {
        if (!elsewhere_[s][p]) {
          args.sequences[s].pages[p] = nullptr;
        }
      }
    }
    return args;
  }

  [[nodiscard]] std::vector<float> output() const {
    return std::vector<float>(static_cast<std::size_t>(rows_ * model_.heads * model_.head_dim),
                              kNan);
  }
  [[nodiscard]] const Partials& partials(std::size_t sequence) const { return partials_[sequence]; }
  [[nodiscard]] bool elsewhere(std::size_t sequence, std::size_t page) const {
    return elsewhere_[sequence][page];
  }

 private:
  void store_earlier(const TestDevice& device, std::uint32_t seed) {
    for (std::size_t s = 0; s < pieces_.size(); ++s) {
      const auto count = pieces_[s].earlier;
      const Tokens tokens(model_, count, seed + static_cast<std::uint32_t>(s));
      auto args = make_args(model_, tokens, 0, nullptr);
      args.sequences = {{0, static_cast<std::int32_t>(count), 0, caches_[s].pages()}};
      device.run(&Device::store_kv, args);
    }
  }

  Model model_;
  std::mt19937 random_;
  std::vector<Piece> pieces_;
  std::int64_t rows_ = 0;
  std::vector<Cache> caches_;
  std::vector<Partials> partials_;
  std::vector<std::vector<bool>> elsewhere_;
  std::unique_ptr<Tokens> batch_;
};

class AttentionPartials : public testing::TestWithParam<Model> {};

TEST_P(AttentionPartials, AgreeWithScalarReference) {
  constexpr std::uint32_t kSeed = 7100;
  SCOPED_TRACE(fmt::format("{}, seed {}", GetParam().name(), kSeed));
  for (const auto& device : equal_devices()) {
    Scene scene(GetParam(), kSeed);
    const auto args = scene.others();
    device->run(&Device::attention_partials, args);
    for (std::size_t s = 0; s < args.sequences.size(); ++s) {
      const auto& sequence = args.sequences[s];
      for (std::size_t p = 0; p < sequence.pages.size(); ++p) {
        if (!scene.elsewhere(s, p)) {
          EXPECT_TRUE(scene.partials(s).untouched(p)) << s << ", " << p;
          continue;
        }
        const auto expected =
            reference_attention_partial(args, sequence, static_cast<std::int64_t>(p));
        ASSERT_EQ(scene.partials(s)[p].size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const float found = scene.partials(s)[p][i];
          if (std::isnan(expected[i])) {
            ASSERT_TRUE(std::isnan(found)) << "a row that does not see page " << p << ": " << i;
          } else {
            ASSERT_NEAR(found, expected[i], 1e-5 + 4e-6 * std::abs(expected[i]))
                << "sequence " << s << ", page " << p << ", element " << i;
          }
        }
      }
    }
  }
}

// Any mix of pages here and elsewhere, on devices of any kind, gives the bits of all pages here.
TEST_P(AttentionPartials, MergeIntoTheBitsOfPagesHere) {
  constexpr std::uint32_t kSeed = 4200;
  const auto devices = equal_devices();
  for (std::uint32_t seed = kSeed; seed < kSeed + 3; ++seed) {
    SCOPED_TRACE(fmt::format("{}, seed {}", GetParam().name(), seed));
    Scene scene(GetParam(), seed);
    auto expected = scene.output();
    devices.front()->run(&Device::attention, scene.all_here(expected.data()));
    for (const auto& here : devices) {
      for (const auto& there : devices) {
        scene.draw();
        there->run(&Device::attention_partials, scene.others());
        auto out = scene.output();
        here->run(&Device::attention, scene.some_here(out.data()));
        ASSERT_TRUE(same_bits(std::span<const float>(out), std::span<const float>(expected)))
            << (*here)->description() << " here, " << (*there)->description() << " there";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, AttentionPartials,
    testing::Values(
        Model{4, 4, 64, 16, KvType::f16}, Model{2, 2, 80, 32, KvType::f16},
        Model{6, 2, 20, 16, KvType::f16}, Model{8, 1, 128, 64, KvType::f16},
        Model{18, 9, 20, 64, KvType::f32}, Model{10, 10, 80, 16, KvType::f32},
        Model{4, 2, 33, 32, KvType::f32}, Model{3, 1, 48, 64, KvType::f16},
        Model{20, 20, 8, 32, KvType::f16}, Model{1, 1, 1, 1, KvType::f32},
        Model{4, 4, 64, 16, {KvType::int4, 64}}, Model{8, 1, 128, 64, {KvType::int4, 64}},
        Model{2, 2, 80, 32, {KvType::int4, 32}}, Model{18, 9, 40, 16, {KvType::int4, 128}},
        Model{10, 10, 80, 32, {KvType::int8, 64}}, Model{6, 2, 128, 16, {KvType::int8, 32}}));

// A sequence of one head of width 1, query 1, keys `scores` and values 0, 1, 2, ...; every page's
// partial result merged.
float merged_position(const TestDevice& device, const std::vector<float>& scores,
                      std::int64_t page_tokens) {
  const Model model{1, 1, 1, page_tokens, KvType::f32};
  const auto count = static_cast<std::int64_t>(scores.size());
  Cache cache(model, count);
  std::vector<float> value(scores.size());
  std::iota(value.begin(), value.end(), 0.0f);
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
  device.run(&Device::store_kv, args);
  auto& sequence = args.sequences.front();
  Partials partials(model, count, sequence.pages.size());
  sequence.partials = partials.pointers();
  device.run(&Device::attention_partials, args);
  std::fill(sequence.pages.begin(), sequence.pages.end(), nullptr);
  device.run(&Device::attention, args);
  return out.back();
}

TEST(AttentionPartialsOfOneHead, ExtremeScores) {
  for (const auto& device : equal_devices()) {
    const auto run = [&](const std::vector<float>& scores) {
      return merged_position(*device, scores, 4);
    };
    EXPECT_EQ(run({3e38f, 0, 0, 0, 0, 0, -3e38f}), 0.0f);
    EXPECT_EQ(run({-3e38f, 0, 0, 0, 0, 0, 3e38f}), 6.0f);
    EXPECT_EQ(run({-kInfinity, -kInfinity, -kInfinity, -kInfinity, 0, -kInfinity}), 4.0f);
    EXPECT_EQ(run({-kInfinity, 1, -kInfinity, -kInfinity, -kInfinity, -kInfinity}), 1.0f);
    EXPECT_TRUE(std::isnan(run({-kInfinity, -kInfinity})));
    EXPECT_TRUE(std::isnan(run({0, kInfinity, 0, 0, 0})));
    EXPECT_TRUE(std::isnan(run({NAN, 1, 0, 0, 0})));
  }
}

// Two devices, each with its own pages, store what one with all pages stores.
TEST(StoreKv, SkipsRowsWhosePageIsNull) {
  const Model model{4, 2, 20, 16, KvType::f16};
  const Tokens tokens(model, 50, 3);
  Cache whole(model, 70);
  Cache split(model, 70);
  const TestDevice device("auto", 2);
  auto args = make_args(model, tokens, 0, nullptr);
  args.sequences = {{0, 50, 20, whole.pages()}};
  device.run(&Device::store_kv, args);
  for (const std::size_t first : {0, 1}) {
    args.sequences = {{0, 50, 20, split.pages()}};
    for (std::size_t p = first; p < args.sequences[0].pages.size(); p += 2) {
      args.sequences[0].pages[p] = nullptr;
    }
    device.run(&Device::store_kv, args);
  }
  EXPECT_EQ(whole.contents(), split.contents());
}

TEST(AttentionReach, IsChecked) {
  const TestDevice device;
  const Model model;
  const Tokens tokens(model, 40, 1);
  Cache cache(model, 64);
  std::vector<float> out(static_cast<std::size_t>(40 * model.heads * model.head_dim));
  auto args = make_args(model, tokens, 0, out.data());
  args.sequences = {{0, 40, 0, cache.pages()}};
  device.run(&Device::store_kv, args);
  auto& sequence = args.sequences.front();

  sequence.pages[3] = nullptr;  // seen by no row
  device.run(&Device::attention, args);
  sequence.pages[1] = nullptr;
  EXPECT_THROW(device->attention(device.stream(), args), InternalError);
  Partials partials(model, 40, 4);
  sequence.partials = partials.pointers();
  device->attention(device.stream(), args);
  sequence.partials[1] = nullptr;
  EXPECT_THROW(device->attention(device.stream(), args), InternalError);
  sequence.num_rows = 0;  // sees nothing
  device->attention(device.stream(), args);

  sequence.num_rows = 40;
  sequence.partials = partials.pointers();
  sequence.partials.pop_back();
  EXPECT_THROW(device->attention(device.stream(), args), InternalError);
  EXPECT_THROW(device->attention_partials(device.stream(), args), InternalError);
  device.stream().record().wait();
}

}  // namespace
}  // namespace stagecoach::test
