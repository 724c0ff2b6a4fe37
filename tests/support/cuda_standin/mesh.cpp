#include "support/cuda_standin/mesh.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace cuda_standin {
namespace {

constexpr std::uint64_t kPieceBytes = 1 << 20;

[[noreturn]] void system_failure(const std::string& what) {
  throw MeshError(MeshError::Kind::system, what + ": " + std::strerror(errno));
}

// An address that no file has: it goes with its socket.
socklen_t fill(sockaddr_un& address, const std::string& name) {
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) {
    throw MeshError(MeshError::Kind::system, "a communicator's name is too long");
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Descriptor make_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.there()) {
    system_failure("cannot make a socket");
  }
  return made;
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) {
    close(number_);
  }
}

Mesh::Mesh(std::string name, int ranks, int rank, int device)
    : name_(std::move(name)),
      ranks_(ranks),
      rank_(rank),
      device_(device),
      listener_(make_socket()),
      to_(static_cast<std::size_t>(ranks)),
      from_(static_cast<std::size_t>(ranks)),
      devices_(static_cast<std::size_t>(ranks)) {
  sockaddr_un own{};
  const socklen_t length = fill(own, address(rank));
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&own), length) != 0 ||
      listen(listener_.get(), std::max(ranks, 8)) != 0) {
    system_failure("cannot be rank " + std::to_string(rank) + " of a communicator");
  }
}

std::string Mesh::address(int rank) const {
  return "cuda_standin." + name_ + "." + std::to_string(rank);
}

bool Mesh::connect() {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (!to_[static_cast<std::size_t>(peer)].there()) {
      call(peer);
    }
  }
  accept_all();
  const auto all = [](const std::vector<Descriptor>& sockets) {
    return std::all_of(sockets.begin(), sockets.end(),
                       [](const Descriptor& socket) { return socket.there(); });
  };
  if (!all(to_) || !all(from_)) {
    return false;
  }
  check_devices();
  return true;
}

// Only once all have met, so that all are told.
void Mesh::check_devices() const {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_ && devices_[static_cast<std::size_t>(peer)] == device_) {
      throw MeshError(MeshError::Kind::same_device,
                      "Duplicate GPU detected : rank " + std::to_string(rank_) + " and rank " +
                          std::to_string(peer) + " both on CUDA device " + std::to_string(device_));
    }
  }
}

void Mesh::call(int peer) {
  Descriptor made = make_socket();
  sockaddr_un theirs{};
  const socklen_t length = fill(theirs, address(peer));
  if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&theirs), length) != 0) {
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != ENOENT) {
      system_failure("cannot connect to rank " + std::to_string(peer));
    }
    return;  // not there yet
  }
  const Hello hello{rank_, device_};
  if (::send(made.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello)) {
    to_[static_cast<std::size_t>(peer)] = std::move(made);
  }
}

void Mesh::accept_all() {
  while (true) {
    Descriptor made(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!made.there()) {
      break;
    }
    strangers_.push_back(std::move(made));
  }
  std::vector<Descriptor> still;
  for (Descriptor& stranger : strangers_) {
    if (!take_hello(stranger)) {
      still.push_back(std::move(stranger));
    }
  }
  strangers_ = std::move(still);
}

bool Mesh::take_hello(Descriptor& socket) {
  Hello hello;
  const auto got = recv(socket.get(), &hello, sizeof(hello), MSG_PEEK);
  if (got != sizeof(hello)) {
    return got == 0;  // it has hung up again
  }
  (void)recv(socket.get(), &hello, sizeof(hello), 0);
  if (hello.rank < 0 || hello.rank >= ranks_) {
    throw MeshError(MeshError::Kind::mismatch, "ranks of different numbers of ranks meet");
  }
  from_[static_cast<std::size_t>(hello.rank)] = std::move(socket);
  devices_[static_cast<std::size_t>(hello.rank)] = hello.device;
  return true;
}

void Mesh::hang_up() const {
  for (const auto* const sockets : {&to_, &from_}) {
    for (const Descriptor& socket : *sockets) {
      if (socket.there()) {
        shutdown(socket.get(), SHUT_RDWR);
      }
    }
  }
}

// Both: true when all bytes have passed.
bool Transfer::send_some(int socket, const std::byte* data, std::uint64_t size_bytes) {
  while (moved_ < size_bytes) {
    const auto sent = ::send(socket, data + moved_, std::min(kPieceBytes, size_bytes - moved_),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) {
        return false;
      }
      throw MeshError(MeshError::Kind::peer_left, "rank " + std::to_string(peer_) + " has left");
    }
    moved_ += static_cast<std::uint64_t>(sent);
  }
  moved_ = 0;
  return true;
}

bool Transfer::receive_some(int socket, std::byte* data, std::uint64_t size_bytes) {
  while (moved_ < size_bytes) {
    const auto got =
        recv(socket, data + moved_, std::min(kPieceBytes, size_bytes - moved_), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return false;
    }
    if (got <= 0) {
      throw MeshError(MeshError::Kind::peer_left, "rank " + std::to_string(peer_) + " has left");
    }
    moved_ += static_cast<std::uint64_t>(got);
  }
  moved_ = 0;
  return true;
}

void Transfer::check_length() const {
  if (length_ != size_bytes_) {
    throw MeshError(MeshError::Kind::mismatch,
                    "rank " + std::to_string(peer_) + " sends " + std::to_string(length_) +
                        " bytes where " + std::to_string(size_bytes_) + " are to be received");
  }
}

void Transfer::advance(const Mesh& mesh) {
  const int socket = sends_ ? mesh.to(peer_) : mesh.from(peer_);
  auto* const length = reinterpret_cast<std::byte*>(&length_);
  if (stage_ == Stage::length) {
    if (sends_) {
      length_ = size_bytes_;
    }
    if (!(sends_ ? send_some(socket, length, sizeof(length_))
                 : receive_some(socket, length, sizeof(length_)))) {
      return;
    }
    check_length();
    stage_ = Stage::data;
  }
  if (stage_ == Stage::data) {
    if (!(sends_ ? send_some(socket, data_, size_bytes_)
                 : receive_some(socket, data_, size_bytes_))) {
      return;
    }
    stage_ = Stage::receipt;
  }
  if (stage_ == Stage::receipt &&
      (sends_ ? receive_some(socket, &receipt_, 1) : send_some(socket, &receipt_, 1))) {
    stage_ = Stage::done;
  }
}

}  // namespace cuda_standin
