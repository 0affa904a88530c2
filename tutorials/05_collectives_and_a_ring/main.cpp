// Collectives: what the ranks of a group do together, and a ring all-reduce by hand over a slow wire. Ranks run as
// threads of this one process, so a debugger sees them all.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/picture/blocks.h>
#include <shardgrad/tutorials/rung.h>

using sg::Tensor;
using sg::dist::ProcessGroup;

// From each rank to its right neighbour. A message takes `latency` and then a second for `bandwidth` bytes.
struct Wire {
  explicit Wire(int ranks) : mailbox(size_t(ranks)) {}
  double latency = 0.02, bandwidth = 10e6;
  std::vector<std::vector<float>> mailbox;
  int64_t messages = 0, bytes = 0;  // of rank 0

  // All ranks call it at once; returns what the left neighbour has sent.
  std::vector<float> pass_right(ProcessGroup& world, const float* chunk, int64_t count) {
    double size = double(count) * sizeof(float);
    std::this_thread::sleep_for(std::chrono::duration<double>(latency + size / bandwidth));
    mailbox[size_t((world.rank() + 1) % world.size())].assign(chunk, chunk + count);
    if (world.rank() == 0) ++messages, bytes += int64_t(size);
    world.barrier();  // everyone has posted
    std::vector<float> received = mailbox[size_t(world.rank())];
    world.barrier();  // everyone has read
    return received;
  }
};

#include YOURS  // solution.cpp, or your copy of exercise.cpp

constexpr int kRanks = 4, kRing = 6;
constexpr int64_t kElements = 288000;

// Lines of all ranks, in rank order.
class Printer {
 public:
  void say(ProcessGroup& world, const std::string& line) {
    lines_[size_t(world.rank())] = line;
    world.barrier();
    if (world.rank() == 0)
      for (const std::string& each : lines_) std::cout << "rank " << &each - lines_ << each << "\n";
    world.barrier();
  }

 private:
  std::string lines_[kRanks];
};

void collectives(ProcessGroup& world, Printer& printer) {
  // all_gather: everyone gets everyone's part, in rank order.
  Tensor part = sg::full({2}, world.rank()), whole = sg::empty({2 * kRanks});
  world.all_gather(whole, part).host_wait();
  printer.say(world, " gathered " + to_string(whole));

  // reduce_scatter: everyone's tensors are added, and each rank keeps its own part of the sum.
  Tensor mine = sg::arange(2 * kRanks, sg::DType::f32) * double(world.rank() + 1), sum = sg::empty({2});
  world.reduce_scatter(sum, mine).host_wait();
  printer.say(world, " keeps " + to_string(sum) + " of the sum");

  // all_reduce is both in turn: reduce_scatter, then all_gather.
  Tensor both = sg::empty({2 * kRanks});
  world.all_gather(both, sum).host_wait();
  world.all_reduce(mine).host_wait();
  bool same = both.to_vector<float>() == mine.to_vector<float>();
  printer.say(world, same ? " sees all_reduce = reduce_scatter + all_gather" : " sees another all_reduce");
}

// The ring beside the group's all_reduce. Returns the bytes that the group has sent.
int64_t ring_and_group(ProcessGroup& world, Wire& wire, int64_t elements, const learn::Rung& rung) {
  Tensor ring = sg::arange(elements, sg::DType::f32) + double(world.rank()), group = sg::clone(ring);
  ring_all_reduce(wire, world, ring.data<float>(), elements);
  int64_t before = sg::context().recorder().total_bytes_sent();
  world.all_reduce(group).host_wait();
  rung.require(ring.to_vector<float>() == group.to_vector<float>(),
               sg::concat("ring_all_reduce on ", world.size(), " ranks gives ", to_string(ring),
                          ", and the sum over the ranks is ", to_string(group)));
  return sg::context().recorder().total_bytes_sent() - before;
}

// Of the fastest of three rings: others may want the cores, too.
double seconds_of_ring(ProcessGroup& world, Wire& wire) {
  double fastest = 1e9;
  Tensor x = sg::ones({kElements});
  for (int i = 0; i < 3; ++i) {
    world.barrier();
    double begin = sg::context().recorder().now();
    ring_all_reduce(wire, world, x.data<float>(), kElements);
    fastest = std::min(fastest, sg::context().recorder().now() - begin);
  }
  return fastest;
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    Printer printer;
    Wire wire(kRing), timed(kRing);
    std::vector<sg::picture::RankRecords> ranks(kRanks);
    double seconds = 0;
    int64_t sent = 0;
    auto body = [&](ProcessGroup& world) {
      collectives(world, printer);
      ranks[size_t(world.rank())] = {world.rank(), sg::context().recorder().records()};
    };
    sg::dist::run_ranks(kRanks, body, {.threads = 1});
    auto rings = [&](ProcessGroup& world) {
      int64_t of_group = ring_and_group(world, wire, kElements, rung);
      double fastest = seconds_of_ring(world, timed);
      if (world.rank() == 0) sent = of_group, seconds = fastest;
    };
    sg::dist::run_ranks(kRing, rings, {.threads = 1});
    std::cout << "ring and group send as much: " << (wire.bytes == sent ? "yes" : "no") << "\n";
    rung.picture(draw(sg::picture::Blocks{{"blocks", "Who gets what of whom", "What the ranks called."}, ranks}));
    rung.term("W", kRing), rung.term("N", double(kElements)), rung.term("F", sizeof(float));
    rung.term("latency", wire.latency), rung.term("bandwidth", wire.bandwidth);
    rung.count("ring_messages", double(wire.messages)), rung.count("ring_bytes", double(wire.bytes));
    rung.count("group_bytes", double(sent)), rung.count("ring_seconds", seconds);
    for (int ranks : {2, 3}) {
      Wire fast(ranks);
      fast.latency = 0;
      auto again = [&](ProcessGroup& world) { ring_and_group(world, fast, 6 * ranks, rung); };
      sg::dist::run_ranks(ranks, again, {.threads = 1});
    }
  });
}
