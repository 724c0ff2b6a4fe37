#include "stage/dependencies.hpp"

#include "base/hash.hpp"

namespace stagecoach::stage {

std::size_t Dependencies::HashRef::operator()(const BufferRef& ref) const noexcept {
  const auto high = static_cast<std::uint64_t>(ref.kind) << 56;
  const auto middle = static_cast<std::uint64_t>(static_cast<std::uint32_t>(ref.part)) << 32;
  return mix_bits(high ^ middle ^ static_cast<std::uint32_t>(ref.index));
}

void Dependencies::add(Step& step) {
  Latest latest;
  const auto wait_for = [&](Resource resource, const std::optional<StepId>& id) {
    if (!id || (resource == step.resource && one_at_a_time(resource))) {
      return;
    }
    auto& known = latest[static_cast<std::size_t>(resource)];
    if (*id != step.id && (!known || *known < *id)) {
      known = id;
    }
  };
  const auto wait_for_all = [&](const Latest& ids) {
    for (std::size_t r = 0; r < ids.size(); ++r) {
      wait_for(static_cast<Resource>(r), ids[r]);
    }
  };
  for (const auto& buffer : step.reads) {
    auto& use = uses_[buffer];
    wait_for(use.writer_resource, use.writer);
    use.readers[static_cast<std::size_t>(step.resource)] = step.id;
  }
  for (const auto& buffer : step.writes) {
    auto& use = uses_[buffer];
    wait_for(use.writer_resource, use.writer);
    wait_for_all(use.readers);
    use = {.writer = step.id, .writer_resource = step.resource, .readers = {}};
  }
  if (step.resource != Resource::send && step.resource != Resource::receive) {
    wait_for_all(fence_);
  }
  if (serial_) {
    wait_for(last_resource_, last_);
  }
  for (const auto& id : latest) {
    if (id) {
      step.waits.push_back(*id);
    }
  }
  issued_[static_cast<std::size_t>(step.resource)] = step.id;
  last_ = step.id;
  last_resource_ = step.resource;
}

void Dependencies::fence() {
  fence_ = issued_;
  fence_[static_cast<std::size_t>(Resource::send)].reset();
  fence_[static_cast<std::size_t>(Resource::receive)].reset();
}

}  // namespace stagecoach::stage
