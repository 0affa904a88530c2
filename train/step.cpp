#include <shardgrad/train/step.h>

#include <cmath>

#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/train/build.h>

namespace shardgrad::train {

StepResult train_step(const Training& training, const Tensor& samples, const Tensor& labels, int64_t count,
                      bool norm_wanted) {
  const Recorder& recorder = context().recorder();
  auto& [config, model, sharded, optimizer, scaler, watch] = training;
  int64_t before = recorder.total_bytes_sent();
  StepResult result{loss_of(config, model(samples), labels, count)};
  scaler.scale(result.loss).backward();
  bool clips = config.clip_grad_norm > 0, finite = scaler.finite(optimizer);
  double grad_scale = 1;  // clipping is part of the optimizer's one pass
  if ((clips || norm_wanted) && finite) {
    int64_t before_norm = recorder.total_bytes_sent();
    double norm = fsdp::grad_norm(sharded);
    if (clips && std::isfinite(norm))
      grad_scale = optim::clip_factor(norm, config.clip_grad_norm * scaler.factor());
    else if (!clips)
      before += recorder.total_bytes_sent() - before_norm;
    result.grad_norm = norm / scaler.factor();
  }
  scaler.step(optimizer, grad_scale);
  if (watch) watch->after_update(int64_t(progress().step) + 1, result.loss);
  scaler.update();
  optimizer.zero_grad();
  result.bytes_sent = recorder.total_bytes_sent() - before;
  return result;
}

}  // namespace shardgrad::train
