#include "cli/run_comparison.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "base/units.hpp"

namespace stagecoach::cli {
namespace {

using stage::Resource;

constexpr const char* kRow = "  {:<24}{:>13}{:>13}{:>8}{:>14}{:>13}{:>8}\n";

std::string number(double value) { return value > 0 ? fmt::format("{:.4g}", value) : "-"; }

std::string bytes(double value) {
  return value > 0 ? format_bytes(static_cast<std::size_t>(value)) : "-";
}

std::string ratio(double measured, double predicted) {
  return measured > 0 && predicted > 0 ? fmt::format("{:.2f}", measured / predicted) : "-";
}

std::string job_row(const char* what, double predicted, double measured) {
  return fmt::format("  {:<24}{:>13}{:>13}{:>8}\n", what, number(predicted), number(measured),
                     ratio(measured, predicted));
}

/// What a stage's send or receive is busy with includes, when measured, waiting for the other side.
bool waits_for_others(Resource resource) {
  return resource == Resource::send || resource == Resource::receive;
}

std::string stage_rows(std::size_t stage, const stage::EngineTotals& measured,
                       const plan::StageUse& predicted) {
  std::string text;
  for (std::size_t r = 0; r < static_cast<std::size_t>(stage::kResources); ++r) {
    const auto resource = static_cast<Resource>(r);
    const auto moved = static_cast<double>(measured.bytes[r]);
    const bool timed = !waits_for_others(resource);
    const auto seconds = timed ? measured.busy_seconds[r] : 0;
    const auto expected = timed ? predicted.busy_seconds[r] : 0;
    // Queues that take part in nothing have some microseconds all the same.
    if (predicted.busy_seconds[r] <= 0 && predicted.bytes[r] <= 0 && moved <= 0) {
      continue;
    }
    text += fmt::format(kRow, fmt::format("stage {} {}", stage, to_string(resource)),
                        number(expected), number(seconds), ratio(seconds, expected),
                        bytes(predicted.bytes[r]), bytes(moved), ratio(moved, predicted.bytes[r]));
  }
  return text;
}

}  // namespace

std::string format_comparison(const job::WholeJob& whole, const job::RunTotals& measured,
                              const plan::SimulationResult& predicted) {
  const auto requests = static_cast<std::int64_t>(whole.requests.size());
  auto text = fmt::format("  {:<24}{:>13}{:>13}{:>8}\n", "", "predicted", "measured", "ratio");
  text += job_row("seconds", predicted.seconds, measured.seconds);
  text += job_row("seconds of prefill", predicted.prefill_seconds, measured.prefill_seconds);
  text += job_row("generated tokens", static_cast<double>(predicted.generated_tokens),
                  static_cast<double>(measured.generated_tokens));
  text += job_row("generated tokens/s", predicted.tokens_per_second(),
                  static_cast<double>(measured.generated_tokens) / measured.seconds);
  text += job_row("tokens/s of decoding", predicted.decode_tokens_per_second(requests),
                  measured.decode_tokens_per_second());
  text += fmt::format(kRow, "", "busy s", "measured", "ratio", "moved", "measured", "ratio");
  for (std::size_t stage = 0; stage < whole.totals.size(); ++stage) {
    text += stage_rows(stage, whole.totals[stage], predicted.stages[stage]);
  }
  if (measured.generated_tokens < predicted.generated_tokens) {
    text +=
        "  some requests ended before their max_new_tokens, which the prediction does not know: "
        "compare rates\n";
  }
  return text;
}

}  // namespace stagecoach::cli
