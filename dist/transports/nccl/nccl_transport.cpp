// Ranks with a GPU each. Collectives are queued on the group's stream of the GPU. Sums are NCCL's own, in its own
// order, but for 16 bits: NCCL rounds f16 and bf16 at every hop, so they are exchanged and summed on the GPU in the
// tree order of every other transport, in f32 (SHARDGRAD_NCCL_SUMS=tree does so for all dtypes):
//
//     reduce_scatter of 16-bit:   all-to-all of the slices · tree sum of what came
//
// Tensors of the host go through memory of the GPU.

#include <deque>
#include <string>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/core/storage.h>
#include <shardgrad/dist/transports/nccl/communicator.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/dist/transports/nccl/watchdog.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/transports/tree_sum.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::dist {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u8:
      return ncclUint8;
    default:
      fail_as(ErrorKind::internal, "NCCL does not sum ", dtype, " here");
  }
}

/// Memory of the GPU for one call.
class Room {
 public:
  Room(size_t bytes, Stream& stream)
      : stream_(stream),
        storage_(Storage::make(bytes, context().backend(kCuda).memory(), {Category::communication, 0}, true)) {
    storage_->materialize(stream_);
  }
  ~Room() { storage_->release(stream_); }
  Room(const Room&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(storage_->data()); }

 private:
  Stream& stream_;
  Ref<Storage> storage_;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(const std::string& id, int rank, int size, int gpu, std::shared_ptr<Control> control)
      : Transport("nccl", rank, size, control),
        gpu_(gpu),
        tree_sums_(tree_sums_wanted()),
        check_([this] { check(); }),
        communicator_(id, size, rank, gpu, check_),
        watchdog_(std::make_unique<NcclWatchdog>(communicator_, this->control(), check_)) {}

  ~NcclTransport() override {
    leave();
    communicator_.finish(check_);
  }

  bool queues() const override { return true; }
  bool tracks() const override { return true; }
  void leave() override { watchdog_.reset(); }

  void all_gather(const Call& call, void* full, const void* shard, size_t bytes) override {
    GatherPart one{full, shard, bytes};
    gather_parts(call, {&one, 1});
  }
  void gather_parts(const Call& call, std::span<const GatherPart> parts) override {
    Tracked tracked(*this, call);
    if (!on_host(call)) return gather(call, parts);
    std::deque<Room> rooms;
    std::vector<GatherPart> there;
    for (auto [full, shard, bytes] : parts) {
      std::byte* room = rooms.emplace_back(bytes * size_t(size()), *call.stream).data();
      copy(call, room + size_t(rank()) * bytes, shard, bytes);
      there.push_back({room, room + size_t(rank()) * bytes, bytes});
    }
    gather(call, there);
    for (size_t i = 0; i < parts.size(); ++i) copy(call, parts[i].full, there[i].full, parts[i].bytes * size_t(size()));
  }

  void reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) override {
    Tracked tracked(*this, call);
    if (n == 0) return;
    size_t bytes = size_t(n) * size_of(dtype);
    if (!on_host(call)) return scatter_sums(call, shard, full, n, dtype);
    Room room(bytes * size_t(size()), *call.stream);
    copy(call, room.data(), full, bytes * size_t(size()));
    std::byte* mine = room.data() + size_t(rank()) * bytes;
    scatter_sums(call, mine, room.data(), n, dtype);
    copy(call, shard, mine, bytes);
  }

  void all_reduce(const Call& call, void* data, int64_t n, DType dtype) override {
    Tracked tracked(*this, call);
    if (n > 0) in_place(call, data, size_t(n) * size_of(dtype), true, [&](void* at) { sum(call, at, n, dtype); });
  }

  void broadcast(const Call& call, void* data, size_t bytes, int root) override {
    Tracked tracked(*this, call);
    if (bytes > 0)
      in_place(call, data, bytes, rank() == root, [&](void* at) {
        run("broadcast",
            [&](ncclComm_t comm) { return ncclBroadcast(at, at, bytes, ncclUint8, root, comm, native(call)); });
      });
  }

  void all_to_all(const Call& call, void* out, const void* in, size_t bytes) override {
    Tracked tracked(*this, call);
    if (bytes == 0) return;
    if (!on_host(call)) return exchange(call, out, in, bytes);
    size_t all = bytes * size_t(size());
    Room room(2 * all, *call.stream);
    copy(call, room.data(), in, all);
    exchange(call, room.data() + all, room.data(), bytes);
    copy(call, out, room.data() + all, all);
  }

  void barrier(const Call& call) override {
    Tracked tracked(*this, call);
    Room room(1, *call.stream);
    sum(call, room.data(), 1, DType::u8);  // of whatever is there
  }

  /// Members of a new group are told its id by their first one, through this group.
  int64_t invite(int) override { return 0; }
  std::unique_ptr<Transport> join(int64_t, const std::vector<int>& members, int rank) override {
    std::string ids = rank == 0 ? NcclCommunicator::unique_id() : std::string(sizeof(ncclUniqueId), '\0');
    size_t bytes = ids.size();
    std::string all(bytes * size_t(size()), '\0');
    auto stream = context().backend(kCuda).make_stream("nccl/split");
    Call call{.stream = stream.get()};
    {
      Room room(all.size(), *stream);
      std::byte* mine = room.data() + size_t(this->rank()) * bytes;
      copy(call, mine, ids.data(), bytes);
      GatherPart one{room.data(), mine, bytes};
      gather(call, {&one, 1});
      copy(call, all.data(), room.data(), all.size());
    }
    stream->record().host_wait();
    return std::make_unique<NcclTransport>(all.substr(bytes * size_t(members[0]), bytes), rank, int(members.size()),
                                           gpu_, shared_control());
  }

 private:
  using Begins = std::vector<int64_t>;

  /// From here to the end of the scope one call is queued.
  struct Tracked {
    Tracked(NcclTransport& transport, const Call& call) : transport(transport), stream(*call.stream) {
      transport.watchdog_->begin(call.lane, *call.place);
    }
    ~Tracked() {
      if (std::uncaught_exceptions() == exceptions) transport.watchdog_->queued(stream.record());
    }
    NcclTransport& transport;
    Stream& stream;
    int exceptions = std::uncaught_exceptions();
  };

  static bool on_host(const Call& call) { return call.device.kind != DeviceKind::cuda; }
  static cudaStream_t native(const Call& call) { return static_cast<cudaStream_t>(call.stream->native()); }
  static void copy(const Call& call, void* to, const void* from, size_t bytes) {
    if (to != from && bytes > 0) context().backend(kCuda).copy(*call.stream, to, from, bytes);
  }
  void run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& ask) {
    communicator_.run(what, ask, check_);
  }
  bool sums_itself(DType dtype) const { return !tree_sums_ && size_of(dtype) != 2; }

  template <class Body> void in_place(const Call& call, void* data, size_t bytes, bool read, Body&& body) {
    if (!on_host(call)) return body(data);
    Room room(bytes, *call.stream);
    if (read) copy(call, room.data(), data, bytes);
    body(room.data());
    copy(call, data, room.data(), bytes);
  }

  void gather(const Call& call, std::span<const GatherPart> parts) {
    run("all_gather", [&](ncclComm_t comm) {
      return as_one([&](auto&& note) {
        for (auto [full, shard, bytes] : parts)
          if (bytes > 0) note(ncclAllGather(shard, full, bytes, ncclUint8, comm, native(call)));
      });
    });
  }

  void scatter_sums(const Call& call, void* shard, const void* full, int64_t n, DType dtype) {
    if (sums_itself(dtype)) {
      auto count = size_t(n);
      return run("reduce_scatter", [&](ncclComm_t comm) {
        return ncclReduceScatter(full, shard, count, type_of(dtype), ncclSum, comm, native(call));
      });
    }
    Begins begins;
    for (int r = 0; r <= size(); ++r) begins.push_back(n * r);
    sum_slices(call, shard, full, begins, dtype);
  }

  void sum(const Call& call, void* data, int64_t n, DType dtype) {
    if (sums_itself(dtype)) {
      auto count = size_t(n);
      return run("all_reduce", [&](ncclComm_t comm) {
        return ncclAllReduce(data, data, count, type_of(dtype), ncclSum, comm, native(call));
      });
    }
    Begins begins;
    for (int r = 0; r <= size(); ++r) begins.push_back(slice_begin(n, size(), r));
    size_t element = size_of(dtype);
    auto* bytes = static_cast<std::byte*>(data);
    auto at = [&](int r) { return bytes + size_t(begins[size_t(r)]) * element; };
    auto length = [&](int r) { return size_t(at(r + 1) - at(r)); };
    sum_slices(call, at(rank()), data, begins, dtype);
    with_peers(call, "all_reduce", [&](int peer, auto&& send, auto&& receive) {
      send(at(rank()), length(rank()));
      receive(at(peer), length(peer));
    });
  }

  void exchange(const Call& call, void* out, const void* in, size_t bytes) {
    auto* to = static_cast<std::byte*>(out);
    auto* from = static_cast<const std::byte*>(in);
    copy(call, to + size_t(rank()) * bytes, from + size_t(rank()) * bytes, bytes);
    with_peers(call, "all_to_all", [&](int peer, auto&& send, auto&& receive) {
      send(from + size_t(peer) * bytes, bytes);
      receive(to + size_t(peer) * bytes, bytes);
    });
  }

  // The calls that `make` notes, as one of NCCL's.
  template <class Make> static ncclResult_t as_one(Make&& make) {
    ncclResult_t result = ncclGroupStart();
    make([&](ncclResult_t one) { result = result == ncclSuccess ? one : result; });
    ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
  }

  // What `post` sends to and receives from every peer, as one call.
  template <class Post> void with_peers(const Call& call, const char* what, Post&& post) {
    if (size() == 1) return;
    run(what, [&](ncclComm_t comm) {
      return as_one([&](auto&& note) {
        for (int i = 1; i < size(); ++i) {
          int peer = (rank() + i) % size();
          auto send = [&](const void* data, size_t bytes) {
            if (bytes > 0) note(ncclSend(data, bytes, ncclUint8, peer, comm, native(call)));
          };
          auto receive = [&](void* data, size_t bytes) {
            if (bytes > 0) note(ncclRecv(data, bytes, ncclUint8, peer, comm, native(call)));
          };
          post(peer, send, receive);
        }
      });
    });
  }

  // out = the tree sum of slice [begins[rank], begins[rank + 1]) over all ranks' data; out may be that slice of data.
  void sum_slices(const Call& call, void* out, const void* data, const Begins& begins, DType dtype) {
    auto me = size_t(rank());
    size_t element = size_of(dtype);
    auto* from = static_cast<const std::byte*>(data);
    auto at = [&](size_t r) { return from + size_t(begins[r]) * element; };
    int64_t n = begins[me + 1] - begins[me];
    size_t mine = size_t(n) * element, room_for_one = (mine + kAlignment - 1) / kAlignment * kAlignment;
    Room inbox(std::max(room_for_one * size_t(size() - 1), kAlignment), *call.stream);
    std::byte* box = inbox.data();
    std::vector<const void*> parts(static_cast<size_t>(size()));
    parts[me] = at(me);
    with_peers(call, "reduce_scatter", [&](int peer, auto&& send, auto&& receive) {
      auto other = size_t(peer);
      send(at(other), size_t(at(other + 1) - at(other)));
      receive(box, mine);
      parts[other] = box;
      box += room_for_one;
    });
    if (n == 0) return;
    auto add = [&] {
      kernels::tree_sum.find(DeviceKind::cuda, dtype)(Launch{1, call.stream->native()},
                                                      OutView{out, Shape{n}, dtype, 0, true},
                                                      {parts.data(), int(parts.size()), dtype});
    };
    call.stream->run("tree_sum", add);
  }

  int gpu_;
  bool tree_sums_;
  Check check_;
  NcclCommunicator communicator_;
  std::unique_ptr<NcclWatchdog> watchdog_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(Bootstrap& bootstrap, std::shared_ptr<Control> control) {
  SG_CHECK(context().default_device().kind == DeviceKind::cuda,
           "a group of kind nccl sends from GPUs, but the device is ", context().default_device(),
           "; use device=cuda, or another group");
  DeviceInfo gpu = context().backend(kCuda).info();
  check_gpus(bootstrap);
  std::string library = nccl_library();
  std::vector<std::string> libraries = bootstrap.exchange(library);
  for (size_t r = 1; r < libraries.size(); ++r)
    SG_CHECK(libraries[r] == libraries[0], "rank 0 has ", libraries[0], " and rank ", r, " has ", libraries[r],
             "; every rank needs the same");
  std::string id = bootstrap.exchange(bootstrap.rank() == 0 ? NcclCommunicator::unique_id() : "")[0];
  return std::make_unique<NcclTransport>(id, bootstrap.rank(), bootstrap.size(), gpu.number, std::move(control));
}

}  // namespace shardgrad::dist
