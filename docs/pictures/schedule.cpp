// One step of zero3 on a device that computes by itself, where the host queues all of it at once: what waits for what
// is the engine's, and how long each piece takes is said here.

#include <condition_variable>
#include <set>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/stream.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/picture/blocks.h>
#include <shardgrad/picture/lanes.h>
#include <shardgrad/picture/replay.h>
#include <shardgrad/picture/strip.h>

#include "docs/pictures/drawings.h"

namespace drawings {

namespace {

constexpr int64_t kWidth = 64;
constexpr double kFlops = 50e9, kBandwidth = 1e9;  // of a laptop's core, and a network

/// Holds up a rank's collectives while the rank queues a step, so that none is over when it asks whether to wait.
class Gate {
 public:
  void close() {
    change([](std::set<const sg::Context*>& held) { held.insert(&sg::context()); });
  }
  void open() {
    change([](std::set<const sg::Context*>& held) { held.erase(&sg::context()); });
  }
  void pass() {
    const sg::Context* rank = &sg::running_stream()->context();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_.contains(rank); });
  }

 private:
  template <class Change> void change(Change change) {
    std::lock_guard lock(mutex_);
    change(held_);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<const sg::Context*> held_;
};

std::vector<sg::Record> second_step(sg::dist::ProcessGroup& world, Gate& gate) {
  Training training(world, 4, kWidth, {.strategy = sg::fsdp::Strategy::zero3});
  sg::Recorder& recorder = sg::context().recorder();
  sg::Stream& compute = sg::context().backend(sg::kAcc).compute();
  training.step();
  compute.synchronize();
  recorder.clear();
  recorder.set_tracing(true);
  gate.close();
  training.step();
  gate.open();
  compute.synchronize();
  std::vector<sg::Record> records = recorder.records();
  for (sg::Record& record : records)
    if (!record.unit.empty()) record.unit = "L" + record.unit;
  return records;
}

double seconds_of(const sg::Record& record) {
  double product = 2.0 * kBatch * kWidth * kWidth / kFlops;
  if (record.op == "forward") return product;
  if (record.op == "backward") return 2 * product;  // for the weights, and for what is below
  if (record.op == "step") return product / 2;
  return double(record.bytes_sent) / kBandwidth;
}

// What rung 5 of the ladder calls, on device meta.
std::string collectives_picture() {
  std::vector<sg::picture::RankRecords> ranks(kRanks);
  auto body = [&](sg::dist::ProcessGroup& world) {
    sg::Tensor part = sg::empty({2}), whole = sg::empty({2 * kRanks});
    world.all_gather(whole, part);
    world.reduce_scatter(part, whole);
    world.all_reduce(whole);
    ranks[size_t(world.rank())] = {world.rank(), sg::context().recorder().records()};
  };
  sg::dist::run_ranks(kRanks, body, {.device = sg::kMeta, .threads = 1});
  return draw(sg::picture::Blocks{
      {"collectives", "Who gets what of whom", "The collectives of sharded training, on four ranks."}, ranks});
}

}  // namespace

void draw_schedule(Pictures& all) {
  all["collectives"] = collectives_picture();
  Gate gate;
  std::vector<sg::picture::RankRecords> ranks(kRanks);
  sg::dist::VirtualOptions options{.device = sg::kAcc, .threads = 1};
  options.group.delay = [&](int64_t) { return gate.pass(), std::chrono::microseconds(0); };
  auto body = [&](sg::dist::ProcessGroup& world) {
    ranks[size_t(world.rank())] = {world.rank(), second_step(world, gate)};
  };
  sg::dist::run_ranks(kRanks, body, options);
  all["blocks_zero3"] = draw(sg::picture::Blocks{
      {"blocks-zero3", "What moves in one step under zero3", "Four layers on four ranks, each layer in four parts."},
      ranks});
  std::vector<sg::Record> first = sg::picture::replayed(ranks[0].records, seconds_of);
  all["schedule_zero3"] = draw(sg::picture::Lanes{
      {"schedule-zero3", "The schedule of one step under zero3",
       "Four layers, L0 to L3, as one of four ranks sees them: each is gathered one layer ahead of its computation."},
      {{0, first}}});
  all["units_zero3"] = draw(sg::picture::Strip{
      {"units-zero3", "Whole layers come and go under zero3", "The same step: when each layer is in memory."}, first});
}

}  // namespace drawings
