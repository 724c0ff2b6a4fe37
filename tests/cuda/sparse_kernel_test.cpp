#include <cstring>
#include <numeric>
#include <random>

#include "cuda/attention_case.hpp"
#include "support/scalar_reference.hpp"

namespace stagecoach::test {
namespace {

using device::AttentionSelection;
using device::Device;
using device::cuda::attention;
using device::cuda::attention_partials;
using device::cuda::attention_scores;
using device::cuda::gather_values;
using device::cuda::scatter_values;
using device::cuda::select_top;

constexpr double kTolerance = 4e-6;

std::vector<AttentionModel> sparse_models() {
  return {{4, 4, 64, 16, KvType::f16},         {6, 2, 100, 16, KvType::f16},
          {3, 3, 8, 5, KvType::f32},           {8, 1, 128, 64, KvType::f16},
          {4, 2, 33, 5, KvType::f16},          {4, 4, 64, 16, {KvType::int4, 64}},
          {6, 2, 80, 16, {KvType::int4, 32}},  {2, 2, 128, 32, {KvType::int8, 64}},
          {2, 1, 40, 16, {KvType::int4, 128}}, {10, 1, 20, 16, KvType::f16}};
}

// A row that selects for itself: decoded tokens, rows that continue, a prompt; beside them a
// sequence that is not sparse.
TEST(CudaSparseAttention, AgreesWithScalarReference) {
  for (const auto& model : sparse_models()) {
    for (const double sparsity : {0.1, 0.35, 1.0}) {
      BatchScene scene(model, {{117, 1}, {39, 7}, {50, 1}, {0, 12}, {400, 1}}, 21);
      AttentionCase gpu;
      auto host = scene.args();
      host.sparsity = sparsity;
      for (const std::size_t s : {0U, 1U, 3U, 4U}) {
        host.sequences[s].sparse = true;
      }
      expect_attention(gpu, gpu.copy_args(model, scene.tokens(), host), reference_attention(host),
                       kTolerance, fmt::format("{}, sparsity {}", model.name(), sparsity));
    }
  }
}

std::vector<AttentionSelection> select_on_host(std::vector<float> scores, std::int64_t heads,
                                               std::int64_t earlier, double sparsity,
                                               const AttentionArgs& shape) {
  std::vector<AttentionSelection> selection(static_cast<std::size_t>(heads));
  auto args = shape;
  args.sparsity = sparsity;
  auto& sequence = args.sequences.front();
  sequence.first_position = static_cast<std::int32_t>(earlier);
  sequence.scores = scores.data();
  sequence.selection = selection.data();
  TestDevice().run(&Device::select_top, args);
  return selection;
}

AttentionArgs selection_args(std::int64_t heads, std::int64_t positions) {
  AttentionArgs args;
  args.heads = heads;
  args.kv_heads = 1;
  args.head_dim = 1;
  args.page_tokens = 16;
  device::SequenceRows sequence;
  sequence.num_rows = 1;
  sequence.pages.resize(static_cast<std::size_t>(positions / 16 + 1));
  sequence.sparse = true;
  args.sequences = {sequence};
  return args;
}

bool same_selection(const std::vector<AttentionSelection>& a,
                    const std::vector<AttentionSelection>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(AttentionSelection)) == 0;
}

// Thresholds and last positions are the host's, bit for bit: distinct scores, many alike, zeros of
// both signs, infinities, NaN.
TEST(CudaSelectTop, GivesTheBitsOfTheHost) {
  const std::vector<float> few = {0.0f,       -0.0f,  1.0f,    -1.0f, kInfinity,
                                  -kInfinity, 1e-42f, -1e-42f, kNan,  -kNan};
  std::mt19937 random(71);
  for (const std::int64_t earlier : {0, 1, 2, 15, 16, 31, 255, 256, 257, 700, 1300}) {
    constexpr std::int64_t kHeads = 5;
    auto shape = selection_args(kHeads, earlier);
    const auto stride = static_cast<std::int64_t>(shape.sequences[0].pages.size()) * 16;
    auto scores = random_floats(kHeads * stride, static_cast<unsigned>(earlier));
    for (std::int64_t i = 0; i < stride; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto wide = static_cast<std::size_t>(stride);
      scores[wide + at] = few[random() % few.size()];
      scores[2 * wide + at] = -2.5f;
      scores[3 * wide + at] = few[random() % 4];
      scores[4 * wide + at] = 1.0f + static_cast<float>(random() % 3) * 0x1p-23f;
    }
    for (const double sparsity : {0.001, 0.1, 0.5, 0.93, 1.0}) {
      AttentionCase gpu;
      auto args = shape;
      args.sparsity = sparsity;
      auto& sequence = args.sequences.front();
      sequence.first_position = static_cast<std::int32_t>(earlier);
      sequence.scores = gpu.put(scores);
      sequence.selection = gpu.take<AttentionSelection>(kHeads);
      gpu.run(select_top, args);
      ASSERT_TRUE(same_selection(gpu.get(sequence.selection, kHeads),
                                 select_on_host(scores, kHeads, earlier, sparsity, shape)))
          << earlier << " earlier, sparsity " << sparsity;
    }
  }
}

/// A sparse row whose pages lie in two places: every third one is elsewhere. Scores and selection
/// are the host's.
class Split {
 public:
  Split(const AttentionModel& model, std::int64_t earlier, double sparsity)
      : model_(model), scene_(model, {{earlier, 1}}, 91) {
    host_ = scene_.args();
    host_.sparsity = sparsity;
    auto& sequence = host_.sequences.front();
    sequence.sparse = true;
    expected_ = reference_attention(host_);
    scores_.assign(static_cast<std::size_t>(model.heads * stride()), kNan);
    selection_.resize(static_cast<std::size_t>(model.heads));
    sequence.scores = scores_.data();
    sequence.selection = selection_.data();
    const TestDevice device;
    device.run(&Device::attention_scores, host_);
    device.run(&Device::select_top, host_);
  }

  [[nodiscard]] static bool elsewhere(std::size_t page) { return page % 3 == 1; }
  [[nodiscard]] std::int64_t stride() const {
    return static_cast<std::int64_t>(host_.sequences[0].pages.size()) * model_.page_tokens;
  }
  [[nodiscard]] const AttentionArgs& host() const { return host_; }
  [[nodiscard]] const std::vector<float>& scores() const { return scores_; }
  [[nodiscard]] const std::vector<double>& expected() const { return expected_; }

  /// On the GPU with all pages, scores and selection.
  [[nodiscard]] AttentionArgs on(AttentionCase& gpu) const {
    auto args = gpu.copy_args(model_, scene_.tokens(), host_);
    args.sequences.front().scores = gpu.put(scores_);
    args.sequences.front().selection = gpu.put(selection_);
    return args;
  }
  /// Without the pages that are elsewhere, or with these alone.
  [[nodiscard]] static AttentionArgs part(AttentionArgs args, bool with_elsewhere) {
    auto& pages = args.sequences.front().pages;
    for (std::size_t p = 0; p < pages.size(); ++p) {
      pages[p] = elsewhere(p) == with_elsewhere ? pages[p] : nullptr;
    }
    return args;
  }

 private:
  AttentionModel model_;
  BatchScene scene_;
  AttentionArgs host_;
  std::vector<float> scores_;
  std::vector<AttentionSelection> selection_;
  std::vector<double> expected_;
};

TEST(CudaSparseAttention, ScoresAreThoseOfPagesHere) {
  for (const auto& model : sparse_models()) {
    const Split split(model, 317, 0.25);
    AttentionCase gpu;
    auto args = Split::part(split.on(gpu), false);
    auto& sequence = args.sequences.front();
    sequence.scores = gpu.take<float>(split.scores().size());
    gpu.run(attention_scores, args);
    const auto scores = gpu.get(sequence.scores, split.scores().size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto position = static_cast<std::int64_t>(i) % split.stride();
      if (position > 317 ||
          Split::elsewhere(static_cast<std::size_t>(position / model.page_tokens))) {
        ASSERT_TRUE(std::isnan(scores[i])) << model.name() << ", position " << position;
      } else {
        ASSERT_NEAR(scores[i], split.scores()[i], kTolerance) << model.name() << " " << position;
      }
    }
  }
}

// What was selected elsewhere is obeyed; pages elsewhere bring their partial results.
TEST(CudaSparseAttention, ObeysAGivenSelection) {
  for (const auto& model : sparse_models()) {
    for (const std::int64_t earlier : {0, 1, 47, 317}) {
      const Split split(model, earlier, 0.25);
      AttentionCase gpu;
      auto all = split.on(gpu);
      expect_attention(gpu, all, split.expected(), kTolerance, model.name());
      const auto size = static_cast<std::size_t>(
          device::attention_partial_floats(1, model.heads, model.head_dim));
      auto& partials = all.sequences.front().partials;
      for (std::size_t p = 0; p < all.sequences.front().pages.size(); ++p) {
        partials.push_back(Split::elsewhere(p) ? gpu.take<float>(size) : nullptr);
      }
      gpu.run(attention_partials, Split::part(all, true));
      for (std::size_t p = 0; p < partials.size(); ++p) {
        if (partials[p] == nullptr) {
          continue;
        }
        auto host = split.host();
        const auto expected =
            reference_attention_partial(host, host.sequences.front(), static_cast<std::int64_t>(p));
        const auto part = gpu.get(partials[p], size);
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_NEAR(part[i], expected[i], kTolerance * std::max(1.0, std::abs(expected[i])))
              << model.name() << ", page " << p << ", element " << i;
        }
      }
      expect_attention(gpu, Split::part(all, false), split.expected(), kTolerance, model.name());
    }
  }
}

// The records of pages here are the host's, byte for byte, and lead back into pages.
TEST(CudaSparseAttention, ValuesTravelAsOnTheHost) {
  for (const auto& model : sparse_models()) {
    for (const std::int64_t earlier : {0, 1, 47, 617}) {
      const Split split(model, earlier, 0.3);
      const auto record = device::value_record_bytes(model.type, model.head_dim);
      const auto size = static_cast<std::size_t>(
          model.kv_heads * device::value_records(0.3, earlier, model.heads / model.kv_heads) *
          record);
      // Nothing that looks like the end.
      const std::vector<std::byte> unwritten(size + 4, std::byte{0x11});
      auto expected = unwritten;
      auto host = Split::part(split.host(), true);
      host.sequences.front().values = expected.data();
      TestDevice().run(&Device::gather_values, host);

      AttentionCase gpu;
      auto args = Split::part(split.on(gpu), true);
      args.sequences.front().values = gpu.put(unwritten);
      gpu.run(gather_values, args);
      ASSERT_TRUE(gpu.get(args.sequences.front().values, size + 4) == expected) << model.name();

      // Into empty pages, some of which are not there.
      const Cache empty_cache(model, earlier + 1);
      auto filled = empty_cache.contents();
      auto to = args;
      for (std::size_t p = 0; p < filled.size(); ++p) {
        const bool here = p % 2 == 0;
        host.sequences.front().pages[p] = here ? filled[p].data() : nullptr;
        to.sequences.front().pages[p] = here ? gpu.take<std::byte>(filled[p].size()) : nullptr;
      }
      TestDevice().run(&Device::scatter_values, host);
      gpu.run(scatter_values, to);
      for (std::size_t p = 0; p < filled.size(); p += 2) {
        ASSERT_TRUE(gpu.get(to.sequences.front().pages[p], filled[p].size()) == filled[p])
            << model.name() << ", page " << p;
      }
    }
  }
}

// Values that are not kept need not be there.
TEST(CudaSparseAttention, DoesNotReadWhatIsNotKept) {
  const AttentionModel model{4, 2, 64, 16, KvType::f32};
  const Split split(model, 317, 0.1);
  AttentionCase gpu;
  auto args = split.on(gpu);
  auto& sequence = args.sequences.front();
  sequence.values = gpu.take<std::byte>(
      static_cast<std::size_t>(model.kv_heads * device::value_records(0.1, 317, 2) *
                               device::value_record_bytes(model.type, model.head_dim)));
  gpu.run(gather_values, args);
  auto bare = args;
  const auto half = model.page_bytes() / 2;
  for (std::size_t p = 0; p + 1 < bare.sequences[0].pages.size(); ++p) {
    auto page = gpu.get(sequence.pages[p], model.page_bytes());
    std::fill(page.begin() + static_cast<std::ptrdiff_t>(half), page.end(), std::byte{0xff});
    bare.sequences[0].pages[p] = gpu.put(page);
  }
  gpu.run(scatter_values, bare);
  expect_attention(gpu, bare, split.expected(), kTolerance, "only kept values");
}

TEST(CudaSparseAttention, NanInAKeyMakesTheResultNan) {
  const AttentionModel model{1, 1, 16, 16, KvType::f16};
  BatchScene scene(model, {{40, 1}}, 81);
  auto host = scene.args();
  host.sparsity = 0.1;
  host.sequences.front().sparse = true;
  reinterpret_cast<Half*>(host.sequences.front().pages[1])[5 * 16].bits = 0x7e00;
  AttentionCase gpu;
  auto args = gpu.copy_args(model, scene.tokens(), host);
  args.out = gpu.take<float>(scene.out_size());
  gpu.run(attention, args);
  const auto out = gpu.get(args.out, scene.out_size());
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return std::isnan(x); }));
}

}  // namespace
}  // namespace stagecoach::test
