#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.hpp"
#include "plan/node_profile.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// As short as a profile can be.
const std::string kSmall =
    "[node]\ngpu = false\nstages = 2\nthreads = 3\ncores = 8\n"
    "[memory]\ndevice_mem = 4GiB\ncpu_mem = 16GB\nbytes_per_s = 3e10\n"
    "[copies]\nto_device_pinned_bytes_per_s = 9e9\nto_device_pageable_bytes_per_s = 8e9\n"
    "from_device_pinned_bytes_per_s = 7e9\nfrom_device_pageable_bytes_per_s = 6e9\n"
    "both_ways_bytes_per_s = 1.1e10\n"
    "[products]\nf16 1024 = 1:1e10 16:8e10\nf16 4096 = 7e10\n"
    "[attention]\nprompt_flop_per_s = 5e10\nf16 device = 16:9e9 64:1.1e10\nf16 cpu = 8.5e9\n"
    "f16 store = 2e9\n"
    "[rows]\nbytes_per_s = 1e10\nsampled_logits_per_s = 1e9\n"
    "[steps]\ncompute_s = 1e-5\ncopy_s = 0\ndisk_s = 2e-5\ncpu_s = 3e-6\n"
    "[link]\nlatency_s = 2e-6\nbytes_per_s = 4e9\n";

/// kSmall with the first `from` replaced.
std::string with(const std::string& from, const std::string& to) {
  auto text = kSmall;
  const auto place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    parse_profile(text, "a.ini");
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError for " << text;
  return {};
}

NodeProfile small() {
  NodeProfile expected;
  expected.stages = 2;
  expected.threads = 3;
  expected.cores = 8;
  expected.device_mem_bytes = 4294967296;
  expected.cpu_mem_bytes = 16000000000;
  expected.pinned_mem_bytes = 16000000000;
  expected.memory_bytes_per_second = 3e10;
  expected.copies = {9e9, 8e9, 7e9, 6e9, 1.1e10};
  expected.formats[Packing::none].products = {{1024, Curve({{1, 1e10}, {16, 8e10}})},
                                              {4096, Curve(7e10)}};
  expected.caches[device::KvType::f16] = {Curve({{16, 9e9}, {64, 1.1e10}}), Curve(8.5e9), 2e9};
  expected.prompt_attention_flops = 5e10;
  expected.row_bytes_per_second = 1e10;
  expected.sampled_logits_per_second = 1e9;
  expected.step = {1e-5, 0, 2e-5, 3e-6};
  expected.link = {2e-6, 4e9};
  expected.local_link = {2e-6, 4e9};
  return expected;
}

/// With all that is optional, and numbers that are long in decimal.
NodeProfile whole() {
  auto profile = small();
  profile.host = "node-1";
  profile.date = "2026-12-01";
  profile.description = "a CPU; 8 cores";
  profile.gpu = true;
  profile.device_mem_bytes = 15569256449;
  profile.pinned_mem_bytes = 12345678901;
  profile.disk_mem_bytes = 1500000000001;
  profile.watts = 412.5;
  profile.disk = {Curve({{4096, 1e8 / 3}, {1 << 20, 2e9}}), Curve(1e9), 2.5e9};
  for (const auto packing : {Packing::int8, Packing::int4}) {
    profile.formats[packing] = {{{768, Curve({{1, 1e11 / 7}, {79.5, 2e12}})}}, 2e10 / 3};
  }
  for (const auto type : {device::KvType::f32, device::KvType::int8, device::KvType::int4}) {
    profile.caches[type] = {Curve(1e9 / 3), Curve({{32, 1e9 / 7}}), 1e9 / 9};
  }
  profile.local_link = {1e-7 / 3, 5e9};
  profile.software = {2, false, false, 4e9, 8.5e-5, true};
  return profile;
}

TEST(ProfileFile, ReadsEveryKey) { EXPECT_EQ(parse_profile(kSmall, "a.ini"), small()); }

TEST(ProfileFile, ReadsWhatIsOptional) {
  const auto text =
      with("[node]\n", "[node]\nhost = n1\ndate = 2026-12-01\ndevice = T4\nwatts = 70\n") +
      "[disk]\nread_bytes_per_s = 4096:1e8 1e6:2e9\nwrite_bytes_per_s = 1e9\n"
      "together_bytes_per_s = 2e9\n[local_link]\nlatency_s = 1e-6\nbytes_per_s = 5e9\n"
      "[software]\nslot_s = 8.5e-5\nsaves_query = false\n";
  auto expected = small();
  expected.host = "n1";
  expected.date = "2026-12-01";
  expected.description = "T4";
  expected.watts = 70;
  expected.disk = {Curve({{4096, 1e8}, {1e6, 2e9}}), Curve(1e9), 2e9};
  expected.local_link = {1e-6, 5e9};
  expected.software.slot_seconds = 8.5e-5;
  expected.software.saves_query = false;
  EXPECT_EQ(parse_profile(text, "a.ini"), expected);
}

TEST(ProfileFile, ReadsPackedFormats) {
  auto text = with("f16 4096 = 7e10", "f16 4096 = 7e10\nint4 4096 = 6e10\nint8 768 = 5e10");
  text += "[widen]\nint4_bytes_per_s = 4e9\nint8_bytes_per_s = 3e9\n";
  const auto profile = parse_profile(text, "a.ini");
  EXPECT_EQ(profile.formats.at(Packing::int4), (FormatRates{{{4096, Curve(6e10)}}, 4e9}));
  EXPECT_EQ(profile.formats.at(Packing::int8), (FormatRates{{{768, Curve(5e10)}}, 3e9}));
}

TEST(ProfileFile, WhatIsWrittenReadsBackTheSame) {
  EXPECT_EQ(parse_profile(format_profile(small()), "a.ini"), small());
  EXPECT_EQ(parse_profile(format_profile(whole()), "a.ini"), whole());
}

TEST(ProfileFile, WritesForPeople) {
  const auto text = format_profile(whole());
  EXPECT_THAT(text, HasSubstr("\ncpu_mem = 16GB\n"));
  EXPECT_THAT(text, HasSubstr("\nint4 768 = 1:1.4285714285714285e10 79.5:2e12\n"));
  EXPECT_THAT(text, HasSubstr("[disk]\n# bytes a second, by bytes of a transfer"));
  EXPECT_THAT(format_profile(small()), HasSubstr("\ndevice_mem = 4GiB\n"));
  EXPECT_THAT(format_profile(small()), Not(HasSubstr("[software]")));
  EXPECT_THAT(format_profile(small()), Not(HasSubstr("[local_link]")));
}

TEST(ProfileFile, SizesAreWrittenExactly) {
  const std::pair<std::size_t, const char*> sizes[] = {
      {15569256448, "14.5GiB"},
      {1500000000000, "1.5TB"},
      {15569256449, "15569256449"},
      {999, "999"},
      // 128.2 is a little less in binary, and sizes are rounded down.
      {128200000000, "128200MB"}};
  auto profile = small();
  profile.disk = {Curve(1e9), Curve(1e9), 1e9};
  for (const auto& [bytes, text] : sizes) {
    profile.disk_mem_bytes = bytes;
    EXPECT_THAT(format_profile(profile), HasSubstr(fmt::format("\ndisk_mem = {}\n", text)));
    EXPECT_EQ(parse_profile(format_profile(profile), "a.ini").disk_mem_bytes, bytes);
  }
}

TEST(ProfileFile, TextsAreOneLineWithoutComments) {
  auto profile = small();
  profile.host = "; a\nb #c d#e ";
  EXPECT_EQ(parse_profile(format_profile(profile), "a.ini").host, ", a b ,c d#e");
}

TEST(ProfileFile, RefusesMissingSectionsAndKeys) {
  for (const std::string name :
       {"node", "memory", "copies", "products", "attention", "rows", "steps", "link"}) {
    const auto begin = kSmall.find("[" + name + "]");
    const auto end = kSmall.find("\n[", begin);
    const auto text =
        kSmall.substr(0, begin) + (end == std::string::npos ? "" : kSmall.substr(end + 1));
    EXPECT_EQ(error_of(text), "a.ini: there is no section [" + name +
                                  "]; add it, or measure the node with 'stagecoach profile'");
  }
  EXPECT_THAT(error_of(""), HasSubstr("no section [node]"));
  for (const std::string key : {"gpu",
                                "stages",
                                "threads",
                                "cores",
                                "device_mem",
                                "cpu_mem",
                                "to_device_pinned_bytes_per_s",
                                "to_device_pageable_bytes_per_s",
                                "from_device_pinned_bytes_per_s",
                                "from_device_pageable_bytes_per_s",
                                "both_ways_bytes_per_s",
                                "prompt_flop_per_s",
                                "f16 device",
                                "f16 cpu",
                                "f16 store",
                                "sampled_logits_per_s",
                                "compute_s",
                                "copy_s",
                                "disk_s",
                                "cpu_s",
                                "latency_s"}) {
    EXPECT_THAT(error_of(with("\n" + key + " = ", "\n# ")),
                HasSubstr("] " + key + ": this key is missing; add it"));
  }
  EXPECT_EQ(error_of(kSmall + "[disk]\nread_bytes_per_s = 1e9\n"),
            "a.ini [disk] write_bytes_per_s: this key is missing; add it, or measure the node with "
            "'stagecoach profile'");
}

TEST(ProfileFile, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(error_of(kSmall + "[gpu]\n"),
            "a.ini: unknown section [gpu]; a node profile has node, memory, copies, disk, "
            "products, widen, attention, rows, steps, link, local_link, software");
  EXPECT_EQ(error_of(with("[link]\n", "[link]\nspeed = 3\n")),
            "a.ini [link] speed = 3: unknown key; the section has bytes_per_s, latency_s");
  EXPECT_EQ(error_of(kSmall + "[node]\n"),
            "a.ini line 35: [node] comes twice; put its settings together");
  EXPECT_EQ(error_of("gpu = true\n"),
            "a.ini: settings before the first [section]; a node profile begins with [node]");
  EXPECT_THAT(error_of(with("f16 1024", "bf16 1024")),
              HasSubstr("a.ini [products] bf16 1024 = 1:1e10 16:8e10: the key must be a format"));
  for (const char* key :
       {"f16", "f16 0", "f16 -4", "f16 4k", "f16 20000000", "f16 99999999999999999999"}) {
    EXPECT_THAT(error_of(with("f16 1024", key)), HasSubstr("the key must be a format")) << key;
  }
  EXPECT_THAT(error_of(with("f16 1024", "f16 04096")), HasSubstr("come twice"));
  EXPECT_THAT(error_of(with("f16 store = 2e9", "f16 store = 2e9\nf64 cpu = 1e9")),
              HasSubstr("[attention] f64 cpu = 1e9: unknown key"));
}

TEST(ProfileFile, RefusesWhatIsNoNumber) {
  EXPECT_EQ(error_of(with("disk_s = 2e-5", "disk_s = fast")),
            "a.ini [steps] disk_s = fast: is no number; write the seconds like 250 or 2.5e2");
  EXPECT_EQ(error_of(with("stages = 2", "stages = 2.5")),
            "a.ini [node] stages = 2.5: is no whole number; write the stages of a node");
  EXPECT_EQ(error_of(with("gpu = false", "gpu = no")),
            "a.ini [node] gpu = no: must be true or false");
  EXPECT_EQ(error_of(with("device_mem = 4GiB", "device_mem = 4 cows")),
            "a.ini [memory] device_mem = 4 cows: not a size; write bytes or a unit, like 16GiB or "
            "500MB");
  EXPECT_THAT(error_of(with("f16 cpu = 8.5e9", "f16 cpu = 16:1 8:2")),
              HasSubstr("a.ini [attention] f16 cpu = 16:1 8:2: size 8 comes after 16"));
  for (const char* value : {"nan", "inf", "-inf", "1e999", "", "7e9 x"}) {
    const auto key = std::string("from_device_pinned_bytes_per_s = ");
    EXPECT_THAT(error_of(with(key + "7e9", key + value)), HasSubstr(": is no number; write"));
  }
}

/// A key's value is replaced by each of `values`; all are refused for the same reason.
void expect_refused(const std::string& setting, const std::vector<std::string>& values) {
  const auto key = setting.substr(0, setting.find(" = ") + 3);
  for (const auto& value : values) {
    EXPECT_THAT(error_of(with(setting, key + value)), HasSubstr(" must be ")) << key << value;
  }
}

TEST(ProfileFile, RefusesZeroNegativeAndAbsurdFigures) {
  EXPECT_EQ(error_of(with("f16 store = 2e9", "f16 store = 2e15")),
            "a.ini [attention] f16 store = 2e15: it must be 1 to 1e14 bytes a second; correct it, "
            "or measure the node again");
  EXPECT_EQ(error_of(with("f16 4096 = 7e10", "f16 4096 = 1:1e10 2:1e18")),
            "a.ini [products] f16 4096 = 1:1e10 2:1e18: rate 1e18 must be 1 to 1e17 floating-point "
            "operations a second; correct it, or measure the node again");
  expect_refused("to_device_pinned_bytes_per_s = 9e9", {"0", "-1", "0.5", "1.1e14"});
  expect_refused("to_device_pageable_bytes_per_s = 8e9", {"0", "1.1e14"});
  expect_refused("from_device_pinned_bytes_per_s = 7e9", {"0", "1.1e14"});
  expect_refused("from_device_pageable_bytes_per_s = 6e9", {"0", "1.1e14"});
  expect_refused("both_ways_bytes_per_s = 1.1e10", {"0", "1.1e14"});
  expect_refused("bytes_per_s = 3e10", {"0", "-3e10", "1e15"});
  expect_refused("f16 4096 = 7e10", {"0", "1:0", "0.5", "0.5:1e10", "1e10:1e10"});
  expect_refused("f16 cpu = 8.5e9", {"0", "-1", "1e15", "1e7:1e9"});
  expect_refused("prompt_flop_per_s = 5e10", {"0", "1e18"});
  expect_refused("sampled_logits_per_s = 1e9", {"0", "1e15"});
  expect_refused("compute_s = 1e-5", {"-1e-9", "11"});
  expect_refused("latency_s = 2e-6", {"-1e-9", "11"});
  expect_refused("stages = 2", {"0", "-1", "10001"});
  expect_refused("threads = 3", {"0", "1000001"});
  expect_refused("cores = 8", {"0", "-8", "5000000000"});
  expect_refused("device_mem = 4GiB", {"0", "1001TB"});
  expect_refused("cpu_mem = 16GB", {"0", "1001TB"});
}

TEST(ProfileFile, RefusesContradictions) {
  EXPECT_EQ(error_of(with("[memory]\n", "[memory]\npinned_mem = 17GB\n")),
            "a.ini [memory] pinned_mem: 17000000000 bytes are more than the 16000000000 of "
            "cpu_mem, of which it is a part; make it smaller");
  EXPECT_THAT(error_of(with("device_mem = 4GiB", "device_mem = 17GB")),
              HasSubstr("a part without a GPU"));
  EXPECT_EQ(error_of(with("[memory]\n", "[memory]\ndisk_mem = 1GB\n")),
            "a.ini [memory] disk_mem: there is no section [disk]; add it, or take disk_mem away");
  EXPECT_EQ(error_of(with("both_ways_bytes_per_s = 1.1e10", "both_ways_bytes_per_s = 2.1e10")),
            "a.ini [copies] both_ways_bytes_per_s = 21000000000: cannot be when the two directions "
            "reach 7000000000 and 9000000000 alone; correct these figures, or measure the node "
            "again");
  EXPECT_THAT(error_of(with("both_ways_bytes_per_s = 1.1e10", "both_ways_bytes_per_s = 2e9")),
              HasSubstr("[copies] both_ways_bytes_per_s = 2000000000: cannot be"));
  EXPECT_THAT(error_of(kSmall + "[disk]\nread_bytes_per_s = 1:1e8 9:2e9\nwrite_bytes_per_s = 1e9\n"
                                "together_bytes_per_s = 4e9\n"),
              HasSubstr("[disk] together_bytes_per_s = 4000000000: cannot be"));
  EXPECT_EQ(error_of(kSmall + "[widen]\nint4_bytes_per_s = 1e9\n"),
            "a.ini [widen] int4_bytes_per_s = 1e9: [products] has none of int4; add them, or take "
            "this away");
  EXPECT_THAT(error_of(with("f16 4096", "int4 4096")), HasSubstr("no section [widen]"));
  EXPECT_THAT(error_of(with("f16 4096", "int4 4096") + "[widen]\n"),
              HasSubstr("[widen] int4_bytes_per_s: this key is missing"));
  EXPECT_THAT(error_of(with("f16 store = 2e9", "f16 store = 2e9\nint8 cpu = 1e9")),
              HasSubstr("[attention] int8 device: this key is missing"));
  EXPECT_THAT(error_of(with("f16 1024 = 1:1e10 16:8e10\nf16 4096", "int4 4096")),
              HasSubstr("[products] f16: there are no products of f16"));
}

TEST(ProfileFile, IsReadFromADisk) {
  const testing::TempFolder folder;
  EXPECT_EQ(read_profile(folder.write("a.ini", kSmall)), small());
  EXPECT_THROW(read_profile(folder.file("none.ini")), ConfigError);
  EXPECT_THROW(read_profile(folder.path()), ConfigError);
}

TEST(ProfileFile, ShippedOnesAreRead) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(STAGECOACH_SOURCE_DIR "/configs/hardware")) {
    const auto profile = read_profile(entry.path().string());
    EXPECT_EQ(parse_profile(format_profile(profile), "again"), profile) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 1);
}

TEST(ProfileFile, TheT4sProductsAreBoundByMemoryOrArithmetic) {
  const auto t4 = read_profile(STAGECOACH_SOURCE_DIR "/configs/hardware/t4-gcp.ini");
  // m rows of 2 operations for each of k * n numbers, whose bytes come at 264 GB/s.
  const std::pair<Packing, double> formats[] = {
      {Packing::none, 2}, {Packing::int8, 1.0625}, {Packing::int4, 0.5625}};
  for (const auto& [packing, bytes] : formats) {
    const auto& curve = t4.formats.at(packing).products.at(4096);
    for (const double rows : {1.0, 2.0, 16.0, 22.0, 48.0, 64.0, 512.0}) {
      const double expected = std::min(21e12, rows * 2 * 264e9 / bytes);
      EXPECT_NEAR(curve.at(rows) / expected, 1, 1e-5) << to_string(packing) << " " << rows;
    }
  }
}

}  // namespace
}  // namespace stagecoach::plan
