#include "e2e/tiny_opt.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <stdexcept>

#include "base/file.hpp"
#include "model/convert.hpp"

namespace stagecoach::testing {

TinyOpt::TinyOpt() : store_(folder_.file("tiny-opt.h5")) {
  model::convert_checkpoint(tiny_opt_folder(), store_, false, nullptr);
}

const std::string& TinyOpt::packed_store(const model::WeightFormat& format) {
  auto& path = packed_stores_[describe(format)];
  if (path.empty()) {
    path = folder_.file(fmt::format("packed-{}.h5", packed_stores_.size()));
    model::convert_checkpoint(tiny_opt_folder(), path, false, nullptr, format);
  }
  return path;
}

std::string TinyOpt::fresh_file(const std::string& stem) {
  return folder_.file(fmt::format("{}-{}.jsonl", stem, ++files_));
}

nlohmann::json tiny_opt_reference() {
  return nlohmann::json::parse(
      read_text_file(STAGECOACH_SOURCE_DIR "/tests/data/tiny_opt_reference.json"));
}

job::JobConfig tiny_job(const TinyOpt& tiny, const std::string& prompts,
                        const std::string& output) {
  job::JobConfig config;
  config.model_path = tiny.store();
  config.prompts_path = prompts;
  config.output_path = output;
  config.threads = 1;
  config.policies.front().device_mem_bytes = std::size_t{512} << 20;
  config.timeout_seconds = 120;
  config.log_level = "error";
  return config;
}

std::map<std::string, std::string> read_results(const std::string& path) {
  std::map<std::string, std::string> results;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const auto parsed = nlohmann::json::parse(line);
    const auto& id = parsed.at("id");
    const auto key = id.is_string() ? id.get<std::string>() : id.dump();
    if (!results.emplace(key, line).second) {
      throw std::runtime_error(fmt::format("{}: two results of {}", path, key));
    }
  }
  return results;
}

void expect_same_results(const std::map<std::string, std::string>& results,
                         const std::map<std::string, std::string>& expected) {
  ASSERT_EQ(results.size(), expected.size());
  for (const auto& [id, line] : expected) {
    const auto& other = results.at(id);
    if (other != line) {
      const auto [a, b] = std::mismatch(line.begin(), line.end(), other.begin(), other.end());
      const auto place =
          static_cast<std::size_t>(std::max<std::ptrdiff_t>(a - line.begin() - 60, 0));
      ADD_FAILURE() << "request " << id << " differs at byte " << b - other.begin() << ":\n"
                    << line.substr(place, 120) << "\n"
                    << other.substr(place, 120);
    }
  }
}

namespace {

/// Requests that the model ends with </s> (at temperature 1, with these seeds and ids).
nlohmann::json ending_request(int which) {
  constexpr int kSeeds[] = {47, 63, 65};
  const int seed = kSeeds[which];
  return {{"id", seed},
          {"prompt", which == 2 ? "And he died." : "So be it."},
          {"max_new_tokens", 24},
          {"temperature", 1.0},
          {"seed", seed}};
}

}  // namespace

std::string mixed_requests(int count) {
  std::mt19937 random(12345);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  std::string lines;
  for (int i = 0; i < count; ++i) {
    if (i == 3 || i == 11 || i == 17) {
      lines += ending_request(i / 8).dump() + "\n";
      continue;
    }
    nlohmann::json request = {{"id", fmt::format("r{}", i)}, {"max_new_tokens", pick(1, 24)}};
    // A few long prompts, 1 and 400 among them, and many short ones.
    const int length = i == 0 ? 1 : i == 1 ? 400 : i % 5 == 0 ? pick(100, 400) : pick(1, 40);
    std::vector<int> tokens = {2};
    while (static_cast<int>(tokens.size()) < length) {
      tokens.push_back(pick(3, 2047));
    }
    request["prompt_token_ids"] = tokens;
    if (i % 3 == 1) {
      request["temperature"] = 0.8;
      request["seed"] = i;
      request["top_k"] = i % 2 == 0 ? 50 : 0;
      request["top_p"] = 0.95;
    }
    if (i % 4 == 2) {
      request["stop"] = {",", " the"};
    }
    if (i % 7 == 3) {
      request["ignore_eos"] = true;
    }
    lines += request.dump() + "\n";
  }
  return lines;
}

}  // namespace stagecoach::testing
