// Ranks that send messages. Every transfer of a collective is posted at once, in pieces below MPI's limit on counts,
// and then polled for. The tag is a hash of the call, so ranks in different calls never exchange a byte: they wait
// until the control channel names them.

#include <algorithm>
#include <cstring>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/mpi_session.h>
#include <shardgrad/dist/transports/kept_room.h>
#include <shardgrad/dist/transports/mpi/mpi_room.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/transports/tree_sum.h>

namespace shardgrad::dist {
namespace {

constexpr size_t kPiece = size_t(128) << 20;

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiSession> session, std::vector<int> world_ranks, int rank,
               std::shared_ptr<Control> control)
      : Transport("mpi", rank, int(world_ranks.size()), std::move(control)),
        session_(std::move(session)),
        world_ranks_(std::move(world_ranks)) {}

  void all_gather(const Call& call, void* full, const void* shard, size_t bytes) override {
    auto* to = static_cast<std::byte*>(full);
    copy(to + size_t(rank()) * bytes, shard, bytes);
    for_peers([&](int peer) {
      receive(call, peer, to + size_t(peer) * bytes, bytes);
      send(call, peer, shard, bytes);
    });
  }

  void reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) override {
    std::vector<int64_t> begins;
    for (int r = 0; r <= size(); ++r) begins.push_back(n * r);
    sum_slices(call, shard, full, begins, dtype);
  }

  void all_reduce(const Call& call, void* data, int64_t n, DType dtype) override {
    std::vector<int64_t> begins;
    for (int r = 0; r <= size(); ++r) begins.push_back(slice_begin(n, size(), r));
    auto* bytes = static_cast<std::byte*>(data);
    auto at = [&](int r) { return bytes + size_t(begins[size_t(r)]) * size_of(dtype); };
    auto length = [&](int r) { return size_t(at(r + 1) - at(r)); };
    sum_slices(call, at(rank()), data, begins, dtype);
    for_peers([&](int peer) {
      receive(call, peer, at(peer), length(peer));
      send(call, peer, at(rank()), length(rank()));
    });
  }

  void broadcast(const Call& call, void* data, size_t bytes, int root) override {
    for_peers([&](int peer) {
      if (rank() == root) send(call, peer, data, bytes);
      if (peer == root) receive(call, peer, data, bytes);
    });
  }

  void all_to_all(const Call& call, void* out, const void* in, size_t bytes) override {
    auto* to = static_cast<std::byte*>(out);
    auto* from = static_cast<const std::byte*>(in);
    copy(to + size_t(rank()) * bytes, from + size_t(rank()) * bytes, bytes);
    for_peers([&](int peer) {
      receive(call, peer, to + size_t(peer) * bytes, bytes);
      send(call, peer, from + size_t(peer) * bytes, bytes);
    });
  }

  // Dissemination: after round k, everybody has heard of 2^(k+1) ranks.
  void barrier(const Call& call) override {
    for (int step = 1; step < size(); step *= 2) {
      char token = 0, received;
      receive(call, (rank() - step + size()) % size(), &received, 1);
      send(call, (rank() + step) % size(), &token, 1);
      complete();
    }
  }

  int64_t invite(int) override { return 0; }
  std::unique_ptr<Transport> join(int64_t, const std::vector<int>& members, int rank) override {
    std::vector<int> world_ranks;
    for (int member : members) world_ranks.push_back(world_ranks_[size_t(member)]);
    return std::make_unique<MpiTransport>(session_, std::move(world_ranks), rank, shared_control());
  }

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (to != from && bytes > 0) std::memcpy(to, from, bytes);
  }

  // Posts what `post` asks for with every peer, and waits for all of it.
  template <class Post> void for_peers(Post&& post) {
    for (int i = 1; i < size(); ++i) post((rank() + i) % size());
    complete();
  }

  int tag(const Call& call) const { return int(call.fingerprint % uint64_t(session_->max_tag())); }

  void send(const Call& call, int peer, const void* data, size_t bytes) {
    std::lock_guard lock(session_->mutex());
    for (size_t begin = 0; begin < bytes; begin += kPiece)
      MPI_Isend(static_cast<const std::byte*>(data) + begin, int(std::min(kPiece, bytes - begin)), MPI_BYTE,
                world_ranks_[size_t(peer)], tag(call), session_->world(), &requests_.emplace_back());
  }

  void receive(const Call& call, int peer, void* data, size_t bytes) {
    std::lock_guard lock(session_->mutex());
    for (size_t begin = 0; begin < bytes; begin += kPiece)
      MPI_Irecv(static_cast<std::byte*>(data) + begin, int(std::min(kPiece, bytes - begin)), MPI_BYTE,
                world_ranks_[size_t(peer)], tag(call), session_->world(), &requests_.emplace_back());
  }

  void complete() {
    session_->wait(requests_, [this] { check(); });
    requests_.clear();
  }

  // out = the tree sum of slice [begins[rank], begins[rank + 1]) over all ranks' data; out may be that slice of data.
  // The peers' slices arrive in segments, so that the workspace stays small.
  void sum_slices(const Call& call, void* out, const void* data, const std::vector<int64_t>& begins, DType dtype) {
    size_t element = size_of(dtype), me = size_t(rank());
    auto bytes_of = [&](int r) { return size_t(begins[size_t(r) + 1] - begins[size_t(r)]) * element; };
    auto* from = static_cast<const std::byte*>(data);
    size_t mine = bytes_of(rank()), longest = 0;
    for (int r = 0; r < size(); ++r) longest = std::max(longest, bytes_of(r));
    size_t room = std::min(kMpiSegment, mine);
    std::byte* inbox = room_.of(mpi_room(mine, size()), context().backend(kCpu).memory());
    std::vector<const void*> parts(static_cast<size_t>(size()));
    for (size_t begin = 0; begin < longest; begin += kMpiSegment) {
      auto length = [&](int r) { return begin < bytes_of(r) ? std::min(kMpiSegment, bytes_of(r) - begin) : 0; };
      std::byte* box = inbox;
      parts[me] = from + size_t(begins[me]) * element + begin;
      for_peers([&](int peer) {
        receive(call, peer, box, length(rank()));
        parts[size_t(peer)] = box;
        box += room;
        send(call, peer, from + size_t(begins[size_t(peer)]) * element + begin, length(peer));
      });
      tree_sum(static_cast<std::byte*>(out) + begin, parts, int64_t(length(rank()) / element), dtype);
    }
  }

  std::shared_ptr<MpiSession> session_;
  std::vector<int> world_ranks_;
  std::vector<MPI_Request> requests_;
  KeptRoom room_{Category::communication};
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(Bootstrap& bootstrap, std::shared_ptr<Control> control) {
  return std::make_unique<MpiTransport>(mpi_session(bootstrap), all_ranks(bootstrap.size()), bootstrap.rank(),
                                        std::move(control));
}

}  // namespace shardgrad::dist
