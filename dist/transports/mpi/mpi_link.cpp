// The link of the two-level transport by messages of MPI, in pieces below its limit on counts.

#include <algorithm>

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/bootstrap/mpi_session.h>
#include <shardgrad/dist/transports/two_level/link.h>

namespace shardgrad::dist::two_level {
namespace {

constexpr size_t kMostBytes = size_t(128) << 20;

class MpiLink final : public Link {
 public:
  MpiLink(std::shared_ptr<MpiSession> session, std::vector<int> world_ranks)
      : session_(std::move(session)), world_ranks_(std::move(world_ranks)) {}

  void send(const Call& call, int peer, const void* data, size_t bytes) override {
    post(data, bytes, [&](const std::byte* piece, int count) {
      MPI_Isend(piece, count, MPI_BYTE, world_ranks_[size_t(peer)], tag(call), session_->world(),
                &requests_.emplace_back());
    });
  }
  void receive(const Call& call, int peer, void* data, size_t bytes) override {
    post(data, bytes, [&](const std::byte* piece, int count) {
      MPI_Irecv(const_cast<std::byte*>(piece), count, MPI_BYTE, world_ranks_[size_t(peer)], tag(call),
                session_->world(), &requests_.emplace_back());
    });
  }
  void complete(const Check& check) override {
    session_->wait(requests_, check);
    requests_.clear();
  }

  std::unique_ptr<Link> join(int64_t, const std::vector<int>& members, int) override {
    std::vector<int> world_ranks;
    for (int member : members) world_ranks.push_back(world_ranks_[size_t(member)]);
    return std::make_unique<MpiLink>(session_, std::move(world_ranks));
  }

 private:
  // A hash of the call, so that ranks in different calls never exchange a byte: the control channel names them.
  int tag(const Call& call) const { return int(call.fingerprint % uint64_t(session_->max_tag())); }

  template <class Post> void post(const void* data, size_t bytes, Post&& one) {
    std::lock_guard lock(session_->mutex());
    for (size_t begin = 0; begin < bytes; begin += kMostBytes)
      one(static_cast<const std::byte*>(data) + begin, int(std::min(kMostBytes, bytes - begin)));
  }

  std::shared_ptr<MpiSession> session_;
  std::vector<int> world_ranks_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

std::unique_ptr<Link> make_mpi_link(Bootstrap& bootstrap) {
  return std::make_unique<MpiLink>(mpi_session(bootstrap), all_ranks(bootstrap.size()));
}

}  // namespace shardgrad::dist::two_level
