#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace stagecoach::test {

/// What is done wrong on purpose.
struct Fault {
  std::string deaf{};        ///< the stream of this name waits for nothing
  std::string wrong_copy{};  ///< copies to the device go by the stream of this name
};

/// A stream that keeps every event that was recorded on it.
class TappedStream final : public device::Stream {
 public:
  TappedStream(std::unique_ptr<device::Stream> inner, bool deaf)
      : inner_(std::move(inner)), deaf_(deaf) {}

  void enqueue(std::function<void()> work) override { inner_->enqueue(std::move(work)); }
  void wait(const device::Event& event) override {
    if (!deaf_) {
      inner_->wait(event);
    }
  }
  [[nodiscard]] device::Event record() override { return records_.emplace_back(inner_->record()); }

  [[nodiscard]] device::Stream& inner() const { return *inner_; }
  [[nodiscard]] const std::vector<device::Event>& records() const { return records_; }

 private:
  std::unique_ptr<device::Stream> inner_;
  bool deaf_;
  std::vector<device::Event> records_;
};

/// Another device with tapped streams.
class TappedDevice final : public device::Device {
 public:
  TappedDevice(device::Device& inner, Fault fault) : inner_(inner), fault_(std::move(fault)) {}

  /// The stream of that name, as long as it lives.
  [[nodiscard]] const TappedStream& stream(const std::string& name) const {
    return *streams_.at(name);
  }

  [[nodiscard]] std::string description() const override { return inner_.description(); }
  [[nodiscard]] std::string instruction_set() const override { return inner_.instruction_set(); }
  [[nodiscard]] bool host_addressable() const override { return inner_.host_addressable(); }
  device::Buffer allocate(std::size_t size_bytes, const std::string& purpose) override {
    return inner_.allocate(size_bytes, purpose);
  }
  [[nodiscard]] std::size_t allocated_bytes() const override { return inner_.allocated_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const override { return inner_.peak_bytes(); }
  [[nodiscard]] std::size_t scratch_bytes(const device::ScratchShape& shape) const override {
    return inner_.scratch_bytes(shape);
  }
  [[nodiscard]] std::size_t host_scratch_bytes(const device::ScratchShape& shape) const override {
    return inner_.host_scratch_bytes(shape);
  }
  void reserve_scratch(const device::ScratchShape& shape) override {
    inner_.reserve_scratch(shape);
  }
  [[nodiscard]] std::unique_ptr<device::Pinned> pin(std::span<std::byte> memory) override {
    return inner_.pin(memory);
  }
  std::unique_ptr<device::Stream> create_stream(const std::string& name) override {
    auto stream = std::make_unique<TappedStream>(inner_.create_stream(name), name == fault_.deaf);
    streams_[name] = stream.get();
    return stream;
  }
  [[nodiscard]] std::int64_t packed_product_rows() const override {
    return inner_.packed_product_rows();
  }

  void copy_from_host(device::Stream& stream, std::byte* to, const std::byte* from,
                      std::size_t size_bytes) override {
    auto& by =
        fault_.wrong_copy.empty() ? untapped(stream) : streams_.at(fault_.wrong_copy)->inner();
    inner_.copy_from_host(by, to, from, size_bytes);
  }
  void copy_to_host(device::Stream& stream, std::byte* to, const std::byte* from,
                    std::size_t size_bytes) override {
    inner_.copy_to_host(untapped(stream), to, from, size_bytes);
  }
  void embed(device::Stream& stream, device::EmbedArgs args) override {
    inner_.embed(untapped(stream), std::move(args));
  }
  void layer_norm(device::Stream& stream, device::LayerNormArgs args) override {
    inner_.layer_norm(untapped(stream), args);
  }
  void linear(device::Stream& stream, device::LinearArgs args) override {
    inner_.linear(untapped(stream), args);
  }
  void widen(device::Stream& stream, device::WidenArgs args) override {
    inner_.widen(untapped(stream), args);
  }
  void store_kv(device::Stream& stream, device::AttentionArgs args) override {
    inner_.store_kv(untapped(stream), std::move(args));
  }
  void attention(device::Stream& stream, device::AttentionArgs args) override {
    inner_.attention(untapped(stream), std::move(args));
  }
  void attention_partials(device::Stream& stream, device::AttentionArgs args) override {
    inner_.attention_partials(untapped(stream), std::move(args));
  }
  void attention_scores(device::Stream& stream, device::AttentionArgs args) override {
    inner_.attention_scores(untapped(stream), std::move(args));
  }
  void select_top(device::Stream& stream, device::AttentionArgs args) override {
    inner_.select_top(untapped(stream), std::move(args));
  }
  void gather_values(device::Stream& stream, device::AttentionArgs args) override {
    inner_.gather_values(untapped(stream), std::move(args));
  }
  void scatter_values(device::Stream& stream, device::AttentionArgs args) override {
    inner_.scatter_values(untapped(stream), std::move(args));
  }
  void gather_rows(device::Stream& stream, device::GatherRowsArgs args) override {
    inner_.gather_rows(untapped(stream), std::move(args));
  }
  void sample(device::Stream& stream, device::SampleArgs args) override {
    inner_.sample(untapped(stream), std::move(args));
  }

 protected:
  void release(std::byte* /*data*/, std::size_t /*size_bytes*/) noexcept override {}

 private:
  static device::Stream& untapped(device::Stream& stream) {
    return static_cast<TappedStream&>(stream).inner();
  }

  device::Device& inner_;
  Fault fault_;
  std::map<std::string, TappedStream*> streams_;
};

}  // namespace stagecoach::test
