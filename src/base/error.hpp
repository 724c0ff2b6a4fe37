#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace stagecoach {

/// Base of every error that Stagecoach throws. `what()` is one line: what, where, what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user's input is wrong: a flag, a file, a request, a job that does not fit. Exit code 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// An outside file does not follow its format. Exit code 2.
class FormatError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// A budget or the machine has too little memory. Exit code 2: found before the job starts.
class OutOfMemory : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// The operating system refused to read or write.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A message between ranks failed or did not come in time.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// An MPI call returned an error.
class MpiError : public TransportError {
 public:
  using TransportError::TransportError;
};

/// An NCCL call returned an error.
class NcclError : public TransportError {
 public:
  using TransportError::TransportError;
};

/// A CUDA or cuBLAS call returned an error.
class CudaError : public Error {
 public:
  using Error::Error;
};

/// Another rank or thread of this job failed first; its own report names the cause.
class JobAborted : public Error {
 public:
  using Error::Error;
};

/// A broken promise inside Stagecoach: a bug, never the user's fault.
class InternalError : public Error {
 public:
  using Error::Error;
};

namespace detail {
[[noreturn]] void fail_check(const char* expression, const std::string& message, const char* file,
                             int line);
}  // namespace detail

}  // namespace stagecoach

/// Throws InternalError naming the expression and the place when `expression` is false.
/// (clang 14, whose tools check this code, has no std::source_location.)
#define STAGECOACH_CHECK(expression, ...)                                                    \
  do {                                                                                       \
    if (!(expression)) [[unlikely]] {                                                        \
      ::stagecoach::detail::fail_check(#expression, ::fmt::format("" __VA_ARGS__), __FILE__, \
                                       __LINE__);                                            \
    }                                                                                        \
  } while (false)
