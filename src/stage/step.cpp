#include "stage/step.hpp"

#include <array>

namespace stagecoach::stage {
namespace {

constexpr std::array<const char*, kStepKinds> kStepNames = {
    "receive_hidden", "load_weights",  "read_weights",
    "stage_weights",  "load_hidden",   "read_hidden",
    "read_kv",        "load_kv",       "widen_weights",
    "embed",          "attention_in",  "save_rows",
    "store_kv",       "write_kv",      "score_kv",
    "save_scores",    "attend_cpu",    "load_partials",
    "attention",      "attention_out", "mlp",
    "store_hidden",   "write_hidden",  "head",
    "send_plan",      "send_hidden",   "send_tokens"};

constexpr std::array<const char*, kResources> kResourceNames = {
    "compute", "h2d", "d2h", "disk read", "disk write", "cpu", "send", "receive"};

constexpr std::array<const char*, static_cast<std::size_t>(BufferKind::outcomes) + 1> kBufferNames =
    {"hidden_device",  "hidden_cpu",     "hidden_disk",  "hidden_work",     "hidden_staging",
     "weights",        "weight_staging", "wide_weights", "workspace",       "kv_device",
     "kv_cpu",         "kv_open",        "kv_disk",      "kv_passing",      "kv_staging",
     "kv_cpu_staging", "rows_cpu",       "partials_cpu", "partials_device", "scores_cpu",
     "scores_device",  "outcomes"};

}  // namespace

std::string to_string(StepKind kind) { return kStepNames.at(static_cast<std::size_t>(kind)); }
std::string to_string(Resource resource) {
  return kResourceNames.at(static_cast<std::size_t>(resource));
}
std::string to_string(BufferKind kind) { return kBufferNames.at(static_cast<std::size_t>(kind)); }

}  // namespace stagecoach::stage
