#include "comm/collectives.hpp"

#include "base/bytes.hpp"

namespace stagecoach::comm {

std::vector<std::byte> broadcast(Transport& transport, std::span<const std::byte> bytes,
                                 const std::string& what) {
  if (transport.rank() != 0) {
    return transport.receive_message(0, Channel::setup, what);
  }
  for (int rank = 1; rank < transport.size(); ++rank) {
    transport.send_message(bytes, rank, Channel::setup, what);
  }
  return {bytes.begin(), bytes.end()};
}

std::vector<std::vector<std::byte>> all_gather(Transport& transport,
                                               std::span<const std::byte> bytes,
                                               const std::string& what) {
  ByteWriter gathered;
  if (transport.rank() == 0) {
    gathered.put_vector(std::vector<std::byte>(bytes.begin(), bytes.end()));
    for (int rank = 1; rank < transport.size(); ++rank) {
      gathered.put_vector(transport.receive_message(rank, Channel::setup, what));
    }
  } else {
    transport.send_message(bytes, 0, Channel::setup, what);
  }
  const auto all = broadcast(transport, std::move(gathered).take(), what);
  ByteReader reader(all);
  std::vector<std::vector<std::byte>> by_rank;
  for (int rank = 0; rank < transport.size(); ++rank) {
    by_rank.push_back(reader.get_vector<std::byte>());
  }
  reader.expect_end();
  return by_rank;
}

void barrier(Transport& transport, const std::string& what) { all_gather(transport, {}, what); }

}  // namespace stagecoach::comm
