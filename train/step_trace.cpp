#include <shardgrad/train/step_trace.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/os/rank_map.h>

namespace shardgrad::train {
namespace {

const dist::Label kGather{"", "trace"};

// Second 0 of this rank's records by its machine's date, in nanoseconds.
int64_t zero_of_records() {
  auto date = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(date).count() - int64_t(1e9 * context().recorder().now());
}

void shift(RankTrace& trace, double seconds) {
  for (RankTrace::Step& step : trace.steps) {
    step.begin += seconds;
    step.end += seconds;
  }
  for (Record& record : trace.records) {
    record.begin += seconds;
    if (record.end >= 0) record.end += seconds;
  }
  for (double& moment : trace.memory.moments) moment += seconds;
}

}  // namespace

StepTrace::StepTrace(const std::vector<int64_t>& steps, dist::ProcessGroup& world)
    : first_(steps.at(0)),
      last_(steps.at(1)),
      world_(world),
      trace_{.rank = world.rank(), .host = dist::this_machine()} {
  SG_CHECK(first_ <= last_ && (first_ > 0 || last_ == 0), "trace_steps is [", first_, ", ", last_,
           "], expected the first and the last step of those to record, counted from 1, or [0, 0] for none");
}

StepTrace::~StepTrace() { stop(); }

void StepTrace::stop() {
  if (is_recording_) context().recorder().set_tracing(false);
  is_recording_ = false;
  history_.reset();
}

void StepTrace::begin(int64_t step) {
  if (step < first_ || step > last_) return;
  Recorder& recorder = context().recorder();
  if (!is_recording_) {
    is_recording_ = true;
    recorder.set_tracing(world_.rank() < kTracedRanks);
    if (world_.rank() == 0) history_.emplace(context().ledger(), recorder);
  }
  trace_.steps.push_back({step, recorder.now(), 0});
}

void StepTrace::end(int64_t step) {
  if (!is_recording_) return;
  context().backend(context().default_device()).compute().synchronize();
  trace_.steps.back().end = context().recorder().now();
  if (step == last_) collect();
}

void StepTrace::collect() {
  trace_.records = context().recorder().records();
  std::erase_if(trace_.records, [&](const Record& record) { return record.begin < trace_.steps[0].begin; });
  if (history_) trace_.memory = picture::bytes_over_time(history_->before(), history_->changes());
  stop();
}

std::string StepTrace::gather() {
  if (is_recording_) collect();  // the run ends before the last step that was wanted
  std::vector<int64_t> zeros = world_.share<int64_t>({zero_of_records()}, kGather);
  shift(trace_, 1e-9 * double(zeros.at(size_t(world_.rank())) - zeros[0]));
  std::string mine = trace_events(std::exchange(trace_, {}));
  std::vector<std::string> all;
  for (int rank = 0; rank < std::min(world_.size(), kTracedRanks); ++rank) {
    std::string text = dist::same_text(world_, kGather, rank == world_.rank() ? mine : "", rank);
    if (world_.rank() == 0) all.push_back(std::move(text));
  }
  return world_.rank() == 0 ? trace_file(all) : "";
}

}  // namespace shardgrad::train
