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

void ProcessGroup::use(Operation& operation, const Tensor& t, bool is_written) const {
  if (context_.checker()) operation.accesses.push_back({address(t), t.bytes(), is_written});
  operation.tensors.push_back(t);
}

Work ProcessGroup::all_gather(const Tensor& full, const Tensor& shard, const CollectiveOptions& options) {
  GatherOf one{full, shard};
  return all_gather({&one, 1}, options);
}

static void move_gathers(Transport& transport, const Call& call, const Operation& operation) {
  GatherPart one{operation.to, operation.from, size_t(operation.count)};
  transport.gather_parts(call, operation.parts.empty() ? std::span<const GatherPart>(&one, 1) : operation.parts);
}

Work ProcessGroup::all_gather(std::span<const GatherOf> buffers, const CollectiveOptions& options) {
  Operation operation{.op = "all_gather", .move = move_gathers};
  operation.tensors.reserve(2 * buffers.size());
  for (const auto& [full, shard] : buffers) {
    check_sizes([&] { return who("all_gather", options.label); }, "shard", shard, full, rank(), size());
    count_write("all_gather", full, options);
    use(operation, full, true);
    use(operation, shard, false);
    operation.elements += full.numel();
    operation.bytes_sent += int64_t(shard.bytes()) * (size() - 1);
    operation.to = address(full), operation.from = address(shard), operation.count = int64_t(shard.bytes());
    if (buffers.size() > 1) operation.parts.push_back({operation.to, operation.from, shard.bytes()});
  }
  return launch(std::move(operation), options);
}

Work ProcessGroup::reduce_scatter(const Tensor& shard, const Tensor& full, const CollectiveOptions& options) {
  check_sizes([&] { return who("reduce_scatter", options.label); }, "shard", shard, full, rank(), size());
  count_write("reduce_scatter", shard, options);
  Operation operation{.op = "reduce_scatter", .elements = full.numel()};
  operation.bytes_sent = int64_t(shard.bytes()) * (size() - 1);
  operation.tensors.reserve(2);
  use(operation, full, false);
  use(operation, shard, true);
  operation.to = address(shard), operation.from = address(full), operation.count = shard.numel();
  operation.move = [](Transport& transport, const Call& call, const Operation& o) {
    transport.reduce_scatter(call, o.to, o.from, o.count, o.dtype);
  };
  return launch(std::move(operation), options);
}

Work ProcessGroup::all_reduce(const Tensor& t, const CollectiveOptions& options) {
  SG_CHECK(t.defined(), who("all_reduce", options.label), "the tensor is undefined");
  count_write("all_reduce", t, options);
  int64_t n = t.numel(), mine = slice_begin(n, size(), rank() + 1) - slice_begin(n, size(), rank());
  // All slices but its own on the way in, its own to everybody on the way out.
  int64_t sent = (n - mine) + mine * (size() - 1);
  Operation operation{.op = "all_reduce", .elements = n, .bytes_sent = sent * int64_t(size_of(t.dtype()))};
  use(operation, t, true);
  operation.to = address(t), operation.count = n;
  operation.move = [](Transport& transport, const Call& call, const Operation& o) {
    transport.all_reduce(call, o.to, o.count, o.dtype);
  };
  return launch(std::move(operation), options);
}

Work ProcessGroup::broadcast(const Tensor& t, int root, const CollectiveOptions& options) {
  SG_CHECK(t.defined(), who("broadcast", options.label), "the tensor is undefined");
  SG_CHECK(root >= 0 && root < size(), who("broadcast", options.label), "there is no root ", root, " in a group of ",
           size());
  if (rank() != root) count_write("broadcast", t, options);
  Operation operation{.op = "broadcast", .elements = t.numel(), .root = root};
  operation.bytes_sent = rank() == root ? int64_t(t.bytes()) * (size() - 1) : 0;
  use(operation, t, rank() != root);
  operation.to = address(t), operation.count = int64_t(t.bytes());
  operation.move = [](Transport& transport, const Call& call, const Operation& o) {
    transport.broadcast(call, o.to, size_t(o.count), o.root);
  };
  return launch(std::move(operation), options);
}

Work ProcessGroup::all_to_all(const Tensor& out, const Tensor& in, const CollectiveOptions& options) {
  auto prefix = [&] { return who("all_to_all", options.label); };
  SG_CHECK(out.defined() && in.defined(), prefix(), "an operand is undefined");
  SG_CHECK(out.dtype() == in.dtype() && out.device() == in.device() && out.numel() == in.numel(), prefix(), "in is ",
           in, " but out is ", out, "; they need the same count, dtype and device");
  SG_CHECK(in.numel() % size() == 0, prefix(), "in is ", in, ", which ", size(), " ranks do not divide");
  SG_CHECK(!overlap(out, in), prefix(), "in and out overlap");
  count_write("all_to_all", out, options);
  Operation operation{.op = "all_to_all", .elements = in.numel()};
  operation.count = int64_t(in.bytes()) / size();
  operation.bytes_sent = operation.count * (size() - 1);
  use(operation, out, true);
  use(operation, in, false);
  operation.to = address(out), operation.from = address(in);
  operation.move = [](Transport& transport, const Call& call, const Operation& o) {
    transport.all_to_all(call, o.to, o.from, size_t(o.count));
  };
  return launch(std::move(operation), options);
}

void ProcessGroup::barrier(const CollectiveOptions& options) {
  auto move = [](Transport& transport, const Call& call, const Operation&) { transport.barrier(call); };
  launch({.op = "barrier", .move = move}, options).host_wait();
}

}  // namespace shardgrad::dist
