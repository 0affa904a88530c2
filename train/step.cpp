#include <shardgrad/train/step.h>

#include <cmath>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/grains.h>

namespace shardgrad::train {
namespace {

Tensor loss_of(const Training& training, const data::Batch& part) {
  Autocast precision(forward_dtype(training.config));
  Tensor loss = training.task.loss(part);
  SG_CHECK(loss.defined(), "the task's loss is no tensor; it must be one f32 number");
  SG_CHECK(loss.numel() == 1 && loss.dtype() == DType::f32, "the task's loss is ", loss.dtype(), " ", loss.shape(),
           "; it must be one f32 number, this rank's part of the batch's loss");
  return loss;
}

// Gradients of all parts add up, and so do their losses: each is divided by the global count.
StepResult forward_and_backward(const Training& training, const data::Batch& batch) {
  const Config& config = training.config;
  int64_t passes = passes_of(config, training.sharded.group().size());
  std::optional<fsdp::PairwiseSum> grains;
  if (config.grains > 0) grains.emplace(training.sharded);
  StepResult result;
  if (grains) result.losses = zeros({passes});
  for (int64_t i = 0; i < passes; ++i) {
    data::Batch part = batch.micro_batch(i, passes);
    progress() = {progress().step, part.first};
    std::optional<fsdp::NoSync> local;
    if (config.reduce_once && i + 1 < passes) local.emplace(training.sharded);
    if (grains) grains->begin_pass();
    Tensor loss = loss_of(training, part);
    training.scaler.scale(loss).backward();
    NoGrad no_grad;
    loss = reshape(loss, Shape());
    if (grains) copy_into(result.losses.rows(i, i + 1), reshape(loss, {1}));
    result.loss = i == 0 ? loss : result.loss + loss;
  }
  if (grains)
    grains->finish();
  else
    result.losses = result.loss;
  return result;
}

// Every rank asks for all of them, which step together.
bool all_finite(const Training& training) {
  bool finite = true;
  for (optim::Optimizer* optimizer : training.optimizers) finite = training.scaler.finite(*optimizer) && finite;
  return finite;
}

// Where nobody waits for it.
bool is_at_hand(const Tensor& number) { return number.device() == kCpu || number.device() == kMeta; }

}  // namespace

StepResult train_step(const Training& training, const data::Batch& batch, bool norm_wanted) {
  const Recorder& recorder = context().recorder();
  auto& [config, task, sharded, optimizers, scaler, watch] = training;
  int64_t before = recorder.total_bytes_sent();
  std::vector<uint64_t> buffers = fsdp::buffer_versions(sharded.buffers());
  StepResult result = forward_and_backward(training, batch);
  fsdp::average_buffers(sharded.buffers(), sharded.group(), buffers);
  bool clips = config.clip_grad_norm > 0, finite = all_finite(training);
  Tensor power, clip;  // which is part of the optimizer's one pass
  if ((clips || norm_wanted) && finite) {
    int64_t before_norm = recorder.total_bytes_sent();
    power = fsdp::grad_power(sharded);
    if (clips)
      clip = optim::clip_scale(power, config.clip_grad_norm * scaler.factor());
    else
      before += recorder.total_bytes_sent() - before_norm;
  }
  result.skipped = !finite;
  for (optim::Optimizer* optimizer : optimizers)
    if (finite) clip.defined() ? scaler.step(*optimizer, clip) : scaler.step(*optimizer);
  if (power.defined() && (norm_wanted || is_at_hand(power)))  // once the update is queued, too
    result.grad_norm = optim::root_of(optim::number_of(power), 2) / scaler.factor();
  if (watch) watch->after_update(int64_t(progress().step) + 1, result.loss);
  scaler.update();
  for (optim::Optimizer* optimizer : optimizers) optimizer->zero_grad();
  result.bytes_sent = recorder.total_bytes_sent() - before;
  return result;
}

}  // namespace shardgrad::train
