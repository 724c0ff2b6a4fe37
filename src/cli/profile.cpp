#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/pinned_memory.hpp"
#include "base/staged_file.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/profile_options.hpp"
#include "comm/collectives.hpp"
#include "comm/loopback_transport.hpp"
#include "comm/nccl_transport.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "job/agreement.hpp"
#include "job/stage_device.hpp"
#include "job/thread_share.hpp"
#include "job/wire.hpp"
#include "offload/spill_file.hpp"

namespace stagecoach::cli {
namespace {

// Of what is free: as a job takes it (job/stage_setup.cpp).
constexpr std::size_t most_of(std::size_t bytes) { return bytes / 10 * 9; }

std::size_t or_else(std::size_t bytes, std::size_t otherwise) {
  return bytes > 0 ? bytes : otherwise;
}

std::string today() {
  const auto now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

/// One rank that measures, in the order of its life. Every step is taken by all ranks together.
class ProfileRank {
 public:
  ProfileRank(ProfileOptions options, comm::Transport& transport, AbortSignal& abort,
              const Log& log)
      : options_(std::move(options)), transport_(transport), abort_(abort), log_(log) {}

  void find_machine();
  void open_output();
  void take_memory();
  void measure();
  void write();

 private:
  [[nodiscard]] bool first_of_node() const { return transport_.rank_on_this_host() == 0; }
  [[nodiscard]] std::string path() const { return options_.out + "/" + host_name() + ".ini"; }
  void find_budgets(int ranks_of_gpu);
  [[nodiscard]] std::string text() const;

  const ProfileOptions options_;
  comm::Transport& transport_;
  AbortSignal& abort_;
  const Log& log_;
  int threads_ = 1;
  job::StageDevice where_;
  plan::NodeProfile budgets_;  ///< its memory alone
  std::unique_ptr<StagedFile> file_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Device> cpu_;
  std::unique_ptr<plan::Measurement> measurement_;
  plan::NodeProfile profile_;
};

void ProfileRank::find_machine() {
  threads_ = options_.threads > 0 ? options_.threads : job::share_cpus(transport_);
  job::agree(transport_, "finding the device",
             [&] { where_ = job::find_device(options_.device, transport_); });
  const auto ends = job::gather_wire_ends(transport_, {.host = host_name(),
                                                       .device = where_,
                                                       .hidden_on_device = true,
                                                       .built_with_nccl = comm::built_with_nccl(),
                                                       .mpi_takes_device_memory = false});
  // Before any rank takes memory, which the others would miss.
  job::agree(transport_, "finding what is free",
             [&] { find_budgets(job::ranks_of_gpu(ends, transport_.rank())); });
}

void ProfileRank::find_budgets(int ranks_of_gpu) {
  const auto sharers = static_cast<std::size_t>(transport_.ranks_on_this_host());
  const auto dram = most_of(available_memory_bytes() / sharers);
  auto& memory = budgets_;
  memory.cpu_mem_bytes = or_else(options_.cpu_mem_bytes, dram);
  if (where_.cuda) {
    const auto on_gpu =
        most_of(device::cuda_free_memory(where_.index) / static_cast<std::size_t>(ranks_of_gpu));
    memory.device_mem_bytes = or_else(options_.device_mem_bytes, on_gpu);
    memory.pinned_mem_bytes = memory.cpu_mem_bytes;
  } else {
    memory.device_mem_bytes = or_else(options_.device_mem_bytes, memory.cpu_mem_bytes);
    memory.pinned_mem_bytes = std::min(memory.cpu_mem_bytes, lockable_bytes() / sharers);
    if (memory.device_mem_bytes > memory.cpu_mem_bytes) {
      throw ConfigError(fmt::format(
          "--device-mem {}: without a GPU it is a part of --cpu-mem, which is {}; lower it",
          format_bytes(memory.device_mem_bytes), format_bytes(memory.cpu_mem_bytes)));
    }
  }
  if (!options_.folder.empty()) {
    const auto free_bytes = offload::free_disk_bytes(options_.folder, "--folder") / sharers;
    memory.disk_mem_bytes = or_else(options_.disk_mem_bytes, most_of(free_bytes));
  }
}

void ProfileRank::open_output() {
  job::agree(transport_, "opening the output", [&] {
    if (first_of_node()) {
      std::error_code error;
      std::filesystem::create_directories(options_.out, error);
      if (error) {
        throw ConfigError(
            fmt::format("--out {}: no such folder can be made: {}", options_.out, error.message()));
      }
      file_ = std::make_unique<StagedFile>(path(), options_.overwrite);
    }
  });
}

void ProfileRank::take_memory() {
  job::agree(transport_, "taking memory", [&] {
    const auto sizes =
        plan::fit_memory(options_.sizes, budgets_.device_mem_bytes / 4, budgets_.cpu_mem_bytes / 4);
    const auto scratch = plan::measure_scratch(sizes);
    job::JobConfig config;
    config.isa = options_.isa;
    std::size_t arena_bytes = 0;
    if (where_.cuda) {
      arena_bytes = plan::measure_device_bytes(sizes) +
                    job::make_device(where_, config, threads_, 0, abort_)->scratch_bytes(scratch);
    }
    device_ = job::make_device(where_, config, threads_, arena_bytes, abort_);
    device_->reserve_scratch(scratch);
    cpu_ = job::make_cpu_device(config, threads_, 0, abort_);
    cpu_->reserve_scratch(scratch);
    measurement_ =
        std::make_unique<plan::Measurement>(plan::MeasureOptions{.device = device_.get(),
                                                                 .cpu = cpu_.get(),
                                                                 .abort = &abort_,
                                                                 .gpu = where_.cuda,
                                                                 .threads = threads_,
                                                                 .folder = options_.folder,
                                                                 .seconds = options_.seconds,
                                                                 .sizes = sizes});
  });
}

void ProfileRank::measure() {
  profile_ = measurement_->run(transport_, [&](const std::string& figure) {
    if (transport_.rank() == 0) {
      log_.info("profile: {}", figure);
    }
  });
  profile_.date = today();
  profile_.watts = options_.watts;
  profile_.device_mem_bytes = budgets_.device_mem_bytes;
  profile_.cpu_mem_bytes = budgets_.cpu_mem_bytes;
  profile_.pinned_mem_bytes = budgets_.pinned_mem_bytes;
  profile_.disk_mem_bytes = budgets_.disk_mem_bytes;
}

std::string ProfileRank::text() const {
  auto text = fmt::format(
      "# Measured by 'stagecoach profile', {} stage{} at once; any figure may be edited.\n",
      profile_.stages, profile_.stages == 1 ? "" : "s");
  for (const auto& note : measurement_->notes()) {
    text += fmt::format("# {}\n", note);
  }
  return text + plan::format_profile(profile_);
}

void ProfileRank::write() {
  job::agree(transport_, "writing the profile", [&] {
    if (first_of_node()) {
      const auto written = text();
      static_cast<void>(plan::parse_profile(written, path()));  // nothing that cannot be read
      {
        const File out(file_->temporary_path(), File::Mode::create);
        out.write_at(std::as_bytes(std::span(written)), 0);
      }
      file_->commit();
    }
  });
  if (first_of_node()) {
    for (const auto& note : measurement_->notes()) {
      log_.info("{}", note);
    }
    log_.info("wrote {}", path());
  }
}

/// Rank 0 reads the arguments and the model's description. Nothing after --help.
std::optional<ProfileOptions> agree_on_options(comm::Transport& transport,
                                               const std::vector<std::string>& arguments) {
  std::vector<std::byte> bytes;
  job::agree(transport, "reading the options", [&] {
    if (transport.rank() == 0) {
      if (const auto options = read_profile_options(arguments)) {
        bytes = to_bytes(*options);
      }
    }
  });
  bytes = comm::broadcast(transport, bytes, "the options");
  if (bytes.empty()) {
    return std::nullopt;
  }
  return profile_options_from(bytes);
}

void profile_rank(comm::Transport& transport, AbortSignal& abort,
                  const std::vector<std::string>& arguments) try {
  const auto options = agree_on_options(transport, arguments);
  if (!options) {
    return;
  }
  const Log log(transport.rank() == 0 ? "" : fmt::format("rank {}", transport.rank()));
  ProfileRank rank(*options, transport, abort, log);
  rank.find_machine();
  rank.open_output();
  rank.take_memory();
  rank.measure();
  rank.write();
} catch (const JobAborted&) {
  if (const auto cause = abort.cause()) {
    std::rethrow_exception(cause);
  }
  throw;
}

}  // namespace

int profile_command(Process& process, const std::vector<std::string>& arguments) {
  process.join_launched_job();
  AbortSignal abort;
  if (process.session() != nullptr) {
    const auto transport =
        comm::make_mpi_transport(*process.session(), comm::TransportOptions{}, abort);
    profile_rank(*transport, abort, arguments);
  } else {
    comm::LoopbackHub hub(1, comm::TransportOptions{}, abort);
    profile_rank(*hub.transport(0), abort, arguments);
  }
  return 0;
}

}  // namespace stagecoach::cli
