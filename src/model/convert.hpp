#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/spec.hpp"

namespace stagecoach::model {

/// Called after every piece with weight bytes written so far and in all.
using ConvertProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

struct ConvertReport {
  ModelSpec spec;
  WeightFormat weights;
  std::uint64_t size_bytes = 0;  ///< of the store file
  double seconds = 0;
  bool has_tokenizer = false;
  std::vector<std::string> warnings;  ///< one line a tensor: NaN or infinite weights
};

/// Makes the store `to` from the checkpoint folder `from`, in pieces: memory use does not grow with
/// the model. Weights are rounded to f16, and packed from there where `weights` says so. The store
/// appears under its name only when whole. ConfigError: `to` exists and `overwrite` is false; a
/// tensor is missing or wrong (see Checkpoint); finite values of a tensor are too large for f16,
/// with the tensor's name and how many.
ConvertReport convert_checkpoint(const std::string& from, const std::string& to, bool overwrite,
                                 const ConvertProgress& progress, const WeightFormat& weights = {});

/// Makes a store of dummy weights (fill_dummy), without a tokenizer.
ConvertReport convert_dummy(const ModelSpec& spec, std::uint64_t seed, const std::string& to,
                            bool overwrite, const ConvertProgress& progress,
                            const WeightFormat& weights = {});

}  // namespace stagecoach::model
