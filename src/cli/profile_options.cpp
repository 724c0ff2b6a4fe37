#include "cli/profile_options.hpp"

#include <cmath>
#include <set>
#include <type_traits>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/ini_file.hpp"
#include "base/units.hpp"
#include "cli/job_options.hpp"
#include "cli/options.hpp"
#include "model/spec.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;
using Text = std::string;

constexpr const char* kUsage =
    "usage: stagecoach profile --out DIR [--folder DIR] [options]\n"
    "       mpirun -n STAGES stagecoach profile ...\n\n"
    "Measures what 'stagecoach plan' and 'stagecoach simulate' need to know of this machine: "
    "products,\n"
    "attention, copies, DRAM, disk and messages, in one to three minutes. Start it like the job, "
    "with as\n"
    "many ranks on each machine: all measure at once, so that what they share shows. Each "
    "machine's\n"
    "first rank writes DIR/HOST.ini, which may be edited.";

constexpr double kSeconds = 0.5;
constexpr double kQuickSeconds = 0.002;

po::options_description describe() {
  po::options_description group("options");
  group.add_options()("out", po::value<Text>()->value_name("DIR"),
                      "folder of the profiles, made if missing")("overwrite", po::bool_switch(),
                                                                 "replace a profile that is there")(
      "folder", po::value<Text>()->value_name("DIR"),
      "measure the disk of this folder, with a file that vanishes; as a job's --offload-dir")(
      "device", po::value<Text>()->default_value("auto"),
      "host, cuda, cuda:N or auto: a GPU where there is one")(
      "threads", po::value<Integer>()->default_value(0),
      "a stage; 0 shares out this machine's CPUs")("isa", po::value<Text>()->default_value("auto"),
                                                   "widest instructions: auto, avx2 or avx512")(
      "spec", po::value<Text>()->value_name("INI"),
      "measure with this model's shapes, as configs/models/opt-30b.ini")(
      "seconds", po::value<double>()->value_name("S"), "of each figure, about (0.5)")(
      "quick", po::bool_switch(), "tiny shapes: shows that everything runs, and no true rates")(
      "device-mem", po::value<Text>(),
      "to enter: device memory of a stage, like 16GiB (what is free)")(
      "cpu-mem", po::value<Text>(),
      "to enter: DRAM of a stage, without a GPU the device's part included (what is free)")(
      "disk-mem", po::value<Text>(), "to enter: disk space of a stage (what is free)")(
      "watts", po::value<double>()->value_name("W"), "to enter: what the machine draws at work");
  return group;
}

/// The model's own matrices and heads.
plan::MeasureSizes with_shapes(plan::MeasureSizes sizes, const model::ModelSpec& spec) {
  const std::set<std::int64_t> widths{spec.hidden, spec.ffn};
  sizes.widths = {widths.begin(), widths.end()};
  sizes.heads = spec.heads;
  sizes.kv_heads = spec.kv_heads;
  sizes.head_dim = spec.head_dim;
  sizes.vocab = spec.vocab;
  return sizes;
}

plan::MeasureSizes read_sizes(const Options& options) {
  if (options.flag("quick")) {
    options.exclude("quick", "spec");
    return plan::quick_sizes();
  }
  if (!options.has("spec")) {
    return {};
  }
  const auto& path = options.text("spec");
  return with_shapes({}, model::spec_from_settings(read_ini_file(path), path));
}

double read_number(const Options& options, const std::string& name, double otherwise, double least,
                   double most) {
  if (!options.has(name)) {
    return otherwise;
  }
  const auto value = options.get<double>(name);
  if (!(value >= least && value <= most)) {
    throw ConfigError(fmt::format("--{} {}: must be from {} to {}", name, value, least, most));
  }
  return value;
}

std::size_t read_bytes(const Options& options, const std::string& name) {
  return options.has(name) ? parse_bytes(options.text(name), "--" + name) : 0;
}

/// Calls `field` with everything that is sent.
template <typename ToSend, typename Field>
void for_each_field(ToSend& options, Field field) {
  field(options.out);
  field(options.folder);
  field(options.device);
  field(options.isa);
  field(options.threads);
  field(options.overwrite);
  field(options.watts);
  field(options.seconds);
  field(options.device_mem_bytes);
  field(options.cpu_mem_bytes);
  field(options.disk_mem_bytes);
  auto& sizes = options.sizes;
  field(sizes.widths);
  field(sizes.rows);
  field(sizes.heads);
  field(sizes.kv_heads);
  field(sizes.head_dim);
  field(sizes.vocab);
  field(sizes.context);
  field(sizes.sequences);
  field(sizes.prompt_rows);
  field(sizes.page_tokens);
  field(sizes.norm_rows);
  field(sizes.sampled_rows);
  field(sizes.device_data_bytes);
  field(sizes.dram_bytes);
  field(sizes.copy_bytes);
  field(sizes.disk_transfers);
  field(sizes.disk_bytes);
  field(sizes.message_bytes);
}

}  // namespace

std::optional<ProfileOptions> read_profile_options(const std::vector<std::string>& arguments) {
  const auto options = parse_options("profile", kUsage, describe(), arguments);
  if (!options) {
    return std::nullopt;
  }
  if (!options->has("out")) {
    throw ConfigError("profile: give --out DIR, the folder that the profiles are written to");
  }
  if (options->has("disk-mem") && !options->has("folder")) {
    throw ConfigError("--disk-mem needs --folder DIR: no disk is measured");
  }
  const bool quick = options->flag("quick");
  return ProfileOptions{
      .out = options->text("out"),
      .folder = options->has("folder") ? options->text("folder") : "",
      .device = options->text("device"),
      .isa =
          one_of<Text>(*options, "isa", {{"auto", "auto"}, {"avx2", "avx2"}, {"avx512", "avx512"}}),
      .threads = static_cast<int>(options->integer("threads", 0, 4096)),
      .overwrite = options->flag("overwrite"),
      .watts = read_number(*options, "watts", 0, 1, 1e7),
      .seconds = read_number(*options, "seconds", quick ? kQuickSeconds : kSeconds, 1e-3, 60),
      .device_mem_bytes = read_bytes(*options, "device-mem"),
      .cpu_mem_bytes = read_bytes(*options, "cpu-mem"),
      .disk_mem_bytes = read_bytes(*options, "disk-mem"),
      .sizes = read_sizes(*options)};
}

std::vector<std::byte> to_bytes(const ProfileOptions& options) {
  ByteWriter out;
  for_each_field(options, [&]<typename T>(const T& field) {
    if constexpr (std::is_same_v<T, Text>) {
      out.put_string(field);
    } else if constexpr (std::is_arithmetic_v<T>) {
      out.put(field);
    } else {
      out.put_vector(field);
    }
  });
  return std::move(out).take();
}

ProfileOptions profile_options_from(const std::vector<std::byte>& bytes) {
  ByteReader in(bytes);
  ProfileOptions options;
  for_each_field(options, [&]<typename T>(T& field) {
    if constexpr (std::is_same_v<T, Text>) {
      field = in.get_string();
    } else if constexpr (std::is_arithmetic_v<T>) {
      field = in.get<T>();
    } else {
      field = in.get_vector<typename T::value_type>();
    }
  });
  in.expect_end();
  return options;
}

}  // namespace stagecoach::cli
