#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/scalar_reference.hpp"
#include "unit/device/attention_cases.hpp"

namespace stagecoach::test {
namespace {

using Model = AttentionModel;
using device::AttentionSelection;
using device::Device;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Model> models() {
  return {{4, 4, 64, 16, KvType::f16},         {6, 2, 100, 16, KvType::f16},
          {3, 3, 8, 5, KvType::f32},           {8, 1, 128, 64, KvType::f16},
          {4, 4, 64, 16, {KvType::int4, 64}},  {6, 2, 80, 16, {KvType::int4, 32}},
          {2, 2, 128, 32, {KvType::int8, 64}}, {2, 1, 40, 16, {KvType::int4, 128}}};
}

std::vector<float> output(const Model& model, std::int64_t rows) {
  return std::vector<float>(static_cast<std::size_t>(rows * model.heads * model.head_dim), kNan);
}

bool equal(const std::vector<float>& a, const std::vector<float>& b) {
  return same_bits(std::span<const float>(a), std::span<const float>(b));
}

/// A sequence of which `earlier` tokens are in the pages, and `rows` more that are stored and
/// attend.
class Scene {
 public:
  Scene(const Model& model, std::int64_t earlier, std::int64_t rows, unsigned seed)
      : model_(model),
        earlier_(earlier),
        rows_(rows),
        tokens_(model, earlier + rows, seed),
        cache_(model, earlier + rows) {
    auto all = make_args(model, tokens_, 0, nullptr);
    all.sequences = {{0, static_cast<std::int32_t>(earlier + rows), 0, cache_.pages()}};
    TestDevice().run(&Device::store_kv, all);
  }

  [[nodiscard]] AttentionArgs args(double sparsity, float* out) {
    auto args = make_args(model_, tokens_, earlier_, out);
    args.sparsity = sparsity;
    args.sequences = {
        {0, static_cast<std::int32_t>(rows_), static_cast<std::int32_t>(earlier_), cache_.pages()}};
    args.sequences.front().sparse = true;
    return args;
  }

  [[nodiscard]] std::vector<float> attend(const TestDevice& device, double sparsity) {
    auto out = output(model_, rows_);
    device.run(&Device::attention, args(sparsity, out.data()));
    return out;
  }

  [[nodiscard]] std::vector<float> attend_densely(const TestDevice& device) {
    auto out = output(model_, rows_);
    auto dense = args(1, out.data());
    dense.sequences.front().sparse = false;
    device.run(&Device::attention, dense);
    return out;
  }

 private:
  Model model_;
  std::int64_t earlier_;
  std::int64_t rows_;
  Tokens tokens_;
  Cache cache_;
};

TEST(SparseAttention, AgreesWithScalarReference) {
  for (const auto& device : equal_devices()) {
    for (const auto& model : models()) {
      for (const double sparsity : {0.1, 0.35, 1.0}) {
        Scene decoded(model, 117, 1, 21);
        Scene continued(model, 39, 7, 22);
        Scene prompt(model, 0, 20, 23);
        for (auto* scene : {&decoded, &continued, &prompt}) {
          const auto out = scene->attend(*device, sparsity);
          const auto expected = reference_attention(scene->args(sparsity, nullptr));
          ASSERT_EQ(out.size(), expected.size());
          for (std::size_t i = 0; i < out.size(); ++i) {
            ASSERT_NEAR(out[i], expected[i], 4e-6)
                << model.name() << ", sparsity " << sparsity << ", element " << i;
          }
        }
      }
    }
  }
}

TEST(SparseAttention, GivesDenseBitsWhereAllIsKept) {
  for (const auto& device : equal_devices()) {
    for (const auto& model : models()) {
      Scene decoded(model, 117, 1, 31);
      EXPECT_TRUE(equal(decoded.attend(*device, 1), decoded.attend_densely(*device)));
      Scene prompt(model, 10, 60, 32);
      EXPECT_TRUE(equal(prompt.attend(*device, 1), prompt.attend_densely(*device)));
    }
  }
}

TEST(SparseAttention, KeepsFewerValues) {
  const TestDevice device;
  Scene decoded(models().front(), 117, 1, 33);
  EXPECT_FALSE(equal(decoded.attend(device, 0.5), decoded.attend_densely(device)));
}

TEST(SparseAttention, BitsDoNotDependOnPiecesThreadsOrRegisterWidth) {
  const auto devices = equal_devices();
  for (const auto& model : models()) {
    constexpr std::int64_t kRows = 50;
    const auto width = static_cast<std::size_t>(model.heads * model.head_dim);
    Scene whole(model, 30, kRows, 41);
    const auto expected = whole.attend(*devices.front(), 0.2);
    for (const auto& device : devices) {
      EXPECT_TRUE(equal(whole.attend(*device, 0.2), expected)) << model.name();
      for (const std::int64_t row : {0, 17, 49}) {
        std::vector<float> out(width);
        auto args = whole.args(0.2, out.data());
        args.query += row * args.row_stride;
        args.sequences.front().first_position += static_cast<std::int32_t>(row);
        args.sequences.front().num_rows = 1;
        device->run(&Device::attention, args);
        EXPECT_TRUE(same_bits(
            std::span<const float>(out),
            std::span<const float>(expected).subspan(static_cast<std::size_t>(row) * width, width)))
            << model.name() << ", row " << row << ", " << (*device)->description();
      }
    }
  }
}

/// The scores and the selection of a scene's only row, and its pages in two places.
class Split {
 public:
  Split(const Model& model, const AttentionArgs& all, unsigned seed)
      : all_(all),
        scores_(static_cast<std::size_t>(model.heads * model.page_tokens) * num_pages(), kNan),
        selection_(static_cast<std::size_t>(model.heads)),
        partials_(num_pages(),
                  std::vector<float>(static_cast<std::size_t>(
                      device::attention_partial_floats(1, model.heads, model.head_dim)))) {
    all_.sequences.front().scores = scores_.data();
    all_.sequences.front().selection = selection_.data();
    std::mt19937 random(seed);
    for (std::size_t page = 0; page < num_pages(); ++page) {
      elsewhere_.push_back(random() % 2 == 0);
    }
  }

  /// The pages of one place; those of the other one have places for partial results.
  [[nodiscard]] AttentionArgs here(bool elsewhere) {
    auto args = all_;
    auto& sequence = args.sequences.front();
    for (std::size_t page = 0; page < num_pages(); ++page) {
      sequence.partials.push_back(elsewhere_[page] ? partials_[page].data() : nullptr);
      if (elsewhere_[page] != elsewhere) {
        sequence.pages[page] = nullptr;
      }
    }
    return args;
  }
  [[nodiscard]] const AttentionArgs& everywhere() const { return all_; }
  [[nodiscard]] std::vector<float>& scores() { return scores_; }
  [[nodiscard]] const std::vector<AttentionSelection>& selection() const { return selection_; }

 private:
  [[nodiscard]] std::size_t num_pages() const { return all_.sequences.front().pages.size(); }

  AttentionArgs all_;
  std::vector<float> scores_;
  std::vector<AttentionSelection> selection_;
  std::vector<std::vector<float>> partials_;
  std::vector<bool> elsewhere_;
};

// Scores, partial results and merging on whatever devices have the pages give the bits of one
// device with all pages.
TEST(SparseAttention, PagesInTwoPlacesGiveTheBitsOfAllPagesHere) {
  const auto devices = equal_devices();
  for (const auto& model : models()) {
    for (const std::int64_t earlier : {117, 47, 1, 0}) {
      Scene scene(model, earlier, 1, 51);
      const auto expected = scene.attend(*devices.front(), 0.25);
      for (unsigned seed = 0; seed < devices.size(); ++seed) {
        const auto& here = *devices[seed];
        const auto& there = *devices[devices.size() - 1 - seed];
        auto out = output(model, 1);
        Split split(model, scene.args(0.25, out.data()), seed);
        there.run(&Device::attention_scores, split.here(true));
        here.run(&Device::attention_scores, split.here(false));
        here.run(&Device::select_top, split.here(false));
        there.run(&Device::attention_partials, split.here(true));
        here.run(&Device::attention, split.here(false));
        ASSERT_TRUE(equal(out, expected)) << model.name() << ", " << earlier << " earlier";
      }
    }
  }
}

TEST(SparseAttention, ScoresAreThoseOfTheReference) {
  for (const auto& device : equal_devices()) {
    for (const auto& model : models()) {
      Scene scene(model, 70, 1, 55);
      Split split(model, scene.args(1, nullptr), 1);
      device->run(&Device::attention_scores, split.everywhere());
      const auto& args = split.everywhere();
      const auto stride = split.scores().size() / static_cast<std::size_t>(model.heads);
      for (std::size_t page = 0; page < args.sequences.front().pages.size(); ++page) {
        const auto expected = reference_attention_partial(args, args.sequences.front(),
                                                          static_cast<std::int64_t>(page));
        for (std::size_t head = 0; head < static_cast<std::size_t>(model.heads); ++head) {
          const auto first = page * static_cast<std::size_t>(model.page_tokens);
          const auto end =
              std::min<std::size_t>(first + static_cast<std::size_t>(model.page_tokens), 71);
          const auto* row = split.scores().data() + head * stride;
          const float max = *std::max_element(row + first, row + end);
          double weight = 0;
          for (auto p = first; p < end; ++p) {
            weight += std::exp(static_cast<double>(row[p]) - max);
          }
          const auto at = head * static_cast<std::size_t>(model.head_dim + 2);
          ASSERT_NEAR(max, expected[at], 1e-5);
          ASSERT_NEAR(weight, expected[at + 1], 1e-5 * expected[at + 1]);
        }
        if (page + 1 == args.sequences.front().pages.size() && 71 % model.page_tokens != 0) {
          ASSERT_TRUE(std::isnan(split.scores()[71])) << "a score of nothing";
        }
      }
    }
  }
}

/// Pages that hold nothing but K and V of the newest token, and what is scattered into them.
struct Empty {
  Empty(const Model& model, const AttentionArgs& full)
      : cache(model, full.sequences.front().first_position + 1), args(full) {
    args.sequences.front().pages = cache.pages();
  }
  Cache cache;
  AttentionArgs args;
};

// Gathered in two places, scattered into pages where all else is NaN: the selected values and the
// newest one are all that the second half of attention reads.
TEST(SparseAttention, GatheredValuesAreAllThatIsNeeded) {
  for (const auto& device : equal_devices()) {
    for (const auto& model : models()) {
      for (const std::int64_t earlier : {117, 3, 0}) {
        Scene scene(model, earlier, 1, 61);
        const auto expected = scene.attend(*device, 0.25);
        auto out = output(model, 1);
        Split split(model, scene.args(0.25, out.data()), 7);
        device->run(&Device::attention_scores, split.everywhere());
        device->run(&Device::select_top, split.everywhere());
        Empty empty(model, split.everywhere());
        device->run(&Device::store_kv, empty.args);
        const auto group = model.heads / model.kv_heads;
        const auto records = device::value_records(0.25, earlier, group);
        const auto size = device::value_record_bytes(model.type, model.head_dim);
        for (const bool elsewhere : {false, true}) {
          std::vector<std::byte> values(static_cast<std::size_t>(model.kv_heads * records * size),
                                        std::byte{0x5a});
          auto from = split.here(elsewhere);
          from.sequences.front().values = values.data();
          device->run(&Device::gather_values, from);
          for (std::int64_t head = 0; head < model.kv_heads; ++head) {
            std::int32_t before = -1;
            for (std::int64_t i = 0; i < records; ++i) {
              std::int32_t position = 0;
              std::memcpy(&position, values.data() + (head * records + i) * size, 4);
              if (position == -1) {
                break;
              }
              ASSERT_GT(position, before);
              ASSERT_LT(position, earlier);
              before = position;
            }
          }
          empty.args.sequences.front().values = values.data();
          device->run(&Device::scatter_values, empty.args);
        }
        empty.args.sequences.front().values = nullptr;
        device->run(&Device::attention, empty.args);
        ASSERT_TRUE(equal(out, expected)) << model.name() << ", " << earlier << " earlier";
      }
    }
  }
}

TEST(SparseAttention, ScatterSkipsPagesThatAreElsewhere) {
  const TestDevice device;
  const Model model = models().front();
  Scene scene(model, 60, 1, 63);
  Split split(model, scene.args(0.5, nullptr), 7);
  device.run(&Device::attention_scores, split.everywhere());
  device.run(&Device::select_top, split.everywhere());
  std::vector<std::byte> values(static_cast<std::size_t>(
      model.kv_heads * 30 * device::value_record_bytes(model.type, model.head_dim)));
  auto args = split.everywhere();
  args.sequences.front().values = values.data();
  device.run(&Device::gather_values, args);
  Empty empty(model, args);
  const auto before = empty.cache.contents();
  empty.args.sequences.front().pages[1] = nullptr;
  device.run(&Device::scatter_values, empty.args);
  EXPECT_NE(empty.cache.contents()[0], before[0]);
  EXPECT_EQ(empty.cache.contents()[1], before[1]);
  EXPECT_NE(empty.cache.contents()[2], before[2]);
}

// Which of `scores` are selected when `kept` are to be.
std::vector<std::int64_t> select(const TestDevice& device, std::vector<float> scores,
                                 std::int64_t kept) {
  const auto count = static_cast<std::int64_t>(scores.size());
  AttentionSelection selection;
  AttentionArgs args;
  args.heads = args.kv_heads = args.head_dim = 1;
  args.page_tokens = 16;
  args.sparsity = static_cast<double>(std::max<std::int64_t>(kept, 1)) /
                  static_cast<double>(std::max<std::int64_t>(count, 1));
  args.sequences = {{0, 1, static_cast<std::int32_t>(count),
                     std::vector<std::byte*>(static_cast<std::size_t>(count / 16 + 1))}};
  auto row = scores;
  row.push_back(kInfinity);  // the newest position is no candidate
  args.sequences.front().sparse = true;
  args.sequences.front().scores = row.data();
  args.sequences.front().selection = &selection;
  EXPECT_EQ(device::kept_positions(args.sparsity, count), kept);
  device.run(&Device::select_top, args);
  std::vector<std::int64_t> selected;
  for (std::int64_t p = 0; p < count; ++p) {
    const float score = scores[static_cast<std::size_t>(p)];
    if (score > selection.threshold ||
        (score == selection.threshold && p <= selection.last_equal)) {
      selected.push_back(p);
    }
  }
  return selected;
}

std::vector<std::int64_t> sorted_top(const std::vector<float>& scores, std::int64_t kept) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(kept));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(SelectTop, AgreesWithASort) {
  std::mt19937 random(71);
  const std::vector<float> few = {0.0f, -0.0f, 1.0f, -1.0f, kInfinity, -kInfinity, 1e-42f, -1e-42f};
  for (const auto& device : equal_devices()) {
    for (const std::int64_t count : {1, 2, 15, 16, 17, 33, 70, 300}) {
      const auto distinct = random_floats(count, static_cast<unsigned>(count));
      std::vector<float> tied;
      std::vector<float> alike(static_cast<std::size_t>(count), -2.5f);
      for (std::int64_t i = 0; i < count; ++i) {
        tied.push_back(few[random() % few.size()]);
      }
      for (std::int64_t kept = 1; kept <= count; kept += 1 + count / 20) {
        ASSERT_EQ(select(*device, distinct, kept), sorted_top(distinct, kept)) << kept;
        ASSERT_EQ(select(*device, tied, kept), sorted_top(tied, kept)) << kept;
        ASSERT_EQ(select(*device, alike, kept), sorted_top(alike, kept)) << kept;
      }
    }
    EXPECT_TRUE(select(*device, {}, 0).empty());
  }
}

TEST(SelectTop, EndsWithNanAmongTheScores) {
  const TestDevice device;
  for (std::int64_t kept = 1; kept <= 40; kept += 3) {
    auto scores = random_floats(40, 73);
    scores[7] = kNan;
    scores[30] = -kNan;
    EXPECT_LE(select(device, scores, kept).size(), 40U);
  }
}

// All scores alike: the earlier positions are kept, and their weights are those among all.
TEST(SparseAttention, KeepsTheEarlierOfEqualScores) {
  const Model model{1, 1, 1, 16, KvType::f32};
  for (const auto& device : equal_devices()) {
    const std::vector<float> ones(41, 1.0f);
    std::vector<float> value(41);
    std::iota(value.begin(), value.end(), 0.0f);
    std::vector<float> out(41);
    Cache cache(model, 41);
    AttentionArgs args;
    args.query = args.key = ones.data();
    args.value = value.data();
    args.row_stride = 1;
    args.out = out.data();
    args.heads = args.kv_heads = args.head_dim = 1;
    args.page_tokens = 16;
    args.kv_format = KvType::f32;
    args.sparsity = 0.5;
    args.sequences = {{0, 41, 0, cache.pages()}};
    args.sequences.front().sparse = true;
    device->run(&Device::store_kv, args);
    device->run(&Device::attention, args);
    EXPECT_NEAR(out[40], (190.0 + 40.0) / 41, 1e-5);  // 0 to 19, and itself
    EXPECT_NEAR(out[5], (0.0 + 1.0 + 2.0 + 5.0) / 6, 1e-6);
  }
}

TEST(SparseAttention, NanInAKeyMakesTheResultNan) {
  const Model model{1, 1, 16, 16, KvType::f16};
  for (const auto& device : equal_devices()) {
    Scene scene(model, 40, 1, 81);
    auto out = output(model, 1);
    const auto args = scene.args(0.1, out.data());
    reinterpret_cast<Half*>(args.sequences.front().pages[1])[5 * 16].bits = 0x7e00;
    device->run(&Device::attention, args);
    EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return std::isnan(x); }));
  }
}

TEST(SparseAttention, RefusesWhatDoesNotFit) {
  const TestDevice device;
  const Model model = models().front();
  Scene scene(model, 40, 1, 91);
  auto out = output(model, 1);
  Split split(model, scene.args(0.5, out.data()), 3);
  auto& stream = device.stream();
  const auto refused = [&](auto change, void (Device::*operation)(device::Stream&, AttentionArgs)) {
    auto args = split.everywhere();
    change(args, args.sequences.front());
    EXPECT_THROW(((*device).*operation)(stream, args), InternalError);
  };
  using Row = device::SequenceRows;
  using Args = AttentionArgs;
  refused([](Args& args, Row&) { args.sparsity = 0; }, &Device::attention);
  refused([](Args& args, Row&) { args.sparsity = 1.5; }, &Device::attention);
  refused([](Args&, Row& row) { row.num_rows = 2, row.first_position = 39; }, &Device::attention);
  refused([](Args&, Row& row) { row.sparse = false; }, &Device::attention);
  refused([](Args&, Row& row) { row.scores = nullptr; }, &Device::attention);
  refused([](Args&, Row& row) { row.selection = nullptr; }, &Device::attention);
  refused([](Args&, Row& row) { row.selection = nullptr; }, &Device::select_top);
  refused(
      [&](Args&, Row& row) {
        row.scores = nullptr, row.selection = nullptr;
        row.partials.assign(row.pages.size(), out.data());
      },
      &Device::attention_partials);
  refused(
      [&](Args&, Row& row) {
        row.scores = nullptr, row.selection = nullptr;
        row.partials.assign(row.pages.size(), out.data());
        row.pages[0] = nullptr;
      },
      &Device::attention);
  refused(
      [](Args&, Row& row) {
        row.scores = nullptr, row.selection = nullptr;
        row.values = reinterpret_cast<std::byte*>(&row);
      },
      &Device::gather_values);
  refused(
      [](Args&, Row& row) {
        row.first_position = 4096;
        row.pages.resize(300);
      },
      &Device::attention_scores);
}

}  // namespace
}  // namespace stagecoach::test
