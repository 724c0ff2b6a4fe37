#include "e2e/tiny_opt.hpp"

#include <fmt/format.h>

#include <fstream>
#include <random>
#include <stdexcept>

#include "base/file.hpp"
#include "model/convert.hpp"

namespace stagecoach::testing {

TinyOpt::TinyOpt() : store_(folder_.file("tiny-opt.h5")) {
  model::convert_checkpoint(tiny_opt_folder(), store_, false, nullptr);
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
  config.device_mem_bytes = std::size_t{512} << 20;
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

std::string mixed_requests(int count) {
  std::mt19937 random(12345);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  std::string lines;
  for (int i = 0; i < count; ++i) {
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
