#include "job/thread_share.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/system.hpp"
#include "comm/collectives.hpp"

namespace stagecoach::job {
namespace {

bool overlap(const CpuPlace& a, const CpuPlace& b) {
  return a.host == b.host && std::find_first_of(a.cpus.begin(), a.cpus.end(), b.cpus.begin(),
                                                b.cpus.end()) != a.cpus.end();
}

}  // namespace

int fair_threads(const CpuPlace& mine, const std::vector<CpuPlace>& all) {
  const auto sharers = std::count_if(all.begin(), all.end(),
                                     [&](const CpuPlace& other) { return overlap(mine, other); });
  return std::max(1, static_cast<int>(mine.cpus.size()) / std::max(1, static_cast<int>(sharers)));
}

int share_cpus(comm::Transport& transport) {
  const CpuPlace mine{host_name(), usable_cpus()};
  ByteWriter out;
  out.put_string(mine.host);
  out.put_vector(mine.cpus);
  std::vector<CpuPlace> all;
  for (const auto& bytes :
       comm::all_gather(transport, std::move(out).take(), "the CPUs that ranks may use")) {
    ByteReader in(bytes);
    auto host = in.get_string();
    all.push_back({std::move(host), in.get_vector<int>()});
  }
  return fair_threads(mine, all);
}

}  // namespace stagecoach::job
