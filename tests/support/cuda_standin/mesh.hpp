#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace cuda_standin {

/// A peer that went away, or that sends something else than was expected.
struct MeshError : std::runtime_error {
  enum class Kind { peer_left, mismatch, same_device, system } kind;
  MeshError(Kind what, const std::string& text) : std::runtime_error(text), kind(what) {}
};

/// A file descriptor's owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] bool there() const { return number_ >= 0; }

 private:
  int number_;
};

/// Sockets between all ranks of one communicator, and of each rank to itself, within one machine.
/// Each directed pair has its own, which no other rank reads. Nothing blocks.
class Mesh {
 public:
  /// `name`: of the communicator, any bytes.
  Mesh(std::string name, int ranks, int rank, int device);

  /// Goes on connecting; true when all ranks have come. MeshError::same_device if one of them uses
  /// this rank's device.
  bool connect();

  /// The socket to a peer, and the one from it.
  [[nodiscard]] int to(int peer) const { return to_[static_cast<std::size_t>(peer)].get(); }
  [[nodiscard]] int from(int peer) const { return from_[static_cast<std::size_t>(peer)].get(); }

  /// Every peer finds its sockets at their end.
  void hang_up() const;

 private:
  struct Hello {
    std::int32_t rank = 0;
    std::int32_t device = 0;
  };
  [[nodiscard]] std::string address(int rank) const;
  void call(int peer);
  void accept_all();
  void check_devices() const;
  bool take_hello(Descriptor& socket);

  const std::string name_;
  const int ranks_;
  const int rank_;
  const int device_;
  Descriptor listener_;
  std::vector<Descriptor> to_;
  std::vector<Descriptor> from_;
  std::vector<int> devices_;           ///< by rank
  std::vector<Descriptor> strangers_;  ///< have not said yet who they are
};

/// One message. A sender is done when the receiver has all of it, so a send and a receive meet, as
/// NCCL's may.
class Transfer {
 public:
  Transfer(bool sends, int peer, std::byte* data, std::uint64_t size_bytes)
      : sends_(sends), peer_(peer), data_(data), size_bytes_(size_bytes) {}
  [[nodiscard]] bool sends() const { return sends_; }
  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] bool done() const { return stage_ == Stage::done; }

  /// Goes as far as it can. MeshError.
  void advance(const Mesh& mesh);

 private:
  enum class Stage { length, data, receipt, done };
  bool send_some(int socket, const std::byte* data, std::uint64_t size_bytes);
  bool receive_some(int socket, std::byte* data, std::uint64_t size_bytes);
  void check_length() const;

  bool sends_;
  int peer_;
  std::byte* data_;
  std::uint64_t size_bytes_;
  Stage stage_ = Stage::length;
  std::uint64_t moved_ = 0;  ///< of the stage's bytes
  std::uint64_t length_ = 0;
  std::byte receipt_{1};
};

}  // namespace cuda_standin
