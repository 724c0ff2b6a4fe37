#pragma once

#include <string>
#include <vector>

#include "comm/transport.hpp"

namespace stagecoach::job {

/// Where a rank may run: its machine and the CPUs of its affinity mask.
struct CpuPlace {
  std::string host;
  std::vector<int> cpus;
};

/// Threads for a rank: its CPUs, divided by the ranks that may use some of the same ones (itself
/// included); at least one. So it is right for ranks bound to cores or sockets and for unbound
/// ones.
int fair_threads(const CpuPlace& mine, const std::vector<CpuPlace>& all);

/// `fair_threads` of this rank among all of the job. Every rank must call it.
int share_cpus(comm::Transport& transport);

}  // namespace stagecoach::job
