#include <shardgrad/train/meter.h>

#include <algorithm>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/train/grains.h>

namespace shardgrad::train {

Meter::Meter(int64_t step, int64_t samples, const Work& work)
    : begin_{step, samples}, reported_(begin_), before_(begin_), now_(begin_), work_(work) {}

void Meter::add(const StepResult& step, int64_t samples, double seconds) {
  bool steady = steps_done() > 1;  // the first step does not know yet which unit is last
  step_bytes_ = steady ? std::max(step_bytes_, step.bytes_sent) : step.bytes_sent;
  NoGrad no_grad;
  TagScope owner(Category::other);  // not part of what a step is predicted to need
  loss_sum_ = loss_sum_.defined() ? loss_sum_ + step.losses : zeros(step.losses.shape()) + step.losses;
  before_ = now_;
  ++now_.step;
  now_.samples += samples;
  now_.seconds += seconds;
  now_.skipped += step.skipped;
  skipped_in_a_row_ = step.skipped ? skipped_in_a_row_ + 1 : 0;
}

void Meter::count(Metrics& metrics, const Mark& since) const {
  metrics.step = now_.step;
  metrics.samples = now_.samples;
  metrics.seconds = now_.seconds - since.seconds;
  metrics.samples_per_s = double(now_.samples - since.samples) / metrics.seconds;
  metrics.tokens_per_s = work_.tokens * metrics.samples_per_s;
  metrics.flops_per_s = work_.flops * metrics.samples_per_s;
  metrics.skipped_steps = now_.skipped - since.skipped;
  metrics.peak_bytes = context().ledger().peak();
}

Metrics Meter::of_last_step(Metrics metrics) const {
  count(metrics, before_);
  return metrics;
}

void Meter::fill(Metrics& metrics, dist::ProcessGroup& world) {
  double sum = loss_sum_.defined() ? sums_over_ranks(loss_sum_, 1, world, {"", "report"})[0] : 0;
  count(metrics, reported_);
  metrics.loss = sum / double(std::max<int64_t>(1, now_.step - reported_.step));
  loss_sum_ = Tensor();
  reported_ = now_;
}

}  // namespace shardgrad::train
