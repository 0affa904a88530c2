// Overlap: ZeRO-3 by hand on a device that computes by itself, over a slow network, with no layer, one and two gathered
// ahead.

#include <cstdio>
#include <thread>

#include <shardgrad/core/timeline.h>
#include <shardgrad/picture/lanes.h>
#include <shardgrad/picture/overlap.h>
#include <shardgrad/tutorials/by_hand.h>

using namespace std::chrono_literals;
using sg::Tensor;
using sg::dist::ProcessGroup;
using sg::dist::Work;

// Device acc is host memory that behaves like a GPU: its streams are threads, and what the host calls is only queued.
constexpr sg::Device kDevice = sg::kAcc;

// A rank's compute stream. Counts what is asked of it in a step.
struct Compute {
  sg::Stream& stream;
  std::chrono::milliseconds of_a_layer;  // time that its forward, and its backward, takes
  int events = 0, waits = 0, in_flight = 0, most_in_flight = 0;

  // The moment when all that it was given so far is done: what a collective begins after.
  sg::Event so_far() {
    ++events, most_in_flight = std::max(most_in_flight, ++in_flight);
    return stream.record();
  }
  // What it is given from now on begins when the collective is over.
  void wait_for(const Work& work) {
    ++waits, --in_flight;
    work.wait(stream);
  }
};

// A layer's forward or backward as long as this lives: takes its time, and stands in the trace.
struct Busy {
  Busy(Compute& compute, const char* what, const std::string& layer) : span(kDevice, {.op = what, .unit = layer}) {
    compute.stream.run("busy", [time = compute.of_a_layer] { std::this_thread::sleep_for(time); });
  }
  sg::ComputeSpan span;
};

#include YOURS  // solution.cpp, or your copy of exercise.cpp

constexpr int kRanks = 2, kLayers = 4, kDrawn = 1;  // kDrawn: the prefetch that the picture shows
constexpr int64_t kWidth = 64;
constexpr std::chrono::milliseconds kCompute = 20ms, kTransfer = 8ms;  // of a layer; of a collective

// Of rank 0 in the fastest step but the first: others may want the cores, too.
struct Seen {
  double seconds = 1e9;
  int events = 0, waits = 0, in_flight = 0;
  int64_t whole_peak = 0, gradient_peak = 0;
  sg::picture::RankRecords records;
};

// One step; what it did goes to `seen`, where it was faster.
void look_at_step(Seen* seen, Compute& compute, ProcessGroup& world, const std::function<void()>& step) {
  sg::Ledger& ledger = sg::context().ledger();
  sg::Recorder& recorder = sg::context().recorder();
  compute.stream.synchronize();
  world.barrier();
  ledger.reset_peaks();
  recorder.clear();
  recorder.set_tracing(true);
  compute.events = compute.waits = compute.in_flight = compute.most_in_flight = 0;
  double begin = recorder.now();
  step();
  compute.stream.synchronize();
  double seconds = recorder.now() - begin;
  recorder.set_tracing(false);
  if (!seen || seconds > seen->seconds) return;
  *seen = {seconds, compute.events, compute.waits, compute.most_in_flight};
  seen->records = {.rank = 0, .records = recorder.records(), .zero = recorder.zero()};
  seen->whole_peak = ledger.peak(Category::named<"gathered_parameter">);
  seen->gradient_peak = ledger.peak(Category::named<"full_gradient">);
}

Seen train(int ranks, int prefetch, bool slow, const learn::Rung& rung) {
  Seen seen;
  auto body = [&](ProcessGroup& world) {
    by_hand::Batches batches(world, kWidth);
    by_hand::Weights expected = by_hand::data_parallel(world, kWidth, batches, kLayers);
    auto model = by_hand::make_model(kWidth, kLayers);
    model->materialize();
    Compute compute{sg::current_stream(kDevice), slow ? kCompute : 0ms};
    Trainer trainer(world, model, prefetch, compute);
    model = {};  // the trainer has taken what it wants to keep
    for (size_t step = 0; step < by_hand::kSteps; ++step) {
      auto run_step = [&] { trainer.step(batches.x[step], batches.target[step], batches.count); };
      if (slow)
        look_at_step(step > 0 && world.rank() == 0 ? &seen : nullptr, compute, world, run_step);
      else
        run_step();  // and the host goes on while the device is still in it
    }
    by_hand::Weights weights = trainer.weights();
    for (size_t i = 0; i < expected.size(); ++i) {
      weights[i].resize(expected[i].size());  // less what was put behind to make equal parts
      rung.require(weights[i] == expected[i], sg::concat("with prefetch ", prefetch, " on ", ranks, " ranks layer ", i,
                                                         " is not what data parallel training makes of it"));
    }
  };
  sg::dist::VirtualOptions options{.device = kDevice, .threads = 1};
  if (slow) options.group.delay = sg::dist::fixed_delay(kTransfer);
  sg::dist::run_ranks(ranks, body, options);
  return seen;
}

void report(learn::Rung& rung, const std::vector<Seen>& with_prefetch) {
  std::printf("prefetch   in flight   whole layers, bytes   gradients, bytes\n");
  for (size_t prefetch = 0; prefetch < with_prefetch.size(); ++prefetch) {
    const Seen& seen = with_prefetch[prefetch];
    std::string of = std::to_string(prefetch);
    std::printf("%8zu %11d %21lld %18lld\n", prefetch, seen.in_flight, (long long)seen.whole_peak,
                (long long)seen.gradient_peak);
    rung.count("events", seen.events), rung.count("waits", seen.waits);
    rung.count("in_flight_" + of, seen.in_flight), rung.count("whole_peak_" + of, double(seen.whole_peak));
    rung.count("gradient_peak", double(seen.gradient_peak)), rung.count("seconds_" + of, seen.seconds);
  }
  for (const Seen& seen : with_prefetch) {
    double hidden = sg::picture::overlap_of(seen.records.records, seen.seconds).share().value_or(0);
    std::printf("a step takes %.0f ms, and %.0f %% of what is sent is sent while it computes\n", seen.seconds * 1000,
                hidden * 100);
  }
  rung.picture(draw(sg::picture::Lanes{{"overlap", "Two lanes of a step", "What rank 0 computes and sends."},
                                       {with_prefetch[kDrawn].records}}));
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    for (int ranks : {3, 1})
      for (int prefetch : {0, 1, 2}) train(ranks, prefetch, false, rung);
    std::printf("W = 3 and 1, prefetch 0, 1 and 2: the same bits as data parallel training\n");
    rung.term("L", kLayers), rung.term("D", double(kWidth)), rung.term("F", sizeof(float));
    rung.term("compute", double(kCompute.count()) / 1000), rung.term("transfer", double(kTransfer.count()) / 1000);
    rung.term("prefetch", 1), rung.term("reductions", 2);
    std::vector<Seen> with_prefetch;
    for (int prefetch : {0, 1, 2}) with_prefetch.push_back(train(kRanks, prefetch, true, rung));
    report(rung, with_prefetch);
  });
}
