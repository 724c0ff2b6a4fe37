#include "offload/stage_weights.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "base/abort_signal.hpp"
#include "base/error.hpp"
#include "device/host/host_device.hpp"
#include "model/dummy_weights.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::offload {
namespace {

model::ModelSpec spec_of(bool tied) {
  model::ModelSpec spec;
  spec.layers = 3;
  spec.hidden = 64;
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = 16;
  spec.ffn = 100;
  spec.vocab = 70000;  // the token table is longer than one piece of reading
  spec.max_positions = 32;
  spec.position_offset = 2;
  spec.tied_head = tied;
  return spec;
}

/// Remembers which tensors were asked for.
class Watched final : public WeightSource {
 public:
  void read(const std::string& group, const model::TensorSpec& tensor, std::uint64_t first_byte,
            std::span<std::byte> out) const override {
    if (tensor.name == fail_on) {
      throw IoError("cannot read " + tensor.name);
    }
    dummy_->read(group, tensor, first_byte, out);
    const std::lock_guard lock(mutex_);
    seen_.insert(group + "/" + tensor.name);
  }

  std::string fail_on;
  [[nodiscard]] std::set<std::string> seen() const { return seen_; }

 private:
  std::unique_ptr<WeightSource> dummy_ = make_dummy_source(7);
  mutable std::mutex mutex_;
  mutable std::set<std::string> seen_;
};

void expect_tensor(const Half* values, const std::string& group, const model::TensorSpec& tensor) {
  std::vector<Half> expected(static_cast<std::size_t>(tensor.elements()));
  model::fill_dummy(7, group, tensor, 0, expected);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), values)) << group << "/" << tensor.name;
}

class StageWeightsTest : public ::testing::Test {
 protected:
  StageWeights load(const model::ModelSpec& spec, const StageContents& contents, int threads) {
    return {spec, contents, source_, *device_, threads, nullptr};
  }

  AbortSignal abort_;
  std::unique_ptr<device::Device> device_ = device::make_host_device({}, abort_);
  Watched source_;
};

TEST_F(StageWeightsTest, LoadsEveryTensorToItsPlace) {
  const auto spec = spec_of(true);
  const StageContents all{.first_layer = 0, .layers = 3, .embedding = true, .head = true};
  for (const int threads : {1, 4}) {
    const auto weights = load(spec, all, threads);
    const auto embedding = model::embedding_tensors(spec);
    expect_tensor(weights.token_table(), model::kEmbeddingGroup, embedding[0]);
    expect_tensor(weights.position_table(), model::kEmbeddingGroup, embedding[1]);
    EXPECT_EQ(weights.head(), weights.token_table());
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      const auto group = model::layer_group(layer);
      const auto& here = weights.layer(layer);
      const std::vector<const Half*> loaded = {
          here.attn_norm.weight, here.attn_norm.bias, here.q.weight,        here.q.bias,
          here.k.weight,         here.k.bias,         here.v.weight,        here.v.bias,
          here.o.weight,         here.o.bias,         here.mlp_norm.weight, here.mlp_norm.bias,
          here.up.weight,        here.up.bias,        here.down.weight,     here.down.bias};
      const auto tensors = model::layer_tensors(spec);
      ASSERT_EQ(tensors.size(), loaded.size());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        expect_tensor(loaded[i], group, tensors[i]);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(loaded[i]) % 4096, 0u);
      }
    }
  }
}

TEST_F(StageWeightsTest, AStageReadsItsOwnLayersAndNoOthers) {
  const auto spec = spec_of(false);
  const auto weights = load(spec, {.first_layer = 1, .layers = 1}, 2);
  expect_tensor(weights.layer(0).up.weight, "layers/001", model::layer_tensors(spec)[12]);
  for (const auto& name : source_.seen()) {
    EXPECT_EQ(name.rfind("layers/001/", 0), 0u) << name;
  }
  EXPECT_EQ(source_.seen().size(), 16u);
}

TEST_F(StageWeightsTest, TheLastStageReadsTheHead) {
  load(spec_of(false), {.first_layer = 2, .layers = 1, .head = true}, 2);
  EXPECT_EQ(source_.seen().count("head/weight"), 1u);
  EXPECT_EQ(source_.seen().count("embedding/token.weight"), 0u);
  Watched tied;
  StageWeights(spec_of(true), {.first_layer = 2, .layers = 1, .head = true}, tied, *device_, 2,
               nullptr);
  EXPECT_EQ(tied.seen().count("embedding/token.weight"), 1u);
  EXPECT_EQ(tied.seen().count("embedding/position.weight"), 0u);
}

TEST_F(StageWeightsTest, AFailedReadIsThrownOnce) {
  source_.fail_on = "q.weight";
  EXPECT_THROW(load(spec_of(true), {.first_layer = 0, .layers = 3}, 4), IoError);
}

TEST_F(StageWeightsTest, ReportsItsProgressToTheEnd) {
  std::uint64_t last = 0, total = 0;
  const StageWeights weights(spec_of(true), {.first_layer = 0, .layers = 1}, source_, *device_, 3,
                             [&](std::uint64_t done, std::uint64_t all) {
                               EXPECT_GT(done, last);
                               last = done;
                               total = all;
                             });
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, static_cast<std::uint64_t>(model::layer_bytes(spec_of(true))));
}

}  // namespace
}  // namespace stagecoach::offload
