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

using Buffers = std::vector<NamedParameter>;

// What the buffers hold before a step that loss scaling may leave out. Which of them it writes is known afterwards.
std::vector<Tensor> copies_of(const Buffers& buffers, const optim::GradScaler& scaler) {
  std::vector<Tensor> copies;
  if (!scaler.enabled()) return copies;
  NoGrad no_grad;
  TagScope owner(Category::buffer);
  for (const NamedParameter& buffer : buffers) copies.push_back(clone(buffer.tensor.detach()));
  return copies;
}

// Statistics of what overflowed would be no numbers for ever: a mean that moves on from NaN is NaN.
void put_back(const Buffers& buffers, const std::vector<Tensor>& copies) {
  NoGrad no_grad;
  for (size_t i = 0; i < copies.size(); ++i) copy_into(buffers[i].tensor.detach(), copies[i]);
}

// Where nobody waits for it.
bool is_at_hand(const Tensor& number) { return number.device() == kCpu || number.device() == kMeta; }

}  // namespace

QueuedStep queue_step(const Training& training, const data::Batch& batch, bool norm_wanted) {
  const Recorder& recorder = context().recorder();
  auto& [config, task, sharded, optimizers, scaler, watch] = training;
  int64_t before = recorder.total_bytes_sent();
  Buffers buffers = sharded.buffers();
  std::vector<Tensor> copies = copies_of(buffers, scaler);
  std::vector<uint64_t> versions = fsdp::buffer_versions(buffers);
  QueuedStep queued{forward_and_backward(training, batch), {}, {}};
  StepResult& result = queued.result;
  fsdp::average_buffers(buffers, sharded.group(), versions);
  bool clips = config.clip_grad_norm > 0, finite = all_finite(training);
  Tensor clip;  // which is part of the optimizer's one pass
  if ((clips || norm_wanted) && finite) {
    int64_t before_norm = recorder.total_bytes_sent();
    queued.power = fsdp::grad_power(sharded);
    if (clips)
      clip = optim::clip_scale(queued.power, config.clip_grad_norm * scaler.factor());
    else
      before += recorder.total_bytes_sent() - before_norm;
  }
  result.skipped = !finite;
  if (!finite) put_back(buffers, copies);
  for (optim::Optimizer* optimizer : optimizers)
    if (finite) clip.defined() ? scaler.step(*optimizer, clip) : scaler.step(*optimizer);
  if (watch) queued.look = watch->look(result.loss);
  for (optim::Optimizer* optimizer : optimizers) optimizer->zero_grad();
  result.bytes_sent = recorder.total_bytes_sent() - before;
  return queued;
}

StepResult finish_step(const Training& training, QueuedStep queued, bool norm_wanted) {
  optim::GradScaler& scaler = training.scaler;
  const Tensor& power = queued.power;
  if (power.defined() && (norm_wanted || is_at_hand(power)))
    queued.result.grad_norm = optim::root_of(optim::number_of(power), 2) / scaler.factor();
  scaler.update();
  if (training.watch && queued.look) training.watch->keep(int64_t(progress().step) + 1, std::move(*queued.look));
  return queued.result;
}

StepResult train_step(const Training& training, const data::Batch& batch, bool norm_wanted) {
  return finish_step(training, queue_step(training, batch, norm_wanted), norm_wanted);
}

}  // namespace shardgrad::train
