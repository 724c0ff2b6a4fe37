#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/config.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::testing {

/// The bundled checkpoint as a store, made once a folder.
class TinyOpt {
 public:
  TinyOpt();
  [[nodiscard]] const std::string& store() const noexcept { return store_; }
  /// The same, its weights packed; made when first asked for.
  [[nodiscard]] const std::string& packed_store(const model::WeightFormat& format);
  [[nodiscard]] const TempFolder& folder() const noexcept { return folder_; }
  /// A file in the folder that did not exist before.
  [[nodiscard]] std::string fresh_file(const std::string& stem);

 private:
  TempFolder folder_;
  std::string store_;
  std::map<std::string, std::string> packed_stores_;
  int files_ = 0;
};

/// tests/data/tiny_opt_reference.json: float64 outputs of an independent implementation.
nlohmann::json tiny_opt_reference();

/// A quiet loopback job on the store, with one thread a stage.
job::JobConfig tiny_job(const TinyOpt& tiny, const std::string& prompts, const std::string& output);

/// Lines of a result file by request id.
std::map<std::string, std::string> read_results(const std::string& path);

/// Fails the test with the first place where a result differs.
void expect_same_results(const std::map<std::string, std::string>& results,
                         const std::map<std::string, std::string>& expected);

/// About `count` requests of every kind that must not depend on how they are run: prompts of 1 to
/// 400 tokens, greedy and sampled, ends by length, </s> and stop strings. One JSON line each.
std::string mixed_requests(int count);

}  // namespace stagecoach::testing
