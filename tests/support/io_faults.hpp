#pragma once

#include <string>
#include <vector>

namespace stagecoach::testing {

/// `command` with the library of io_faults.cpp below it and these settings ("NAME=value"), which
/// change what the program sees of its disk:
///
/// STAGECOACH_TEST_FAIL_READ=n, STAGECOACH_TEST_FAIL_WRITE=n: the n-th transfer (from 1) fails with
/// EIO or STAGECOACH_TEST_FAIL_ERRNO. Transfers count if offset and size are multiples of 4096 and
/// the descriptor has O_DIRECT or its file has no name.
/// STAGECOACH_TEST_NO_URING=1: the kernel refuses io_uring (EPERM).
/// STAGECOACH_TEST_NO_DIRECT=1: O_DIRECT is refused (EINVAL).
/// STAGECOACH_TEST_NO_TMPFILE=1, STAGECOACH_TEST_NO_FALLOCATE=1: refused (EOPNOTSUPP).
std::vector<std::string> with_io_faults(const std::vector<std::string>& settings,
                                        const std::vector<std::string>& command);

}  // namespace stagecoach::testing
