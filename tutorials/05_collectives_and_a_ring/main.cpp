// Collectives: what the ranks of a group do together, and a ring all-reduce by hand. Four ranks run as threads of this
// one process, so a debugger sees them all.

#include <iostream>
#include <mutex>
#include <sstream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>

using sg::Tensor;
using sg::dist::ProcessGroup;

constexpr int kRanks = 4;

// Lines of all ranks, in rank order.
class Printer {
 public:
  void say(ProcessGroup& world, const std::string& line) {
    lines_[size_t(world.rank())] = line;
    world.barrier();
    if (world.rank() == 0)
      for (const std::string& each : lines_) std::cout << each << "\n";
    world.barrier();
  }

 private:
  std::string lines_[kRanks];
};

void collectives(ProcessGroup& world, Printer& printer) {
  int rank = world.rank();
  std::string name = "rank " + std::to_string(rank);

  // all_gather: everyone gets everyone's part, in rank order.
  Tensor part = sg::full({2}, rank), whole = sg::empty({2 * kRanks});
  world.all_gather(whole, part).host_wait();
  printer.say(world, name + " gathered " + to_string(whole));

  // reduce_scatter: everyone's tensors are added, and each rank keeps its own part of the sum.
  Tensor mine = sg::arange(2 * kRanks) * double(rank + 1), sum = sg::empty({2});
  world.reduce_scatter(sum, mine).host_wait();
  printer.say(world, name + " keeps " + to_string(sum) + " of the sum");

  // all_reduce is both in turn: reduce_scatter, then all_gather.
  Tensor both = sg::empty({2 * kRanks});
  world.all_gather(both, sum).host_wait();
  world.all_reduce(mine).host_wait();
  bool same = both.to_vector<float>() == mine.to_vector<float>();
  printer.say(world, name + (same ? " sees" : " does NOT see") + " all_reduce = reduce_scatter + all_gather");
}

// A ring all-reduce. The vector is cut into one chunk per rank. In each of W-1 steps a rank passes one chunk to its
// right neighbour and adds what comes from the left; then each rank has one finished chunk, and W-1 more steps pass
// the finished chunks around. Each rank sends 2 (W-1)/W of the vector, whatever the number of ranks.
struct Ring {
  std::vector<std::vector<float>> mailbox{kRanks};

  std::vector<float> pass_right(ProcessGroup& world, const float* chunk, int64_t count) {
    mailbox[size_t((world.rank() + 1) % kRanks)].assign(chunk, chunk + count);
    world.barrier();  // everyone has posted
    std::vector<float> received = mailbox[size_t(world.rank())];
    world.barrier();  // everyone has read
    return received;
  }

  // Returns the number of elements this rank has sent.
  int64_t all_reduce(ProcessGroup& world, const Tensor& t) {
    int64_t count = t.numel() / kRanks, sent = 0;
    auto chunk = [&](int index) { return t.data<float>() + (index + 2 * kRanks) % kRanks * count; };
    for (int step = 0; step < 2 * (kRanks - 1); ++step) {
      int out = world.rank() - step;
      std::vector<float> received = pass_right(world, chunk(out), count);
      bool adding = step < kRanks - 1;
      for (int64_t i = 0; i < count; ++i) {
        float& element = chunk(out - 1)[i];
        element = adding ? element + received[size_t(i)] : received[size_t(i)];
      }
      sent += count;
    }
    return sent;
  }
};

int main() {
  Printer printer;
  Ring ring;
  sg::dist::run_ranks(kRanks, [&](ProcessGroup& world) {
    collectives(world, printer);

    Tensor by_ring = sg::arange(1024) + double(world.rank()), by_group = sg::clone(by_ring);
    int64_t sent = ring.all_reduce(world, by_ring);
    int64_t before = sg::context().recorder().total_bytes_sent();
    world.all_reduce(by_group).host_wait();
    int64_t group_sent = sg::context().recorder().total_bytes_sent() - before;

    std::ostringstream line;
    line << "rank " << world.rank() << ": ring " << to_string(by_ring) << ", group " << to_string(by_group)
         << ", bytes sent " << sent * 4 << " and " << group_sent;
    printer.say(world, line.str());
  });
}
