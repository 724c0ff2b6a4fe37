#include "device/cuda/row_operations.hpp"

#include <span>

#include "device/cuda/packed_kernels.hpp"
#include "device/cuda/row_kernels.hpp"

namespace stagecoach::device::cuda {

void embed(Operation& operation, const EmbedArgs& args) {
  if (args.tokens.empty()) {
    return;
  }
  const auto* const tokens = operation.upload(std::span(args.tokens));
  const auto* const positions = operation.upload(std::span(args.positions));
  const auto launch_one = args.token_table.format.packed() ? launch_embed_packed : launch_embed;
  launch_one(operation.stream(), args, tokens, positions);
}

void layer_norm(Operation& operation, const LayerNormArgs& args) {
  launch_layer_norm(operation.stream(), args);
}

void gather_rows(Operation& operation, const GatherRowsArgs& args) {
  if (args.rows.empty()) {
    return;
  }
  const auto* const rows = operation.upload(std::span(args.rows));
  launch_gather_rows(operation.stream(), args, rows);
}

void widen(Operation& operation, const WidenArgs& args) { launch_widen(operation.stream(), args); }

}  // namespace stagecoach::device::cuda
