#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/small_case.hpp"
#include "device/host/host_device.hpp"

namespace stagecoach::test {

/// What a pipeline may be built without.
enum class Fault {
  none,
  load_not_waited_for,    ///< the move does not wait for its input
  move_not_waited_for,    ///< the store does not wait for its input
  input_used_again,       ///< the load does not wait for the move that reads its buffer
  output_used_again,      ///< the move does not wait for the store that reads its buffer
  result_not_waited_for,  ///< the host does not wait for the store
  wrong_stream            ///< the move is in a stream that nothing waits for
};

/// The engine's way in little: a host's thread fills memory, which is copied to the device, moved
/// there by what stands for a kernel, copied back, and compared by another thread, with two
/// buffers of each kind and a queue for each resource.
class Pipeline {
 public:
  Pipeline(CudaCase& on, std::size_t size_bytes, bool pinned) : case_(on), size_bytes_(size_bytes) {
    for (std::size_t turn = 0; turn < 2; ++turn) {
      sources_[turn].resize(size_bytes);
      results_[turn].resize(size_bytes);
      inputs_[turn] = on.take<std::byte>(size_bytes);
      outputs_[turn] = on.take<std::byte>(size_bytes);
      if (pinned) {
        pins_.push_back(on->pin(sources_[turn]));
        pins_.push_back(on->pin(results_[turn]));
      }
    }
  }

  /// How many of `rounds` came out wrong.
  int run(int rounds, Fault fault) {
    int wrong = 0;  // of the checking thread
    const auto fill = device::make_host_stream("fill", case_.abort());
    const auto check = device::make_host_stream("check", case_.abort());
    const auto h2d = case_->create_stream("h2d");
    const auto compute = case_->create_stream("compute");
    const auto elsewhere = case_->create_stream("elsewhere");
    const auto d2h = case_->create_stream("d2h");
    std::array<device::Event, 2> loaded;
    std::array<device::Event, 2> moved;
    std::array<device::Event, 2> stored;
    std::array<device::Event, 2> checked;
    const auto wait = [&](device::Stream& stream, const device::Event& event, Fault without) {
      if (fault != without) {
        stream.wait(event);
      }
    };
    for (int round = 0; round < rounds; ++round) {
      const auto turn = static_cast<std::size_t>(round % 2);
      fill->wait(loaded[turn]);
      fill->enqueue([this, turn, round] { fill_source(turn, round); });
      h2d->wait(fill->record());
      wait(*h2d, moved[turn], Fault::input_used_again);
      case_->copy_from_host(*h2d, inputs_[turn], sources_[turn].data(), size_bytes_);
      loaded[turn] = h2d->record();
      wait(*compute, loaded[turn], Fault::load_not_waited_for);
      wait(*compute, stored[turn], Fault::output_used_again);
      move_on_device(fault == Fault::wrong_stream ? *elsewhere : *compute, outputs_[turn],
                     inputs_[turn], size_bytes_);
      moved[turn] = compute->record();
      wait(*d2h, moved[turn], Fault::move_not_waited_for);
      d2h->wait(checked[turn]);
      case_->copy_to_host(*d2h, results_[turn].data(), outputs_[turn], size_bytes_);
      stored[turn] = d2h->record();
      wait(*check, stored[turn], Fault::result_not_waited_for);
      check->enqueue([this, turn, round, &wrong] {
        wrong += results_[turn] == pattern(size_bytes_, static_cast<std::uint64_t>(round)) ? 0 : 1;
      });
      checked[turn] = check->record();
    }
    check->record().wait();
    d2h->record().wait();
    elsewhere->record().wait();
    return wrong;
  }

 private:
  void fill_source(std::size_t turn, int round) {
    const auto bytes = pattern(size_bytes_, static_cast<std::uint64_t>(round));
    std::copy(bytes.begin(), bytes.end(), sources_[turn].begin());
  }

  CudaCase& case_;
  const std::size_t size_bytes_;
  std::array<std::vector<std::byte>, 2> sources_;
  std::array<std::vector<std::byte>, 2> results_;
  std::array<std::byte*, 2> inputs_{};
  std::array<std::byte*, 2> outputs_{};
  std::vector<std::unique_ptr<device::Pinned>> pins_;
};

}  // namespace stagecoach::test
