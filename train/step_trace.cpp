#include <shardgrad/train/step_trace.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/os/rank_map.h>

namespace shardgrad::train {
namespace {

const dist::Label kGather{"", "trace"};
constexpr int64_t kMostSteps = 100;  // all that is recorded of them is kept until the last one

// Second 0 of this rank's records by its machine's date, in nanoseconds.
int64_t date_of_zero() {
  auto date = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(date).count() - int64_t(1e9 * context().recorder().now());
}

// What is to be added to this rank's seconds for rank 0's. Dates are good enough between machines; within one there is
// a clock that both count by.
double seconds_behind_rank0(dist::ProcessGroup& world, const std::string& machine) {
  auto here = int64_t(std::hash<std::string>()(machine)), zero = int64_t(1e9 * context().recorder().zero());
  std::vector<int64_t> all = world.share<int64_t>({here, zero, date_of_zero()}, kGather);
  return 1e-9 * double(all[0] == here ? zero - all[1] : all[size_t(world.rank()) * 3 + 2] - all[2]);
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
  bool is_none = first_ == 0 && last_ == 0;
  SG_CHECK(is_none || (first_ > 0 && first_ <= last_ && last_ - first_ < kMostSteps), "trace_steps is [", first_, ", ",
           last_, "], expected the first and the last of at most ", kMostSteps,
           " steps to record, counted from 1, or [0, 0] for none");
}

StepTrace::~StepTrace() { stop(); }

void StepTrace::stop() {
  if (is_recording_) context().recorder().set_tracing(was_tracing_);
  is_recording_ = false;
  history_.reset();
}

void StepTrace::begin(int64_t step) {
  if (step < first_ || step > last_) return;
  Recorder& recorder = context().recorder();
  if (!is_recording_) {
    context().backend(context().default_device()).compute().synchronize();  // the step before is not in it
    is_recording_ = true;
    was_tracing_ = recorder.tracing();
    if (world_.rank() < kTracedRanks) recorder.set_tracing(true);
    if (world_.rank() == 0 && !context().ledger().is_observed()) history_.emplace(context().ledger(), recorder);
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
  shift(trace_, seconds_behind_rank0(world_, trace_.host));
  std::string mine = trace_events(std::exchange(trace_, {}));
  std::vector<std::string> all;
  for (int rank = 0; rank < std::min(world_.size(), kTracedRanks); ++rank) {
    std::string text = dist::same_text(world_, kGather, rank == world_.rank() ? mine : "", rank);
    if (world_.rank() == 0) all.push_back(std::move(text));
  }
  return world_.rank() == 0 ? trace_file(all) : "";
}

}  // namespace shardgrad::train
