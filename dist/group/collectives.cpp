// The collectives of a group: what each asks of its arguments, how many bytes it sends, and how it moves them.

#include <shardgrad/dist/group/operation.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/transports/tree_sum.h>

namespace shardgrad::dist {

std::string ProcessGroup::who(const char* op, const Label& label) const {
  std::string text = concat(op, " on rank ", rank(), " of ", size());
  return label.unit.empty() ? text + ": " : text + " (unit '" + label.unit + "'): ";
}

static bool on_host(const Tensor& t) { return t.device().kind != DeviceKind::meta; }
static void* address(const Tensor& t) { return on_host(t) && t.numel() > 0 ? t.out().data : nullptr; }

static bool overlap(const Tensor& a, const Tensor& b) {
  if (a.storage() != b.storage()) return false;
  return a.offset() < b.offset() + b.bytes() && b.offset() < a.offset() + a.bytes();
}

// `who()` begins the message: it is formatted for an error only.
template <class Who>
static void check_sizes(const Who& who, const char* small_name, const Tensor& small, const Tensor& full, int rank,
                        int size) {
  SG_CHECK(full.defined() && small.defined(), who(), "an operand is undefined");
  SG_CHECK(full.dtype() == small.dtype(), who(), "full is ", full, " but ", small_name, " is ", small,
           "; both need one dtype");
  SG_CHECK(full.device() == small.device(), who(), "full is ", full, " but ", small_name, " is ", small,
           "; both must be on one device");
  SG_CHECK(full.numel() == size * small.numel(), who(), "full is ", full, " and ", small_name, " is ", small,
           ": full must have ", size, " times the elements, ", size * small.numel());
  SG_CHECK(!overlap(small, full) || small.offset() == full.offset() + size_t(rank) * small.bytes(), who(), small_name,
           " overlaps full but is not its slice ", rank);
}

static void count_write(const char* op, const Tensor& received, const CollectiveOptions& options) {
  if (!options.counts_as_write) return;
  check_writable(op, received);
  received.bump_version();
}

Work ProcessGroup::all_gather(const Tensor& full, const Tensor& shard, const CollectiveOptions& options) {
  GatherOf one{full, shard};
  return all_gather({&one, 1}, options);
}

Work ProcessGroup::all_gather(std::span<const GatherOf> buffers, const CollectiveOptions& options) {
  Operation operation{"all_gather", {}, {}};
  std::vector<GatherPart> parts;
  for (const auto& [full, shard] : buffers) {
    check_sizes([&] { return who("all_gather", options.label); }, "shard", shard, full, rank(), size());
    count_write("all_gather", full, options);
    for (const Tensor& tensor : {full, shard}) operation.tensors.push_back(tensor);
    operation.accesses.push_back({address(full), full.bytes(), true});
    operation.accesses.push_back({address(shard), shard.bytes(), false});
    operation.elements += full.numel();
    operation.bytes_sent += int64_t(shard.bytes()) * (size() - 1);
    parts.push_back({address(full), address(shard), shard.bytes()});
  }
  operation.move = [parts = std::move(parts)](Transport& transport, const Call& call) {
    transport.gather_parts(call, parts);
  };
  return launch(std::move(operation), options);
}

Work ProcessGroup::reduce_scatter(const Tensor& shard, const Tensor& full, const CollectiveOptions& options) {
  check_sizes([&] { return who("reduce_scatter", options.label); }, "shard", shard, full, rank(), size());
  count_write("reduce_scatter", shard, options);
  auto move = [to = address(shard), from = address(full), n = shard.numel(), dtype = full.dtype()](
                  Transport& transport, const Call& call) { transport.reduce_scatter(call, to, from, n, dtype); };
  return launch({"reduce_scatter",
                 {full, shard},
                 {{address(full), full.bytes(), false}, {address(shard), shard.bytes(), true}},
                 full.numel(),
                 int64_t(shard.bytes()) * (size() - 1),
                 -1,
                 move},
                options);
}

Work ProcessGroup::all_reduce(const Tensor& t, const CollectiveOptions& options) {
  SG_CHECK(t.defined(), who("all_reduce", options.label), "the tensor is undefined");
  count_write("all_reduce", t, options);
  int64_t n = t.numel(), mine = slice_begin(n, size(), rank() + 1) - slice_begin(n, size(), rank());
  // All slices but its own on the way in, its own to everybody on the way out.
  int64_t sent = (n - mine) + mine * (size() - 1);
  auto move = [data = address(t), n, dtype = t.dtype()](Transport& transport, const Call& call) {
    transport.all_reduce(call, data, n, dtype);
  };
  return launch({"all_reduce", {t}, {{address(t), t.bytes(), true}}, n, sent * int64_t(size_of(t.dtype())), -1, move},
                options);
}

Work ProcessGroup::broadcast(const Tensor& t, int root, const CollectiveOptions& options) {
  SG_CHECK(t.defined(), who("broadcast", options.label), "the tensor is undefined");
  SG_CHECK(root >= 0 && root < size(), who("broadcast", options.label), "there is no root ", root, " in a group of ",
           size());
  if (rank() != root) count_write("broadcast", t, options);
  int64_t sent = rank() == root ? int64_t(t.bytes()) * (size() - 1) : 0;
  auto move = [data = address(t), bytes = t.bytes(), root](Transport& transport, const Call& call) {
    transport.broadcast(call, data, bytes, root);
  };
  return launch({"broadcast", {t}, {{address(t), t.bytes(), rank() != root}}, t.numel(), sent, root, move}, options);
}

Work ProcessGroup::all_to_all(const Tensor& out, const Tensor& in, const CollectiveOptions& options) {
  auto prefix = [&] { return who("all_to_all", options.label); };
  SG_CHECK(out.defined() && in.defined(), prefix(), "an operand is undefined");
  SG_CHECK(out.dtype() == in.dtype() && out.device() == in.device() && out.numel() == in.numel(), prefix(), "in is ",
           in, " but out is ", out, "; they need the same count, dtype and device");
  SG_CHECK(in.numel() % size() == 0, prefix(), "in is ", in, ", which ", size(), " ranks do not divide");
  SG_CHECK(!overlap(out, in), prefix(), "in and out overlap");
  count_write("all_to_all", out, options);
  auto move = [to = address(out), from = address(in), bytes = in.bytes() / size_t(size())](
                  Transport& transport, const Call& call) { transport.all_to_all(call, to, from, bytes); };
  int64_t sent = int64_t(in.bytes()) / size() * (size() - 1);
  return launch({"all_to_all",
                 {out, in},
                 {{address(out), out.bytes(), true}, {address(in), in.bytes(), false}},
                 in.numel(),
                 sent,
                 -1,
                 move},
                options);
}

void ProcessGroup::barrier(const CollectiveOptions& options) {
  launch({"barrier", {}, {}, 0, 0, -1, [](Transport& transport, const Call& call) { transport.barrier(call); }},
         options)
      .host_wait();
}

}  // namespace shardgrad::dist
