#pragma once

#include "cli/options.hpp"
#include "device/device.hpp"
#include "job/compression.hpp"

namespace stagecoach::cli {

/// How weights and cache are kept, and how much of the cache attention reads.
po::options_description compression_options();

job::Compression read_compression(const Options& options);
device::KvFormat read_kv_format(const Options& options);
/// In (0, 1].
double read_attention_sparsity(const Options& options);

}  // namespace stagecoach::cli
