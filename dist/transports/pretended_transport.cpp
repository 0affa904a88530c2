#include <cstring>
#include <type_traits>

#include <shardgrad/core/context.h>
#include <shardgrad/core/storage.h>
#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {
namespace {

// Rank 0 of ranks that are not there. What it hears is what it says: every rank is taken to give the same.
class PretendedTransport final : public Transport {
 public:
  PretendedTransport(int size, std::shared_ptr<Control> control, PretendedRanks as)
      : Transport("pretended", 0, size, std::move(control)), as_(std::move(as)) {
    if (as_.group == "shared_memory")
      bounce_ = Storage::make(kBounceBytes, context().backend(kMeta).memory(), {Category::communication, 0});
  }
  void all_gather(const Call&, void* full, const void* shard, size_t bytes) override { repeat(full, shard, bytes); }
  void reduce_scatter(const Call&, void* shard, const void* full, int64_t n, DType dtype) override {
    std::memmove(shard, full, size_t(n) * size_of(dtype));
    add_up(shard, n, dtype);
  }
  void all_reduce(const Call&, void* data, int64_t n, DType dtype) override { add_up(data, n, dtype); }
  void broadcast(const Call&, void*, size_t, int) override {}
  void all_to_all(const Call&, void* out, const void* in, size_t bytes) override { repeat(out, in, bytes); }
  void barrier(const Call&) override {}
  int64_t invite(int) override { return 0; }
  std::unique_ptr<Transport> join(int64_t, const std::vector<int>& members, int) override {
    return make_pretended_transport(int(members.size()), shared_control(), as_);
  }
  bool has_common_memory() const override { return as_.group == "shared_memory" && as_.device == kCpu; }
  Device stands_for() const override { return as_.device; }

 private:
  void repeat(void* all, const void* one, size_t bytes) {
    if (bytes == 0) return;
    for (int rank = 0; rank < size(); ++rank) std::memmove(static_cast<char*>(all) + size_t(rank) * bytes, one, bytes);
  }
  void add_up(void* data, int64_t n, DType dtype) {
    dispatch(dtype, [&]<class T>() {
      for (int64_t i = 0; i < n; ++i) {
        T& value = static_cast<T*>(data)[i];
        if constexpr (std::is_arithmetic_v<T>)
          value = T(value * size());
        else
          value = T(float(value) * float(size()));
      }
    });
  }
  PretendedRanks as_;
  Ref<Storage> bounce_;  // of ranks on one machine
};

}  // namespace

std::unique_ptr<Transport> make_pretended_transport(int size, std::shared_ptr<Control> control, PretendedRanks as) {
  return std::make_unique<PretendedTransport>(size, std::move(control), std::move(as));
}

}  // namespace shardgrad::dist
