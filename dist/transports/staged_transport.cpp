#include <shardgrad/core/context.h>
#include <shardgrad/dist/transports/kept_room.h>
#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {
namespace {

class StagedTransport final : public Transport {
 public:
  StagedTransport(std::unique_ptr<Transport> inner, Device device, std::shared_ptr<Control> control)
      : Transport(inner->kind(), inner->rank(), inner->size(), std::move(control)),
        inner_(std::move(inner)),
        backend_(context().backend(device)),
        copies_(backend_.make_stream(concat(device, "/staging"))) {}

  void all_gather(const Call& call, void* full, const void* shard, size_t bytes) override {
    std::byte* host = room(bytes * size_t(size()));
    std::byte* mine = host + size_t(rank()) * bytes;
    copy(mine, shard, bytes);
    inner_->all_gather(call, host, mine, bytes);
    copy(full, host, bytes * size_t(size()));
  }
  void reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) override {
    size_t bytes = size_t(n) * size_of(dtype);
    std::byte* host = room(bytes * size_t(size()));
    std::byte* mine = host + size_t(rank()) * bytes;
    copy(host, full, bytes * size_t(size()));
    inner_->reduce_scatter(call, mine, host, n, dtype);
    copy(shard, mine, bytes);
  }
  void all_reduce(const Call& call, void* data, int64_t n, DType dtype) override {
    size_t bytes = size_t(n) * size_of(dtype);
    std::byte* host = room(bytes);
    copy(host, data, bytes);
    inner_->all_reduce(call, host, n, dtype);
    copy(data, host, bytes);
  }
  void broadcast(const Call& call, void* data, size_t bytes, int root) override {
    std::byte* host = room(bytes);
    if (rank() == root) copy(host, data, bytes);
    inner_->broadcast(call, host, bytes, root);
    if (rank() != root) copy(data, host, bytes);
  }
  void all_to_all(const Call& call, void* out, const void* in, size_t bytes) override {
    size_t all = bytes * size_t(size());
    std::byte* host = room(2 * all);
    copy(host, in, all);
    inner_->all_to_all(call, host + all, host, bytes);
    copy(out, host + all, all);
  }
  void barrier(const Call& call) override { inner_->barrier(call); }

  int64_t invite(int size) override { return inner_->invite(size); }
  std::unique_ptr<Transport> join(int64_t invitation, const std::vector<int>& members, int rank) override {
    return inner_->join(invitation, members, rank);  // its group stages it again
  }
  void leave() override { inner_->leave(); }
  void abandon() override {
    Transport::abandon();
    inner_->abandon();
  }

 private:
  // Memory that the inner transport sends from without a copy, or else that the device copies from fastest.
  std::byte* room(size_t bytes) {
    Ref<Allocator> memory = inner_->memory(kCpu);
    if (memory == context().backend(kCpu).memory()) memory = backend_.host_memory();
    return room_.of(bytes, memory);
  }
  void copy(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    backend_.copy(*copies_, to, from, bytes);
    copies_->synchronize();
  }

  std::unique_ptr<Transport> inner_;
  Backend& backend_;
  std::unique_ptr<Stream> copies_;
  KeptRoom room_{Category::pinned_host};
};

}  // namespace

std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, Device device,
                                                 std::shared_ptr<Control> control) {
  return std::make_unique<StagedTransport>(std::move(inner), device, std::move(control));
}

}  // namespace shardgrad::dist
