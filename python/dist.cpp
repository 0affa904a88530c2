// shardgrad.dist: the job, its group of ranks, and collectives.

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/launch/launch_local.h>
#include <shardgrad/parallel/collectives.h>

#include <shardgrad/python/bind.h>
#include <shardgrad/python/group.h>
#include <shardgrad/python/process.h>

namespace shardgrad::python {
namespace {

using dist::ProcessGroup;

// What a collective writes to has no graph that would not know of it.
const Tensor& written(const char* call, const Tensor& tensor) {
  check_changeable(call, tensor);
  return tensor;
}

std::optional<dist::Work> begun(bool async_op, dist::Work work) {
  if (async_op) return work;
  work.host_wait();
  return std::nullopt;
}

bool init(uint64_t seed, int threads, const DeviceName& device, const std::string& kind) {
  dist::JobOptions options;
  options.takes_interrupts = false;  // Ctrl-C is KeyboardInterrupt
  options.context.seed = seed;
  options.context.threads = threads;
  if (device) options.context.device = place_of(*device);
  options.group.kind = kind;
  nb::gil_scoped_release release;
  return begin(options);
}

void bind_job(nb::module_& m) {
  m.def("_init", init, "seed"_a, "threads"_a, "device"_a.none(), "kind"_a);
  m.def(
      "_finish",
      [](std::optional<nb::object> exception) {
        std::exception_ptr error = exception ? failure_of(*exception) : nullptr;
        nb::gil_scoped_release release;
        return end(error);
      },
      "exception"_a.none());
  m.def("is_initialized", has_context, "Whether the ranks have met; of a process alone, whether it has begun.");
  m.def("_has_job", has_job);
  m.def("_forked", forked);
  m.def("_exiting", exiting);
  m.def(
      "world", [] { return Group(world()); }, Waits(), "The group of all ranks.");
  m.def("stop_requested", stop_requested, Waits(),
        "Whether somebody has asked the program to save and end: Ctrl-C under a launcher, or SIGUSR1. Ranks may learn "
        "it at different times: agree before acting on it.");
  m.def("started_alone", dist::started_alone, "Whether no launcher has started this process as one of several.");
  m.def(
      "_launch_local",
      [](int n, const std::vector<std::string>& command, int threads) {
        return dist::launch_local(n, command, threads);
      },
      "n"_a, "command"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>());
}

void bind_collectives(nb::class_<Group>& group) {
  group
      .def(
          "all_reduce",
          [](const Group& g, const Tensor& t, bool async_op) {
            return begun(async_op, g->all_reduce(written("all_reduce", t)));
          },
          "tensor"_a, "async_op"_a = false, Waits(), "tensor = the sum of all ranks' tensors.")
      .def(
          "broadcast",
          [](const Group& g, const Tensor& t, int root, bool async_op) {
            return begun(async_op, g->broadcast(written("broadcast", t), root));
          },
          "tensor"_a, "root"_a = 0, "async_op"_a = false, Waits(), "tensor = root's tensor.")
      .def(
          "all_gather",
          [](const Group& g, const Tensor& full, const Tensor& shard, bool async_op) {
            return begun(async_op, g->all_gather(written("all_gather", full), shard));
          },
          "full"_a, "shard"_a, "async_op"_a = false, Waits(), "full = all ranks' shards in rank order.")
      .def(
          "reduce_scatter",
          [](const Group& g, const Tensor& shard, const Tensor& full, bool async_op) {
            return begun(async_op, g->reduce_scatter(written("reduce_scatter", shard), full));
          },
          "shard"_a, "full"_a, "async_op"_a = false, Waits(), "shard = this rank's part of the sum of all ranks' full.")
      .def(
          "all_to_all",
          [](const Group& g, const Tensor& out, const Tensor& in, bool async_op) {
            return begun(async_op, g->all_to_all(written("all_to_all", out), in));
          },
          "out"_a, "input"_a, "async_op"_a = false, Waits(),
          "Part r of input goes to rank r; part r of out comes from it.");
}

void bind_meetings(nb::class_<Group>& group) {
  group
      .def(
          "barrier", [](const Group& g) { g->barrier(); }, Waits(), "Returns when every rank has called it.")
      .def(
          "share",
          [](const Group& g, const std::vector<double>& mine) {
            return g->share(mine, {"", "share"});
          },
          "numbers"_a, Waits(), "Everybody's numbers, in the order of the ranks, of which each gives as many.");
}

void bind_group(nb::module_& m) {
  nb::class_<dist::Work>(m, "Work", "A collective that was begun.")
      .def("wait", &dist::Work::host_wait, Waits(), "Returns when it is done; throws its failure.")
      .def("done", &dist::Work::done, "Whether it is done.");
  nb::class_<Group> group(
      m, "ProcessGroup",
      "Ranks and their collectives. Every rank makes the same calls in the same order. Sums have one "
      "order, hence the same bits everywhere. With async_op a call returns a Work to wait for.");
  bind_collectives(group);
  bind_meetings(group);
  group
      .def_prop_ro(
          "rank", [](const Group& g) { return g->rank(); }, "This rank's number in the group, from 0.")
      .def_prop_ro(
          "size", [](const Group& g) { return g->size(); }, "How many ranks the group has.")
      .def_prop_ro(
          "kind", [](const Group& g) { return g->kind(); }, "How it sends: single, shared_memory, mpi, nccl, …")
      .def(
          "split", [](const Group& g, int color, int key) { return Group(keep(g->split(color, key))); }, "color"_a,
          "key"_a = 0, Waits(), "One group for each color, ordered by (key, rank). It lasts as long as the job.")
      .def("__repr__", [](const Group& g) {
        return concat("ProcessGroup(rank ", g->rank(), " of ", g->size(), ", ", g->kind(), ")");
      });
}

// Collectives that autograd knows.
void bind_parallel(nb::module_& m) {
  auto def = [&](const char* name, Tensor (*function)(const Tensor&, ProcessGroup&, int), const char* doc) {
    m.def(
        name, [function](const Tensor& x, const Group& g, int dim) { return function(x, *g, dim); }, "x"_a, "group"_a,
        "dim"_a = 0, Waits(), doc);
  };
  auto whole = [&](const char* name, Tensor (*function)(const Tensor&, ProcessGroup&), const char* doc) {
    m.def(
        name, [function](const Tensor& x, const Group& g) { return function(x, *g); }, "x"_a, "group"_a, Waits(), doc);
  };
  def("all_gather", parallel::all_gather,
      "The ranks' tensors end to end along dim. The gradient is summed over ranks.");
  def("reduce_scatter", parallel::reduce_scatter, "This rank's part along dim of the sum of the ranks' tensors.");
  whole("all_reduce", parallel::all_reduce, "The sum of the ranks' tensors. The gradient is summed over ranks.");
  m.def(
      "all_to_all",
      [](const Tensor& x, const Group& g, int split_dim, int cat_dim) {
        return parallel::all_to_all(x, *g, split_dim, cat_dim);
      },
      "x"_a, "group"_a, "split_dim"_a = 0, "cat_dim"_a = 0, Waits(), "Cuts along split_dim, joins along cat_dim.");
  m.def(
      "broadcast", [](const Tensor& x, const Group& g, int root) { return parallel::broadcast(x, *g, root); }, "x"_a,
      "group"_a, "root"_a = 0, Waits(), "root's tensor on every rank.");
  whole("copy_to_group", parallel::copy_to_group, "x itself; its gradient is summed over the ranks. Megatron's f.");
  whole("reduce_from_group", parallel::reduce_from_group, "The ranks' sum; its gradient goes to each. Megatron's g.");
  def("gather_from_group", parallel::gather_from_group, "all_gather whose result is replicated.");
  def("scatter_to_group", parallel::scatter_to_group, "This rank's part of a replicated x.");
  whole("max_over", parallel::max_over, "The largest of the ranks' elements. Not differentiable.");
}

}  // namespace

void bind_dist(nb::module_& m) {
  nb::module_ group = m.def_submodule("_dist"), parallel = m.def_submodule("parallel", "Collectives with a gradient.");
  bind_group(group);
  bind_job(group);
  bind_parallel(parallel);
}

}  // namespace shardgrad::python
