// Bandwidth and latency of the collectives, each checked, next to MPI's own on the same ranks and in alternation:
//
//     mpirun -n 2 --bind-to none collectives_bench [MB] [rounds]
//
// GB/s counts the bytes of the full tensor per second, so all columns of a line are comparable. memcpy is what all
// ranks copy at the same time, each the full tensor, which an all_reduce goes through twice. The last lines give the
// cost of a collective's bookkeeping (checks, record, control channel) alone. Exits 1 where a result is wrong, or where
// a collective of 8 MiB or more in shared memory has less than 0.9 of the speed of memcpy.

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include <shardgrad/dist/launch/job.h>
#include <shardgrad/dist/transports/transports.h>

#include "bench/control_cost.h"

namespace sgd = shardgrad::dist;
using namespace shardgrad;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

constexpr double kLarge = 8 << 20, kAim = 0.9;  // bytes, and how fast against memcpy

struct Buffers {
  Tensor full, shard;
};

Buffers make_buffers(sgd::ProcessGroup& group, int64_t n) {
  auto make = [&](int64_t count) {
    return Tensor(Storage::make(size_t(count) * 4, group.memory(), {}), 0, {count}, DType::f32);
  };
  return {make(n * group.size()), make(n)};
}

class Bench {
 public:
  Bench(sgd::ProcessGroup& shared, sgd::ProcessGroup& mpi, int rounds) : shared_(shared), mpi_(mpi), rounds_(rounds) {}

  void reduce_scatter(int64_t n) {
    auto check = [&](const Buffers& b) { return b.shard.data<float>()[n - 1] == sum_of_ranks(); };
    measure(
        "reduce_scatter", n, 1, check,
        [](sgd::ProcessGroup& g, const Buffers& b) { g.reduce_scatter(b.shard, b.full).host_wait(); },
        [&](const Buffers& b) {
          MPI_Reduce_scatter_block(b.full.data<float>(), b.shard.data<float>(), int(n), MPI_FLOAT, MPI_SUM,
                                   MPI_COMM_WORLD);
        });
  }
  void all_gather(int64_t n) {
    auto check = [&](const Buffers& b) { return b.full.data<float>()[b.full.numel() - 1] == float(shared_.size()); };
    measure(
        "all_gather", n, 1, check,
        [](sgd::ProcessGroup& g, const Buffers& b) { g.all_gather(b.full, b.shard).host_wait(); },
        [&](const Buffers& b) {
          MPI_Allgather(b.shard.data<float>(), int(n), MPI_FLOAT, b.full.data<float>(), int(n), MPI_FLOAT,
                        MPI_COMM_WORLD);
        });
  }
  void all_reduce(int64_t n) {
    auto check = [&](const Buffers& b) { return b.full.data<float>()[0] == sum_of_ranks(); };
    measure(
        "all_reduce", n, 2, check, [](sgd::ProcessGroup& g, const Buffers& b) { g.all_reduce(b.full).host_wait(); },
        [&](const Buffers& b) {
          MPI_Allreduce(MPI_IN_PLACE, b.full.data<float>(), int(b.full.numel()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        });
  }
  /// Of all ranks. Called by them together.
  bool reached() const {
    std::vector<int64_t> all = shared_.share<int64_t>({reached_}, {"", "reached"});
    return std::ranges::all_of(all, [](int64_t one) { return one == 1; });
  }

 private:
  using Ours = std::function<void(sgd::ProcessGroup&, const Buffers&)>;
  using Theirs = std::function<void(const Buffers&)>;
  float sum_of_ranks() const { return float(shared_.size() * (shared_.size() + 1) / 2); }

  void fill(const Buffers& b) const {
    std::fill_n(b.full.data<float>(), b.full.numel(), float(shared_.rank() + 1));
    std::fill_n(b.shard.data<float>(), b.shard.numel(), float(shared_.rank() + 1));
  }

  /// `copies`: how often it goes through the full tensor.
  void measure(const char* op, int64_t n, int copies, const std::function<bool(const Buffers&)>& check,
               const Ours& ours, const Theirs& theirs) {
    Buffers b = make_buffers(shared_, n);
    std::vector<float> source(size_t(b.full.numel()), 1);
    std::map<std::string, std::vector<double>> times;
    bool right = true;
    for (int round = -1; round < rounds_; ++round)
      for (const char* way : {"shared", "mpi", "library", "copy"}) {
        fill(b);
        shared_.barrier();
        double begin = now();
        if (way[0] == 's') ours(shared_, b);
        if (way[0] == 'm') ours(mpi_, b);
        if (way[0] == 'l') theirs(b);
        if (way[0] == 'c') std::memcpy(b.full.data<float>(), source.data(), b.full.bytes());
        if (round >= 0) times[way].push_back(now() - begin);
        right &= way[0] == 'c' || check(b);
        shared_.barrier();
      }
    report(op, double(b.full.bytes()), copies, times, right);
  }

  void report(const char* op, double bytes, int copies, std::map<std::string, std::vector<double>>& times, bool right) {
    double shared = median(times["shared"]), mpi = median(times["mpi"]), library = median(times["library"]),
           copy = median(times["copy"]), of_copy = copies * copy / shared;
    reached_ &= right && (shared_.rank() != 0 || bytes < kLarge || of_copy >= kAim);
    if (shared_.rank() == 0)
      std::printf(
          "%-15s %9.0f KiB  shared memory %8.1f us %6.2f GB/s   our mpi %8.1f us %6.2f GB/s   MPI's own %8.1f us "
          "%6.2f GB/s   ratio %5.2f   memcpy %8.1f us %6.2f GB/s, ours %4.2f of it   %s\n",
          op, bytes / 1024, shared * 1e6, bytes / shared / 1e9, mpi * 1e6, bytes / mpi / 1e9, library * 1e6,
          bytes / library / 1e9, library / shared, copy * 1e6, bytes / copy / 1e9, of_copy, right ? "right" : "WRONG");
    std::fflush(stdout);
  }

  sgd::ProcessGroup &shared_, &mpi_;
  int rounds_;
  bool reached_ = true;
};

// What a collective costs besides moving bytes: one rank alone, whose collectives are empty.
void bookkeeping(sgd::Control& control) {
  auto shared = std::shared_ptr<sgd::Control>(&control, [](sgd::Control*) {});
  sgd::ProcessGroup alone(sgd::make_single_transport(shared), shared, {control.rank()}, 77, {});
  Tensor t = empty({1024});
  sgd::CollectiveOptions options(sgd::Label{"layers.0", "backward"});
  constexpr int kCalls = 20000;
  double begin = now();
  for (int i = 0; i < kCalls; ++i) alone.all_reduce(t, options);
  double whole = (now() - begin) / kCalls;

  std::printf("bookkeeping of a collective %.2f us", whole * 1e6);
}

int run(sgd::Job& job, int64_t megabytes, int rounds) {
  auto control = std::shared_ptr<sgd::Control>(&job.world().control(), [](sgd::Control*) {});
  auto& bootstrap = const_cast<sgd::Bootstrap&>(job.bootstrap());
  std::vector<int> members;
  for (int r = 0; r < bootstrap.size(); ++r) members.push_back(r);
  sgd::ProcessGroup mpi(sgd::make_mpi_transport(bootstrap, control), control, members, 76, {});
  Bench bench(job.world(), mpi, rounds);
  int64_t ranks = bootstrap.size();
  for (int64_t kib : {int64_t(4), int64_t(64), int64_t(1024), int64_t(8192), megabytes * 1024}) {
    int64_t n = kib * 1024 / 4 / ranks;
    bench.reduce_scatter(n);
    bench.all_gather(n);
    bench.all_reduce(n);
  }
  bench::ControlCost cost = bench::control_cost(job.world());
  bool reached = bench.reached();
  if (job.world().rank() != 0) return 0;
  bookkeeping(job.world().control());
  std::printf(", of which control channel %.3f us; its monitor takes %.4f %% of a core\n", cost.collective * 1e6,
              cost.monitor * 100);
  if (!reached) std::printf("a result is wrong, or a large collective is slower than %.1f of memcpy\n", kAim);
  return reached ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t megabytes = argc > 1 ? std::atol(argv[1]) : 64;
  int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  return sgd::run_job([&](sgd::Job& job) { return run(job, megabytes, rounds); });
}
