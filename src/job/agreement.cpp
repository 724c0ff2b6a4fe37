#include "job/agreement.hpp"

#include "base/bytes.hpp"
#include "comm/collectives.hpp"

namespace stagecoach::job {
namespace {

struct Outcome {
  int exit_code = 0;
  std::string message;
};

Outcome attempt(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const TransportError&) {
    throw;
  } catch (const JobAborted&) {
    throw;
  } catch (const ConfigError& error) {
    return {2, error.what()};
  } catch (const std::exception& error) {
    return {1, error.what()};
  }
}

}  // namespace

void agree(comm::Transport& transport, const std::string& what, const std::function<void()>& work) {
  const auto mine = attempt(work);
  ByteWriter out;
  out.put(mine.exit_code);
  out.put_string(mine.message);
  const auto all = comm::all_gather(transport, std::move(out).take(), what);
  for (int rank = 0; rank < transport.size(); ++rank) {
    ByteReader in(all[static_cast<std::size_t>(rank)]);
    const auto exit_code = in.get<int>();
    const auto message = in.get_string();
    if (exit_code != 0) {
      const bool alone = transport.size() == 1 || rank == 0;
      throw JobRefused(alone ? message : fmt::format("{}: {}", transport.describe(rank), message),
                       exit_code, transport.rank() == 0);
    }
  }
}

void agree_on(comm::Transport& transport, const std::vector<Fact>& facts) {
  ByteWriter out;
  for (const auto& fact : facts) {
    out.put_string(fact.value);
  }
  const auto all = comm::all_gather(transport, std::move(out).take(), "the ranks' agreement");
  for (int rank = 1; rank < transport.size(); ++rank) {
    ByteReader first(all[0]);
    ByteReader other(all[static_cast<std::size_t>(rank)]);
    for (const auto& fact : facts) {
      const auto expected = first.get_string();
      const auto found = other.get_string();
      if (expected != found) {
        throw JobRefused(
            fmt::format("{} has another {} than {}: {} instead of {}", transport.describe(rank),
                        fact.name, transport.describe(0), found, expected),
            2, transport.rank() == 0);
      }
    }
  }
}

}  // namespace stagecoach::job
