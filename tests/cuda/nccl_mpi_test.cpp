#include <gtest/gtest.h>

#include "comm/nccl_transport.hpp"
#include "cuda/device_memory_transport.hpp"
#include "support/cuda_standin/standin.hpp"
#include "support/mpi_main.hpp"
#include "support/transport_conformance.hpp"

namespace stagecoach::comm {
namespace {

using testing::TransportCase;

class NcclOverMpi : public ::testing::TestWithParam<TransportCase> {};

TEST_P(NcclOverMpi, Holds) {
  cuda_standin::reset({.devices = 4});
  AbortSignal abort;
  const auto& options = GetParam().options;
  const auto mpi = make_mpi_transport(testing::mpi_session(), options, abort);
  const bool alone = mpi->size() == 1;
  const int device = mpi->rank_on_this_host();
  EXPECT_EQ(device, mpi->rank());  // the tests use one machine
  const auto transport = test::with_device_memory(
      make_nccl_transport(*mpi, {.transport = options, .device = device, .to_itself = alone},
                          abort),
      device, alone);
  GetParam().body(*transport, abort);
}

/// The promises of bytes: nccl_transport_test has the others, which leave senders waiting.
std::vector<TransportCase> promises() {
  auto cases = testing::transport_cases();
  std::erase_if(cases, [](const TransportCase& test_case) {
    return test_case.name.find("is_an_error") != std::string::npos;
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Promises, NcclOverMpi, ::testing::ValuesIn(promises()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stagecoach::comm
