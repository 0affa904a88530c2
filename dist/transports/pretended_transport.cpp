#include <algorithm>
#include <cstring>
#include <type_traits>

#include <shardgrad/core/context.h>
#include <shardgrad/core/storage.h>
#include <shardgrad/dist/transports/kept_room.h>
#include <shardgrad/dist/transports/mpi/mpi_room.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/transports/tree_sum.h>
#include <shardgrad/dist/transports/two_level/exchange.h>

namespace shardgrad::dist {
namespace {

// Rank 0 of ranks that are not there. What it hears is what it says: every rank is taken to give the same. Tensors of
// device meta have no values: of their calls there is only the room that they need.
class PretendedTransport final : public Transport {
 public:
  PretendedTransport(int size, std::shared_ptr<Control> control, PretendedRanks as)
      : Transport("pretended", 0, size, std::move(control)), as_(std::move(as)) {
    if (as_.group == "shared_memory" || as_.group == "two_level")
      bounce_ = Storage::make(kBounceBytes, context().backend(kMeta).memory(), {Category::communication, 0});
  }
  void all_gather(const Call&, void* full, const void* shard, size_t bytes) override { repeat(full, shard, bytes); }
  void reduce_scatter(const Call&, void* shard, const void* full, int64_t n, DType dtype) override {
    size_t bytes = size_t(n) * size_of(dtype);
    keep_room(bytes, {bytes, bytes * size_t(size())}, dtype);
    if (!full) return;
    std::memmove(shard, full, bytes);
    add_up(shard, n, dtype);
  }
  void all_reduce(const Call&, void* data, int64_t n, DType dtype) override {
    keep_room(size_t(slice_begin(n, size(), 1)) * size_of(dtype), two_level::slices_of(n, size(), dtype), dtype);
    if (data) add_up(data, n, dtype);
  }
  void broadcast(const Call&, void*, size_t, int) override {}
  void all_to_all(const Call&, void* out, const void* in, size_t bytes) override { repeat(out, in, bytes); }
  void barrier(const Call&) override {}
  int64_t invite(int) override { return 0; }
  std::unique_ptr<Transport> join(int64_t, const std::vector<int>& members, int) override {
    PretendedRanks as = as_;
    as.machines.clear();
    if (!as_.machines.empty())
      for (int member : members) as.machines.push_back(as_.machines[size_t(member)]);
    if (as.group == "two_level" && std::ranges::count(as.machines, as.machines[0]) == int64_t(members.size()))
      as.group = "shared_memory";
    return make_pretended_transport(int(members.size()), shared_control(), as);
  }
  bool has_common_memory() const override { return as_.group == "shared_memory" && as_.device == kCpu; }
  bool is_pretended() const override { return true; }
  Device stands_for() const override { return as_.device; }

 private:
  // For sums of which this rank makes a slice, as MPI cuts them or as machines do.
  void keep_room(size_t slice, two_level::Cut cut, DType dtype) {
    size_t bytes = 0;
    if (as_.group == "mpi") bytes = mpi_room(slice, size());
    if (as_.group == "two_level") bytes = levels().exchanges.of(dtype, two_level::Exchange::What::sums).bytes(cut);
    room_.of(bytes, context().backend(kMeta).memory());
  }
  struct Levels {
    explicit Levels(const std::vector<int>& machines) : map(two_level::map_of(machines)), exchanges(map, 0) {}
    RankMap map;
    two_level::Exchanges exchanges;
  };
  Levels& levels() {
    if (!levels_) levels_ = std::make_unique<Levels>(as_.machines);
    return *levels_;
  }
  void repeat(void* all, const void* one, size_t bytes) {
    if (bytes == 0 || !all) return;
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
  std::unique_ptr<Levels> levels_;  // of two, made when they are asked for
  Ref<Storage> bounce_;             // of ranks on one machine
  KeptRoom room_{Category::communication};
};

}  // namespace

std::unique_ptr<Transport> make_pretended_transport(int size, std::shared_ptr<Control> control, PretendedRanks as) {
  return std::make_unique<PretendedTransport>(size, std::move(control), std::move(as));
}

}  // namespace shardgrad::dist
