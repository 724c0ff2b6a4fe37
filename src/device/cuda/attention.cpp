#include "device/cuda/attention.hpp"

#include "base/error.hpp"

namespace stagecoach::device::cuda {

void store_kv(Operation&, const AttentionArgs&) { throw InternalError("not written yet"); }
void attention(Operation&, const AttentionArgs&) { throw InternalError("not written yet"); }
void attention_partials(Operation&, const AttentionArgs&) {
  throw InternalError("not written yet");
}
void attention_scores(Operation&, const AttentionArgs&) { throw InternalError("not written yet"); }
void select_top(Operation&, const AttentionArgs&) { throw InternalError("not written yet"); }
void gather_values(Operation&, const AttentionArgs&) { throw InternalError("not written yet"); }
void scatter_values(Operation&, const AttentionArgs&) { throw InternalError("not written yet"); }
OperationBytes attention_bytes(const ScratchShape&) { return {}; }

}  // namespace stagecoach::device::cuda
