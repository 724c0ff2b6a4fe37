#include <algorithm>

#include "base/aligned_memory.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "model/store_format.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::model {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;

}  // namespace

std::vector<std::string> verify_store(
    const StoreIndex& index, const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const File file(index.path, File::Mode::read);
  const AlignedMemory piece(kPieceBytes, "verifying weights");
  const auto total_bytes = static_cast<std::uint64_t>(weight_bytes(index.spec, index.weights));
  std::uint64_t done_bytes = 0;
  std::vector<std::string> differing;
  for (const auto& [group, tensors] : index.groups) {
    for (const auto& stored : tensors) {
      const auto size = static_cast<std::uint64_t>(stored.tensor.size_bytes());
      StreamingHash hash;
      for (std::uint64_t at = 0; at < size; at += kPieceBytes) {
        const auto bytes = piece.bytes().first(std::min(kPieceBytes, size - at));
        file.read_at(bytes, stored.offset_bytes + at);
        hash.update(bytes);
        done_bytes += bytes.size();
        if (progress) {
          progress(done_bytes, total_bytes);
        }
      }
      if (hash.digest() != stored.checksum) {
        differing.push_back(group + "/" + stored.tensor.name);
      }
    }
  }
  return differing;
}

}  // namespace stagecoach::model
