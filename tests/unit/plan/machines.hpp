#pragma once

#include <cstddef>

#include "model/spec.hpp"
#include "plan/cluster.hpp"
#include "plan/node_profile.hpp"

namespace stagecoach::testing {

inline constexpr std::size_t kGiB = std::size_t{1} << 30;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A node with one GPU, of round numbers like a T4's: 15 GiB, 200 GiB of DRAM, a disk of 2 GB/s
/// read and 1 GB/s written.
inline plan::NodeProfile gpu_node() {
  plan::NodeProfile node;
  node.host = "gpu";
  node.gpu = true;
  node.threads = 16;
  node.cores = 16;
  node.device_mem_bytes = 15 * kGiB;
  node.cpu_mem_bytes = 200 * kGiB;
  node.pinned_mem_bytes = 100 * kGiB;
  node.disk_mem_bytes = 1000 * kGiB;
  node.memory_bytes_per_second = 60e9;
  node.copies = {.to_device_pinned = 12e9,
                 .to_device_pageable = 6e9,
                 .from_device_pinned = 12e9,
                 .from_device_pageable = 6e9,
                 .both_ways = 20e9};
  node.disk = {.read = plan::Curve(2e9), .write = plan::Curve(1e9), .together = 2e9};
  const plan::Curve products({{1, 1e11}, {64, 8e12}, {512, 21e12}});
  node.formats[Packing::none] = {.products = {{4096, products}}, .widen = 0};
  node.formats[Packing::int4] = {.products = {{4096, products}}, .widen = 60e9};
  const plan::CacheRates cache{
      .device = plan::Curve(150e9), .cpu = plan::Curve(20e9), .store = 10e9};
  node.caches[device::KvType::f16] = cache;
  node.caches[device::KvType::int4] = cache;
  node.prompt_attention_flops = 5e12;
  node.row_bytes_per_second = 100e9;
  node.sampled_logits_per_second = 1e9;
  node.step = {.compute = 2e-5, .copy = 1e-5, .disk = 1e-4, .cpu = 2e-5};
  node.link = {.latency_seconds = 2e-4, .bytes_per_second = 2e9};
  node.local_link = {.latency_seconds = 2e-5, .bytes_per_second = 8e9};
  return node;
}

/// A node whose device is its own processor.
inline plan::NodeProfile host_node() {
  auto node = gpu_node();
  node.host = "host";
  node.gpu = false;
  node.threads = 2;
  node.cores = 2;
  node.device_mem_bytes = 8 * kGiB;
  node.cpu_mem_bytes = 8 * kGiB;
  node.pinned_mem_bytes = kGiB;
  node.disk_mem_bytes = 50 * kGiB;
  node.memory_bytes_per_second = 20e9;
  node.copies.both_ways = 10e9;
  const plan::Curve products({{1, 1e10}, {16, 8e10}, {256, 1.2e11}});
  node.formats[Packing::none] = {.products = {{1024, products}}, .widen = 0};
  node.formats[Packing::int4] = {.products = {{1024, products}}, .widen = 5e9};
  node.prompt_attention_flops = 3e10;
  node.row_bytes_per_second = 5e9;
  node.sampled_logits_per_second = 1e8;
  return node;
}

/// A model of this size; heads of 64, a small vocabulary.
inline model::ModelSpec model_of(std::int64_t layers, std::int64_t hidden,
                                 std::int64_t vocab = 1000) {
  model::ModelSpec spec;
  spec.name = "test";
  spec.layers = layers;
  spec.hidden = hidden;
  spec.heads = hidden / 64;
  spec.kv_heads = spec.heads;
  spec.head_dim = 64;
  spec.ffn = 4 * hidden;
  spec.vocab = vocab;
  spec.max_positions = 2048;
  spec.position_offset = 2;
  return spec;
}

}  // namespace stagecoach::testing
