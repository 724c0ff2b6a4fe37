#pragma once

#include "model/spec.hpp"

namespace stagecoach::testing {

/// A small valid model with `layers` layers.
inline model::ModelSpec small_spec(std::int64_t layers) {
  model::ModelSpec spec;
  spec.name = "small";
  spec.layers = layers;
  spec.hidden = 64;
  spec.heads = 4;
  spec.kv_heads = 4;
  spec.head_dim = 16;
  spec.ffn = 256;
  spec.vocab = 128;
  spec.max_positions = 512;
  spec.position_offset = 2;
  return spec;
}

}  // namespace stagecoach::testing
