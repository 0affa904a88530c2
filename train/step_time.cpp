#include <shardgrad/train/step_time.h>

#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/picture/overlap.h>
#include <shardgrad/picture/replay.h>
#include <shardgrad/train/doctor/machine.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/rehearsal.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {
namespace {

using picture::Doing;

constexpr const char* kOtherSteps = "steps that are not made of the same pieces cannot be timed piece by piece";

std::string key_of(const Record& record) { return record.op + " " + record.unit; }

// Those that compute and contain no other that does, in order.
std::vector<Record> leaves_of(std::vector<Record> records) {
  std::erase_if(records, [](const Record& record) { return picture::doing(record) != Doing::computing; });
  std::ranges::stable_sort(records, {}, &Record::sequence);
  std::vector<Record> leaves;
  for (size_t i = 0; i < records.size(); ++i)
    if (i + 1 == records.size() || records[i + 1].begin >= records[i].end) leaves.push_back(records[i]);
  return leaves;
}

// The records of a step that has been taken before, and when it began and ended.
struct Traced {
  std::vector<Record> records;
  double begin = 0, end = 0;
};
Traced traced(Rehearsal& rank, const data::Batch& batch) {
  Recorder& recorder = context().recorder();
  Stream& compute = context().backend(context().default_device()).compute();
  rank.read_looks();
  recorder.clear();
  recorder.set_tracing(true);
  compute.synchronize();
  Traced step{.begin = recorder.now()};
  rank.step(batch);
  compute.synchronize();
  step.end = recorder.now();
  recorder.set_tracing(false);
  step.records = recorder.records();
  return step;
}

constexpr double kSeconds = 0.2;
constexpr int64_t kMostTimed = 101;

// Steps until what is slow at first is over: memory that nobody has touched, caches that hold something else, a core
// that was idle. The last of them.
Traced warmed_up(Rehearsal& rank, const data::Batch& batch) {
  Traced step = traced(rank, batch);
  double until = step.begin + kSeconds;
  for (int64_t i = 1; i < kMostTimed && step.end < until; ++i) step = traced(rank, batch);
  return step;
}

// Weights stay as they are: samples without meaning would drive them anywhere. With loss scaling the first steps may be
// left out.
void take_first(Rehearsal& rank, const data::Batch& batch) {
  constexpr int kHalvings = 40;  // that take any scale to nothing
  for (optim::Optimizer* optimizer : rank.optimizers().all()) optimizer->set_lr(0);
  for (int i = 0; i < kHalvings; ++i)
    if (!rank.step(batch)) return;
  fail("each of ", kHalvings, " steps overflows f16, whatever the loss is scaled by; choose another autocast");
}

}  // namespace

double updated_share(fsdp::Sharded& sharded) {
  int64_t mine = 0, all = 0;
  for (const fsdp::FlatParam* flat : sharded.flats()) {
    mine += flat->shard().numel();
    for (const fsdp::Slice& slice : flat->slices()) all += slice.numel();
  }
  return all > 0 ? std::min(1.0, double(mine) / double(all)) : 1;
}

Pieces pieces_of(std::vector<Record> records, double begin, double end) {
  Pieces pieces;
  std::vector<Record> leaves = leaves_of(std::move(records));
  for (size_t i = 0; i < leaves.size(); ++i) {
    double until = i + 1 == leaves.size() ? end : leaves[i].end;
    pieces[key_of(leaves[i])].push_back(std::max(0.0, until - begin));
    begin = leaves[i].end;
  }
  return pieces;
}

StepTime step_time(std::vector<Record> records, const Pieces& pieces, double share, const Rates& network) {
  StepTime time;
  std::map<std::string, size_t> used;
  auto seconds_of = [&](const Record& record) {
    if (picture::doing(record) == Doing::computing) {
      auto all = pieces.find(key_of(record));
      size_t& next = used[key_of(record)];
      if (all == pieces.end() || next == all->second.size())
        fail("the step of one rank alone has ", next, " times '", key_of(record),
             "', and that of one of several more; ", kOtherSteps);
      double seconds = all->second[next++] * (record.op == "step" ? share : 1);
      time.computing += seconds;
      return seconds;
    }
    bool copies = record.op == "download" || record.op == "upload";
    double sent = network.bandwidth > 0 ? double(record.bytes_sent) / network.bandwidth : 0;
    double seconds = copies ? 0 : network.latency + sent;
    time.sending += seconds;
    return seconds;
  };
  records = picture::replayed(std::move(records), seconds_of);
  double replayed = picture::last_moment(records);
  time.step = std::max(replayed, time.sending);  // what streams send at once shares the network
  time.exposed = picture::length_of(picture::overlap_of(records, replayed).exposed) + time.step - replayed;
  return time;
}

// What would not fit would not be refused by the system: it would end this process, or another one.
static void check_fits(const Config& config, const data::Outline& data, Device device, int beside) {
  if (device.kind == DeviceKind::cuda) return;
  auto machine = double(doctor::allowed_memory());
  auto needed = beside * double(plan(config, data, 1, kMeta, {device}).peak);
  SG_CHECK(needed < machine, "to time the step of ",
           beside == 1 ? "one rank alone" : concat(beside, " ranks, each alone,"), " takes ",
           format_bytes(int64_t(needed)), ", and this process may use ", format_bytes(int64_t(machine)),
           "; `plan --compare --tflops N` says the least time of a step without computing it");
}

Pieces medians_of(const std::vector<Pieces>& steps) {
  Pieces medians = steps.at(0);
  for (auto& [key, seconds] : medians)
    for (size_t i = 0; i < seconds.size(); ++i) {
      std::vector<double> all;
      for (const Pieces& step : steps) {
        auto same = step.find(key);
        SG_CHECK(same != step.end() && i < same->second.size(), "a step has '", key, "' ", i + 1,
                 " times, and another one has not; ", kOtherSteps);
        all.push_back(same->second[i]);
      }
      std::ranges::nth_element(all, all.begin() + std::ssize(all) / 2);
      seconds[i] = all[all.size() / 2];
    }
  return medians;
}

StepClock::StepClock(Config config, data::Outline data, Device device, int of_machine, int threads)
    : config_(std::move(config)), data_(std::move(data)), device_(device), of_machine_(of_machine), threads_(threads) {
  constexpr int kOfCore = 32;  // more wait for each other, and measure that
  int cores = usable_cores();
  SG_CHECK(of_machine <= kOfCore * cores, of_machine, " ranks cannot be timed side by side on ", cores,
           cores == 1 ? " core" : " cores", "; say --per-machine ", kOfCore * cores, " or fewer");
}

// Under the same strategy, for what its units are depends on it.
const Pieces& StepClock::timed(const std::string& strategy, int ranks) {
  std::string same = strategy == "hybrid" ? "zero3" : strategy;
  Config alone = with_strategy(config_, same);
  alone.batch = most_samples(config_, data_.train, ranks);
  alone.micro_batches = passes_of(config_, ranks);
  alone.grains = 0;
  int& regroups = alone.fsdp.options.reshard_after_forward;  // fewer ranks that backward asks change no piece
  regroups = std::min(regroups, 0);
  int beside = std::min(ranks, of_machine_);
  Timed key{same, alone.batch, alone.micro_batches, beside};
  if (auto known = timed_.find(key); known != timed_.end()) return known->second;
  constexpr int64_t kFewestTimed = 7;
  check_fits(alone, data_, device_, beside);
  std::vector<Pieces> steps;
  auto body = [&](dist::ProcessGroup& world) {
    auto own = world.split(world.rank(), 0);
    Rehearsal rank(alone, data_, *own);
    data::Batch batch = rank.part(0);
    rank.watch();
    take_first(rank, batch);
    Traced warm = warmed_up(rank, batch);
    auto wanted = int64_t(kSeconds / (warm.end - warm.begin)) / 2 * 2 + 1;
    int64_t count = std::clamp(world.share<int64_t>({wanted}, {"", "timing"})[0], kFewestTimed, kMostTimed);
    for (int64_t i = 0; i < count; ++i) {
      world.barrier();
      Traced step = traced(rank, batch);
      if (world.rank() == 0) steps.push_back(pieces_of(step.records, step.begin, step.end));
    }
  };
  dist::run_ranks(beside, body, {.device = device_, .seed = uint64_t(config_.seed), .threads = threads_});
  return timed_[key] = medians_of(steps);
}

StepTime StepClock::of(const std::string& strategy, int ranks, const Rates& network) {
  Config config = with_strategy(config_, strategy);
  check_grains(config, ranks);
  const Pieces& pieces = timed(strategy, ranks);
  StepTime time;
  auto body = [&](dist::ProcessGroup& world) {
    Rehearsal rank(config, data_, world);
    data::Batch batch = rank.part(data_.train);
    rank.step(batch);
    time = step_time(traced(rank, batch).records, pieces, updated_share(rank.sharded()), network);
  };
  dist::run_one_of(ranks, body, uint64_t(config.seed), {device_});
  return time;
}

}  // namespace shardgrad::train
