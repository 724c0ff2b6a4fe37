#include "comm/mpi_message.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/back_off.hpp"
#include "comm/mpi_check.hpp"

namespace stagecoach::comm {
namespace {

/// Polls `requests` until all are done. `on_done(index, status)` sees each of them.
template <typename OnDone>
void wait_all(std::span<MPI_Request> requests, Patience& patience, const OnDone& on_done) {
  std::vector<int> indices(requests.size());
  std::vector<MPI_Status> statuses(requests.size());
  std::size_t left = requests.size();
  BackOff back_off;
  while (left > 0) {
    int done = 0;
    const int code = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &done,
                                  indices.data(), statuses.data());
    if (code != MPI_ERR_IN_STATUS) {
      check_mpi(code, "look for a message");
    }
    STAGECOACH_CHECK(done != MPI_UNDEFINED);
    for (std::size_t i = 0; i < static_cast<std::size_t>(done); ++i) {
      if (code == MPI_ERR_IN_STATUS) {
        check_mpi(statuses[i].MPI_ERROR, "transfer a message");
      }
      on_done(static_cast<std::size_t>(indices[i]), statuses[i]);
    }
    left -= static_cast<std::size_t>(done);
    if (done > 0) {
      patience.renew();
      back_off = BackOff();
    } else {
      patience.check();
      back_off.pause();
    }
  }
}

}  // namespace

MpiMessage::MpiMessage(const MpiPeer& peer, std::size_t piece_bytes)
    : peer_(peer), piece_bytes_(piece_bytes) {}

int MpiMessage::piece_length(std::size_t piece) const {
  return static_cast<int>(std::min(piece_bytes_, size_bytes_ - piece * piece_bytes_));
}

void MpiMessage::send(std::span<const std::byte> data, Patience& patience) {
  length_ = data.size();
  check_mpi(MPI_Isend(&length_, sizeof(length_), MPI_BYTE, peer_.rank, peer_.tag,
                      peer_.communicator, &length_request_),
            "send a message's length");
  set_pieces(data.size());
  for (std::size_t i = 0; i < piece_requests_.size(); ++i) {
    check_mpi(MPI_Isend(data.data() + i * piece_bytes_, piece_length(i), MPI_BYTE, peer_.rank,
                        peer_.tag, peer_.communicator, &piece_requests_[i]),
              "send a message");
  }
  wait_for_length(patience);
  wait_for_pieces(patience);
}

void MpiMessage::receive(std::span<std::byte> data, Patience& patience) {
  post_length();
  post_pieces(data);
  wait_for_length(patience);
  patience.check_length(data.size(), length_);
  wait_for_pieces(patience);
}

std::vector<std::byte> MpiMessage::receive_any(Patience& patience) {
  post_length();
  wait_for_length(patience);
  received_.resize(length_);
  post_pieces(received_);
  wait_for_pieces(patience);
  return std::move(received_);
}

void MpiMessage::post_length() {
  receiving_ = true;
  check_mpi(MPI_Irecv(&length_, sizeof(length_), MPI_BYTE, peer_.rank, peer_.tag,
                      peer_.communicator, &length_request_),
            "await a message's length");
}

void MpiMessage::post_pieces(std::span<std::byte> data) {
  set_pieces(data.size());
  for (std::size_t i = 0; i < piece_requests_.size(); ++i) {
    check_mpi(MPI_Irecv(data.data() + i * piece_bytes_, piece_length(i), MPI_BYTE, peer_.rank,
                        peer_.tag, peer_.communicator, &piece_requests_[i]),
              "await a message");
  }
}

void MpiMessage::set_pieces(std::size_t size_bytes) {
  size_bytes_ = size_bytes;
  piece_requests_.assign((size_bytes + piece_bytes_ - 1) / piece_bytes_, MPI_REQUEST_NULL);
}

void MpiMessage::wait_for_length(Patience& patience) {
  wait_all({&length_request_, 1}, patience, [&](std::size_t, const MPI_Status& status) {
    check_received(status, sizeof(length_), patience);
  });
}

void MpiMessage::wait_for_pieces(Patience& patience) {
  wait_all(piece_requests_, patience, [&](std::size_t piece, const MPI_Status& status) {
    check_received(status, piece_length(piece), patience);
  });
}

void MpiMessage::check_received(const MPI_Status& status, int expected_bytes,
                                const Patience& patience) const {
  if (receiving_) {
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "count a message");
    patience.check_length(static_cast<std::size_t>(expected_bytes),
                          static_cast<std::size_t>(count));
  }
}

void MpiMessage::cancel() noexcept {
  if (!receiving_) {
    return;  // a send is with MPI already, and cannot be taken back
  }
  const auto cancel_one = [](MPI_Request& request) {
    if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
    }
  };
  // Last first: a length must not come into the place of bytes whose receive is gone.
  for (auto request = piece_requests_.rbegin(); request != piece_requests_.rend(); ++request) {
    cancel_one(*request);
  }
  cancel_one(length_request_);
}

bool MpiMessage::finished() noexcept {
  const auto done = [](MPI_Request& request) {
    int flag = 0;
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    return request == MPI_REQUEST_NULL;
  };
  bool all = done(length_request_);
  for (auto& request : piece_requests_) {
    all = done(request) && all;
  }
  return all;
}

}  // namespace stagecoach::comm
