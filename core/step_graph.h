#pragma once
// A whole training step as a CUDA graph: the host launches it with one call, where it would launch some hundred
// kernels. What PyTorch's torch.cuda.CUDAGraph is for. The step is a function; inputs are copied into tensors that
// stay:
//
//     sg::Tensor x = sg::zeros({256, 784}), y = sg::zeros({256}, sg::DType::i64);
//     sg::StepGraph step([&] {
//       sg::Tensor loss = sg::cross_entropy(model(x), y);
//       loss.backward();
//       optimizer.step(sg::optim::clip_scale(sg::optim::grad_power(model.named_parameters()), 1.0));
//       optimizer.zero_grad();
//       return loss.detach();
//     });
//     for (…) {
//       optimizer.set_lr(schedule(i));
//       sg::progress() = {i, 0};             // dropout draws other masks in each step
//       sg::copy_into(x, batch.x), sg::copy_into(y, batch.y);
//       sg::Tensor loss = step();            // the first two run as written, the third is captured, all later replayed
//     }
//
// Each call is one step, and has the bits of the function called by itself. Learning rates, the steps that optimizers
// count and the place of dropout in its sequence are what they are at the call; every other number of the host, and
// every `if`, is as it was in the third step, and what it computes on the cpu is not computed again. Gradients that the
// step leaves, where it calls no zero_grad() at its end, are there after each call; those of calls are not added up.
// What the step works with, such as its optimizer, stays as long as it is called, and in the memory where it was: for
// parameters that an optimizer or EMA of the step was given each call looks, but a buffer, or a frozen module of which
// no optimizer knows, that is moved with to() is read where it was.
//
// Refused by name, before anything is changed on the device: a host that reads a value (item(), a print, GradScaler,
// which looks whether gradients are finite), a tensor that is made of the host's values, collectives, optimizers other
// than SGD, Adam and AdamW, learning rates or another step of progress() that are set in the step, a gradient of before
// the step to which it would add, or which it reads and lies elsewhere now, a tensor of before the step that it uses
// and drops, such as a state that it replaces (copy_into() one that stays), parameters that were moved since, dropout
// whose first_sample is not that of the third step, work on a stream that does not wait for the step, and device cpu,
// which gains nothing.

#include <functional>
#include <memory>

#include <shardgrad/core/device.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

class Capture;
class Context;

class StepGraph {
 public:
  struct Options {
    int plain_steps = 2;  ///< that run as written before one is captured: state and plans are made there
  };
  /// On the context's default device. Throws Error(input), with the remedy, for a device of which no step can be
  /// captured.
  explicit StepGraph(std::function<Tensor()> step) : StepGraph(std::move(step), Options()) {}
  StepGraph(std::function<Tensor()> step, Options options);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;

  /// One step. Once one was captured, what it returned then, which is overwritten by each step: read it, or clone() it,
  /// before the next one. Where the step to be captured is refused, it is not made, and the next call tries it again:
  /// gradients, what optimizers count and draws are as before it, but not what the function itself has changed.
  Tensor operator()();
  /// One step as written, such as one with a batch of another size.
  Tensor plain() { return step_(); }
  /// Whether the next call is a replay.
  bool is_captured() const { return captured_; }

 private:
  void capture();
  std::function<Tensor()> step_;
  Options options_;
  Context* context_;
  Device device_;
  int calls_ = 0;
  bool captured_ = false;
  std::unique_ptr<Capture> capture_;
  Tensor result_;
  std::shared_ptr<void> at_end_;  // of the context
};

}  // namespace shardgrad
