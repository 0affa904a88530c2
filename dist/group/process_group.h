#pragma once
// A group of ranks and the collectives between them. A collective is queued on the group's own stream and returns at
// once; the Work it returns is waited for by a stream or by the host:
//
//     Work gathered = group.all_gather(full, shard, Label{"layers.0", "forward"});
//     gathered.wait(compute);          // later work on `compute` sees the full tensor
//
// A small one (64 KiB) between ranks of one machine begins when somebody waits for it, and runs in the thread that
// waits; where nobody does, a millisecond or two later in the stream's.
//
// Every rank makes the same calls in the same order, also between groups, and from one thread: the one that made the
// group, until another takes it over. This class checks arguments, numbers the calls, records them, and tells the
// control channel; a Transport only moves bytes. Sums have one order on every rank and transport, hence the same bits;
// dist/transports/tree_sum.h has it, and the exception that NCCL makes.

#include <chrono>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/core/end_hooks.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/core/timeline.h>

namespace shardgrad::dist {

class CommonMemory;
class Control;
class Transport;
struct Operation;
struct Place;

/// What a collective is for; shown by the recorder, the control channel and errors.
struct Label {
  std::string unit;   ///< the unit's name, empty outside units
  std::string phase;  ///< "forward", "backward", "step", …
};

struct CollectiveOptions {
  CollectiveOptions(Label label = {}, std::optional<Event> after = {}) : label(std::move(label)), after(after) {}
  Label label;
  /// What the collective starts after. Unset: everything queued so far on the compute stream of the tensors' device.
  /// Event() waits for nothing; several events: stream().wait(each), then Event().
  std::optional<Event> after;
  /// What else must be equal on all ranks; ranks that differ have diverged, and the error shows it, or its begin.
  std::string detail = {};
  /// Whether what is received is another value to whoever saved the tensor for backward. False for one that only comes
  /// back into memory, such as gathered parameters.
  bool counts_as_write = true;
};

/// A queued collective. Copyable; a default-constructed one is done. It keeps its tensors alive until somebody waits
/// for it, so that their memory is given back in the order of whoever waited, not of the group's stream.
/// Waiting is for any thread, calls are not.
class Work {
 public:
  struct State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Work queued on `stream` from now on starts after this collective.
  void wait(Stream& stream) const;
  /// Blocks the calling thread; throws the collective's failure, or the job's.
  void host_wait() const;
  bool done() const;
  Event event() const;

 private:
  std::optional<uint64_t> begin_wait(Stream& stream) const;
  std::shared_ptr<State> state_;
};

struct GroupOptions {
  /// "single", "threads", "shared_memory", "two_level", "mpi" or "nccl"; empty: the fastest that connects all ranks.
  std::string kind;
  /// A slow fake network: how long a collective that sends so many bytes is held up. See fixed_delay.
  std::function<std::chrono::microseconds(int64_t bytes_sent)> delay;
  /// Shared memory: the most bytes of the heap a rank may use; 0: as much as the machine has.
  size_t heap_limit = 0;
  /// Of the group's stream in the trace, after "communication/"; empty: the kind.
  std::string name = {};
  /// The machine of each rank of the job, by rank; empty: all are on one. Given to run_ranks, it pretends machines;
  /// that of a job's processes is what their bootstrap says.
  std::vector<int> machines = {};
};
std::function<std::chrono::microseconds(int64_t)> fixed_delay(std::chrono::microseconds time);

class ProcessGroup {
 public:
  /// Made by run_ranks, run_job and split. `members` are the global ranks, in the group's order. Uses the calling
  /// thread's context, which must outlive the group.
  ProcessGroup(std::unique_ptr<Transport> transport, std::shared_ptr<Control> control, std::vector<int> members,
               uint64_t id, GroupOptions options);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return int(members_.size()); }
  int global_rank(int rank) const { return members_.at(size_t(rank)); }
  /// The number of the machine that a rank of this group is on.
  int machine_of(int rank) const {
    return options_.machines.empty() ? 0 : options_.machines.at(size_t(global_rank(rank)));
  }
  const std::string& kind() const;
  /// What the ranks compute on: the context's default device, or, where they are only pretended to be there
  /// (run_one_of), what they would compute on.
  Device computes_on() const;
  /// The memory that this group sends from and receives into without a copy. Device: the context's default.
  const Ref<Allocator>& memory() const { return memory_; }
  /// Memory of `bytes` bytes a rank that all ranks see as one (dist/transports/common_memory.h); null where they
  /// cannot. Called by all ranks; blocks.
  std::shared_ptr<CommonMemory> common_memory(size_t bytes);
  /// The FIFO that the group's collectives run on.
  Stream& stream() { return *stream_; }
  Control& control() { return *control_; }

  // Collectives. Tensors of any dtype, on any device (on meta: recorded, nothing moved); all of one call on one device
  // and of one dtype. The tensors' memory must stay resident until the call is done. Wrong arguments throw Error(input)
  // naming op, shapes, rank and unit. Every call counts as a write to what it receives into (Storage::version), unless
  // CollectiveOptions say otherwise.

  /// full = all ranks' shards in rank order. full.numel() == size() * shard.numel(); shard may be full's own slice.
  Work all_gather(const Tensor& full, const Tensor& shard, const CollectiveOptions& options = {});
  /// shard = this rank's slice of the sum of all ranks' full. full.numel() == size() * shard.numel(); shard may be
  /// full's own slice.
  Work reduce_scatter(const Tensor& shard, const Tensor& full, const CollectiveOptions& options = {});
  /// The same for several buffers, which may differ in size and dtype, as one call.
  struct GatherOf {
    Tensor full, shard;
  };
  Work all_gather(std::span<const GatherOf> buffers, const CollectiveOptions& options = {});
  /// t = the sum of all ranks' t.
  Work all_reduce(const Tensor& t, const CollectiveOptions& options = {});
  /// t = root's t.
  Work broadcast(const Tensor& t, int root, const CollectiveOptions& options = {});
  /// Slice r of `in` goes to rank r; slice r of `out` comes from rank r. Equal sizes, divisible by size(); no overlap.
  Work all_to_all(const Tensor& out, const Tensor& in, const CollectiveOptions& options = {});
  /// Returns when every rank has called it and everything queued before on the group's stream has run.
  void barrier(const CollectiveOptions& options = {});
  /// Everybody's numbers (int64_t or double), in the order of the ranks, of which each gives as many. Blocks.
  template <class T> std::vector<T> share(const std::vector<T>& mine, const Label& label);
  /// Something that must be equal on all ranks and sends nothing, in a few letters: the next collective compares it.
  void note(std::string_view what);

  /// The calling thread makes this group's calls from now on. Needed because a thread that waits for another group is
  /// taken not to make them meanwhile; see dist/watch/deadlock.h.
  void take_over();
  /// One group for each color, of the ranks that gave it, ordered by (key, rank), with a stream of its own, which the
  /// trace shows under `name`. Called by all ranks; blocks. Throws Error(input) where a rank is in 32 groups.
  std::unique_ptr<ProcessGroup> split(int color, int key, const std::string& name = {});
  /// The `size` ranks that lie `stride` apart and hold the calling rank: of six, with stride 2 and size 3, {0, 2, 4}
  /// and {1, 3, 5}. Kept until this group goes and given again for the same arguments: models share their groups, since
  /// a rank can be in 32 at a time (dist/watch/control_page.h), and each has a stream. Called by all ranks.
  ProcessGroup& kept_split(int stride, int size, const std::string& name);
  /// Runs `end` when this group goes, while it can still be used; not if the returned handle went first. For objects
  /// that use it and may outlive it. `end` must not throw.
  [[nodiscard]] std::shared_ptr<void> at_end(std::function<void()> end) { return at_end_.add(std::move(end)); }
  /// What tells that this group is gone, for objects that only refuse to be used then.
  std::weak_ptr<const void> life() const { return life_; }

 private:
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int color, const std::string& name);
  void use(Operation& operation, const Tensor& t, bool is_written) const;
  Work launch(Operation operation, const CollectiveOptions& options);
  void queue(Work::State& state);
  void fill_place(Work::State& state, const CollectiveOptions& options);
  Begin begin_of(const Operation& operation) const;
  void run(const Work::State& state);
  void stamp(void (Recorder::*moment)(uint64_t), uint64_t record);
  std::string who(const char* op, const Label& label) const;
  std::string with_notes(const std::string& detail);
  void forget_finished();
  void wait_before(const CollectiveOptions& options, Device device);

  Context& context_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Control> control_;
  std::vector<int> members_;
  int rank_;
  uint64_t id_;
  GroupOptions options_;
  int lane_;
  uint64_t sequence_ = 0;
  int splits_ = 0, loans_ = 0;
  std::string noted_;
  EndHooks at_end_;
  std::shared_ptr<const void> life_ = std::make_shared<char>();
  struct KeptSplit {
    int stride, size;
    std::string name;
    std::unique_ptr<ProcessGroup> group;
  };
  std::vector<KeptSplit> kept_splits_;
  int exceptions_;
  Ref<Allocator> memory_;
  std::deque<std::shared_ptr<Work::State>> in_flight_;  // queued, and not known to be done
  std::unique_ptr<Stream> stream_;                      // last: drained before anything above goes
};

}  // namespace shardgrad::dist
