#include "plan/measure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <span>
#include <thread>

#include "base/error.hpp"
#include "comm/loopback_transport.hpp"
#include "device/host/host_device.hpp"
#include "plan/measure_cases.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

/// A host device with scratch for measuring.
std::unique_ptr<device::Device> device_for(const MeasureSizes& sizes, AbortSignal& abort) {
  auto device = device::make_host_device({.threads = 1}, abort);
  device->reserve_scratch(measure_scratch(sizes));
  return device;
}

struct Measured {
  NodeProfile profile;
  std::vector<std::string> told;
  std::vector<std::string> notes;
};

/// One rank that measures quickly.
Measured measure_rank(comm::Transport& transport, AbortSignal& abort, const std::string& folder,
                      const std::string& host) {
  const auto sizes = quick_sizes();
  const auto device = device_for(sizes, abort);
  const auto cpu = device_for(sizes, abort);
  Measurement measurement({.device = device.get(),
                           .cpu = cpu.get(),
                           .abort = &abort,
                           .threads = 2,
                           .folder = folder,
                           .seconds = 1e-3,
                           .sizes = sizes,
                           .host = host});
  Measured measured;
  measured.profile =
      measurement.run(transport, [&](const std::string& line) { measured.told.push_back(line); });
  measured.notes = measurement.notes();
  return measured;
}

/// As many ranks as there are hosts, at once.
std::vector<Measured> measure_ranks(const std::vector<std::string>& hosts,
                                    const std::string& folder = "") {
  AbortSignal abort;
  comm::LoopbackHub hub(static_cast<int>(hosts.size()), {.timeout = std::chrono::seconds(30)},
                        abort);
  std::vector<Measured> all(hosts.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto transport = hub.transport(static_cast<int>(rank));
        all[rank] = measure_rank(*transport, abort, folder, hosts[rank]);
      });
    }
  }
  return all;
}

/// A profile that needs what its caller enters to be whole.
NodeProfile with_memory(NodeProfile profile) {
  profile.date = "2026-12-01";
  profile.device_mem_bytes = profile.cpu_mem_bytes = std::size_t{1} << 30;
  return profile;
}

void expect_curve(const Curve& curve, const std::vector<double>& sizes, const std::string& what) {
  SCOPED_TRACE(what);
  std::vector<double> found;
  for (const auto& point : curve.points()) {
    found.push_back(point.size);
    EXPECT_GT(point.rate, 0);
  }
  EXPECT_EQ(found, sizes);
}

TEST(Measure, FillsEveryFigureOfAProfile) {
  const testing::TempFolder folder;
  const auto measured = measure_ranks({"a"}, folder.path()).front();
  const auto& profile = measured.profile;
  EXPECT_EQ(profile.host, "a");
  EXPECT_EQ(profile.stages, 1);
  EXPECT_EQ(profile.threads, 2);
  EXPECT_GE(profile.cores, 1);
  EXPECT_THAT(profile.description, HasSubstr("host"));
  EXPECT_GE(profile.memory_bytes_per_second,
            profile.caches.at(device::KvType::f16).cpu.points().back().rate);
  for (const auto& [packing, rates] : profile.formats) {
    SCOPED_TRACE(to_string(packing));
    ASSERT_THAT(rates.products, ElementsAre(Key(64), Key(128)));
    expect_curve(rates.products.at(64), {1, 16}, "64");
    expect_curve(rates.products.at(128), {1, 16}, "128");
    EXPECT_EQ(rates.widen > 0, packing != Packing::none);
  }
  EXPECT_EQ(profile.formats.size(), 3u);
  for (const auto& [type, rates] : profile.caches) {
    expect_curve(rates.device, {16, 64}, "attention of the device");
    expect_curve(rates.cpu, {16, 64}, "attention of the CPU");
    EXPECT_GT(rates.store, 0);
  }
  EXPECT_EQ(profile.caches.size(), 4u);
  EXPECT_GT(profile.prompt_attention_flops, 0);
  EXPECT_GT(profile.row_bytes_per_second, 0);
  EXPECT_GT(profile.sampled_logits_per_second, 0);
  expect_curve(profile.disk.read, {4096, 65536}, "reading");
  expect_curve(profile.disk.write, {4096, 65536}, "writing");
  EXPECT_GT(profile.step.compute, 0);
  EXPECT_GT(profile.step.copy, 0);
  EXPECT_GT(profile.step.cpu, 0);
  EXPECT_GT(profile.step.disk, 0);
  EXPECT_GT(profile.local_link.latency_seconds, 0);
  EXPECT_EQ(profile.link, profile.local_link);
  EXPECT_FALSE(measured.told.empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Measure, GivesAFileThatIsReadBackAsItIs) {
  const testing::TempFolder folder;
  const auto profile = with_memory(measure_ranks({"a"}, folder.path()).front().profile);
  EXPECT_EQ(parse_profile(format_profile(profile), "measured"), profile);
}

TEST(Measure, WithoutAFolderThereIsNoDisk) {
  const auto profile = with_memory(measure_ranks({"a"}).front().profile);
  EXPECT_TRUE(profile.disk.read.empty());
  EXPECT_TRUE(profile.disk.write.empty());
  EXPECT_EQ(profile.step.disk, 0);
  EXPECT_EQ(parse_profile(format_profile(profile), "measured"), profile);
}

TEST(Measure, RanksOfOneNodeHaveOneProfile) {
  const auto all = measure_ranks({"a", "a"});
  EXPECT_EQ(all[0].profile.stages, 2);
  EXPECT_EQ(all[0].profile, all[1].profile);
}

TEST(Measure, LinksGoToTheSameNodeOrToAnother) {
  const auto all = measure_ranks({"a", "a", "b"});
  EXPECT_EQ(all[0].profile.stages, 2);
  EXPECT_EQ(all[1].profile, all[0].profile);
  EXPECT_EQ(all[2].profile.host, "b");
  EXPECT_EQ(all[2].profile.stages, 1);
  EXPECT_NE(all[0].profile.link, all[0].profile.local_link);
  EXPECT_THAT(all[0].notes, ::testing::Not(::testing::Contains(HasSubstr("link"))));
  EXPECT_EQ(all[2].profile.local_link, all[2].profile.link);
  EXPECT_THAT(all[2].notes, ::testing::Contains(HasSubstr("local_link: no stage of this node")));
}

TEST(Measure, AFolderThatIsNotThereIsNamed) {
  AbortSignal abort;
  const auto sizes = quick_sizes();
  const auto device = device_for(sizes, abort);
  try {
    const Measurement measurement({.device = device.get(),
                                   .cpu = device.get(),
                                   .abort = &abort,
                                   .folder = "/nowhere/at/all",
                                   .sizes = sizes});
    FAIL() << "it was measured";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--folder /nowhere/at/all: no file can be made there"));
  }
}

/// Cannot send hidden states.
class BrokenTransport final : public comm::Transport {
 public:
  explicit BrokenTransport(comm::Transport& whole) : whole_(whole) {}

  [[nodiscard]] int rank() const noexcept override { return whole_.rank(); }
  [[nodiscard]] int size() const noexcept override { return whole_.size(); }
  [[nodiscard]] int ranks_on_this_host() const noexcept override {
    return whole_.ranks_on_this_host();
  }
  [[nodiscard]] int rank_on_this_host() const noexcept override {
    return whole_.rank_on_this_host();
  }
  [[nodiscard]] std::string describe(int rank) const override { return whole_.describe(rank); }
  void send(std::span<const std::byte> data, int to, comm::Channel channel,
            const std::string& what) override {
    if (channel == comm::Channel::hidden) {
      throw TransportError("the cable is cut");
    }
    whole_.send(data, to, channel, what);
  }
  void receive(std::span<std::byte> data, int from, comm::Channel channel,
               const std::string& what) override {
    whole_.receive(data, from, channel, what);
  }
  void send_message(std::span<const std::byte> data, int to, comm::Channel channel,
                    const std::string& what) override {
    whole_.send_message(data, to, channel, what);
  }
  [[nodiscard]] std::vector<std::byte> receive_message(int from, comm::Channel channel,
                                                       const std::string& what) override {
    return whole_.receive_message(from, channel, what);
  }

 private:
  comm::Transport& whole_;
};

// The stream that answers must not wait out the transport's time for what was never sent.
TEST(Measure, ALinkThatFailsEndsAtOnce) {
  AbortSignal abort;
  comm::LoopbackHub hub(1, {.timeout = std::chrono::seconds(30)}, abort);
  const auto whole = hub.transport(0);
  BrokenTransport broken(*whole);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(measure_rank(broken, abort, "", "a"), TransportError);
  EXPECT_TRUE(abort.raised());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Measure, SumsThatCannotBeAreCutWithANote) {
  AbortSignal abort;
  const auto sizes = quick_sizes();
  const auto device = device_for(sizes, abort);
  MeasureKit kit(
      {.device = device.get(), .cpu = device.get(), .abort = &abort, .sizes = sizes, .host = "a"});
  EXPECT_EQ(kit.possible_sum("both", 5, 3, 4), 5);
  EXPECT_TRUE(kit.notes().empty());
  EXPECT_EQ(kit.possible_sum("both", 8, 3, 4), 7);
  EXPECT_EQ(kit.possible_sum("both", 1, 3, 4), 1.5);
  EXPECT_EQ(kit.notes().size(), 2u);
}

TEST(Measure, MeansAndSumsAreOfTheNodesRanks) {
  const std::vector<std::string> hosts{"a", "b", "a"};
  const std::vector<double> mine{1, 10, 4};
  AbortSignal abort;
  comm::LoopbackHub hub(3, {.timeout = std::chrono::seconds(30)}, abort);
  std::vector<double> means(3);
  std::vector<double> sums(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        const auto transport = hub.transport(static_cast<int>(rank));
        const auto sizes = quick_sizes();
        const auto device = device_for(sizes, abort);
        MeasureKit kit({.device = device.get(),
                        .cpu = device.get(),
                        .abort = &abort,
                        .sizes = sizes,
                        .host = hosts[rank]});
        kit.meet(*transport, [](const std::string&) {});
        means[rank] = kit.mean_of_node("mean", mine[rank]);
        sums[rank] = kit.sum_of_node("sum", mine[rank]);
      });
    }
  }
  EXPECT_THAT(means, ElementsAre(2.5, 10, 2.5));
  EXPECT_THAT(sums, ElementsAre(5, 10, 5));
}

TEST(Measure, MeanLinksAreThoseOfTheNode) {
  // a -> a, a -> b, b -> a, and from the last to the first a -> a.
  const std::vector<std::string> hosts{"a", "a", "b", "a"};
  const std::vector<LinkRates> links{{1, 10}, {2, 20}, {4, 40}, {3, 60}};
  EXPECT_EQ(mean_link(links, hosts, "a", true), (LinkRates{2, 35}));
  EXPECT_EQ(mean_link(links, hosts, "a", false), (LinkRates{2, 20}));
  EXPECT_EQ(mean_link(links, hosts, "b", false), (LinkRates{4, 40}));
  EXPECT_EQ(mean_link(links, hosts, "b", true), std::nullopt);
}

TEST(Measure, SmallMemoryCutsWhatIsMeasuredWith) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const MeasureSizes full;
  EXPECT_EQ(fit_memory(full, 1000 * kMiB, 1000 * kMiB).disk_transfers, full.disk_transfers);
  const auto small = fit_memory(full, 100 * kMiB, 80 * kMiB);
  EXPECT_EQ(small.device_data_bytes, 100 * kMiB);
  EXPECT_EQ(small.dram_bytes, 80 * kMiB);
  EXPECT_EQ(small.disk_transfers.back(), 8 * kMiB);  // two of 64 MiB do not fit
  EXPECT_EQ(small.copy_bytes, full.copy_bytes);
  // 12288 floats a row of a sequence: an eighth of DRAM holds 213.
  EXPECT_EQ(small.sequences, 213);
  EXPECT_EQ(fit_memory(full, 1, 1).dram_bytes, 64 * kMiB);
}

TEST(Measure, WideProductsHaveFewerRows) {
  const MeasureSizes sizes;
  EXPECT_EQ(most_product_rows(sizes, 4096), 1024);
  EXPECT_EQ(most_product_rows(sizes, 49152), 341);
  EXPECT_EQ(most_product_rows(sizes, 1 << 25), 1);
}

}  // namespace
}  // namespace stagecoach::plan
