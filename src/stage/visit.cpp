#include "stage/visit.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

void put(ByteWriter& out, const VisitEntry& entry) {
  out.put(entry.slot);
  out.put(entry.first_position);
  out.put_vector(entry.tokens);
  out.put(entry.next_prompt_token);
  out.put(entry.sampling.temperature);
  out.put(entry.sampling.top_k);
  out.put(entry.sampling.top_p);
  out.put(entry.sampling.key);
  out.put(entry.num_logprobs);
  out.put(entry.score_from);
  out.put(static_cast<std::uint8_t>(entry.sparse));
}

VisitEntry get_entry(ByteReader& in) {
  VisitEntry entry;
  entry.slot = in.get<std::int32_t>();
  entry.first_position = in.get<std::int32_t>();
  entry.tokens = in.get_vector<std::int32_t>();
  entry.next_prompt_token = in.get<std::int32_t>();
  entry.sampling.temperature = in.get<double>();
  entry.sampling.top_k = in.get<std::int32_t>();
  entry.sampling.top_p = in.get<double>();
  entry.sampling.key = in.get<std::uint64_t>();
  entry.num_logprobs = in.get<std::int32_t>();
  entry.score_from = in.get<std::int32_t>();
  entry.sparse = in.get<std::uint8_t>() != 0;
  return entry;
}

void put(ByteWriter& out, const device::SampleResult& result) {
  out.put(result.token);
  out.put(result.logprob);
  out.put_vector(result.top_tokens);
  out.put_vector(result.top_logprobs);
}

device::SampleResult get_result(ByteReader& in) {
  device::SampleResult result;
  result.token = in.get<std::int32_t>();
  result.logprob = in.get<float>();
  result.top_tokens = in.get_vector<std::int32_t>();
  result.top_logprobs = in.get_vector<float>();
  return result;
}

}  // namespace

bool operator==(const VisitEntry& a, const VisitEntry& b) {
  return a.slot == b.slot && a.first_position == b.first_position && a.tokens == b.tokens &&
         a.next_prompt_token == b.next_prompt_token &&
         a.sampling.temperature == b.sampling.temperature && a.sampling.top_k == b.sampling.top_k &&
         a.sampling.top_p == b.sampling.top_p && a.sampling.key == b.sampling.key &&
         a.num_logprobs == b.num_logprobs && a.score_from == b.score_from && a.sparse == b.sparse;
}

std::int64_t VisitEntry::head_rows() const {
  // Targets after the rows, of which the last is no prompt token where a new token is made.
  const auto end = first_position + static_cast<std::int64_t>(tokens.size()) + (samples() ? 0 : 1);
  const auto begin = std::max<std::int64_t>(first_position + 1, score_from);
  return std::max<std::int64_t>(end - begin, 0) + (samples() ? 1 : 0);
}

std::int64_t Visit::rows() const {
  std::int64_t rows = 0;
  for (const auto& entry : entries) {
    rows += static_cast<std::int64_t>(entry.tokens.size());
  }
  return rows;
}

std::vector<std::byte> serialize(const Visit& visit) {
  ByteWriter out;
  out.put(visit.number);
  out.put(visit.block);
  out.put(static_cast<std::uint8_t>(visit.last));
  out.put_vector(visit.releases);
  out.put<std::uint64_t>(visit.entries.size());
  for (const auto& entry : visit.entries) {
    put(out, entry);
  }
  return std::move(out).take();
}

Visit parse_visit(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Visit visit;
  visit.number = in.get<std::int64_t>();
  visit.block = in.get<std::int32_t>();
  visit.last = in.get<std::uint8_t>() != 0;
  visit.releases = in.get_vector<Release>();
  for (auto left = in.get<std::uint64_t>(); left > 0; --left) {
    visit.entries.push_back(get_entry(in));
  }
  in.expect_end();
  return visit;
}

std::vector<std::byte> serialize(const std::vector<EntryOutcome>& outcomes) {
  ByteWriter out;
  out.put<std::uint64_t>(outcomes.size());
  for (const auto& outcome : outcomes) {
    out.put(static_cast<std::uint8_t>(outcome.sampled));
    if (outcome.sampled) {
      put(out, outcome.chosen);
    }
    out.put<std::uint64_t>(outcome.prompt.size());
    for (const auto& result : outcome.prompt) {
      put(out, result);
    }
  }
  return std::move(out).take();
}

std::vector<EntryOutcome> parse_outcomes(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  std::vector<EntryOutcome> outcomes;
  for (auto left = in.get<std::uint64_t>(); left > 0; --left) {
    EntryOutcome outcome;
    outcome.sampled = in.get<std::uint8_t>() != 0;
    if (outcome.sampled) {
      outcome.chosen = get_result(in);
    }
    for (auto rows = in.get<std::uint64_t>(); rows > 0; --rows) {
      outcome.prompt.push_back(get_result(in));
    }
    outcomes.push_back(std::move(outcome));
  }
  in.expect_end();
  return outcomes;
}

}  // namespace stagecoach::stage
