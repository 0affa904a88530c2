#include <cstring>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {
namespace {

// On a stream of a device the memory is the device's.
void copy(const Call& call, void* to, const void* from, size_t bytes) {
  if (to == from || bytes == 0) return;
  Context& context = call.stream->context();
  if (call.stream->native())
    context.backend(context.default_device()).copy(*call.stream, to, from, bytes);
  else
    std::memmove(to, from, bytes);
}

class SingleTransport final : public Transport {
 public:
  explicit SingleTransport(std::shared_ptr<Control> control) : Transport("single", 0, 1, std::move(control)) {}
  bool queues() const override { return true; }
  void all_gather(const Call& call, void* full, const void* shard, size_t bytes) override {
    copy(call, full, shard, bytes);
  }
  void reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) override {
    copy(call, shard, full, size_t(n) * size_of(dtype));
  }
  void all_reduce(const Call&, void*, int64_t, DType) override {}
  void broadcast(const Call&, void*, size_t, int) override {}
  void all_to_all(const Call& call, void* out, const void* in, size_t bytes) override { copy(call, out, in, bytes); }
  void barrier(const Call&) override {}
  int64_t invite(int) override { return 0; }
  std::unique_ptr<Transport> join(int64_t, const std::vector<int>&, int) override {
    return make_single_transport(shared_control());
  }
};

}  // namespace

std::unique_ptr<Transport> make_single_transport(std::shared_ptr<Control> control) {
  return std::make_unique<SingleTransport>(std::move(control));
}

}  // namespace shardgrad::dist
