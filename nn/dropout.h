#pragma once

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// In training zeroes each element with probability p in [0, 1) and scales the others by 1 / (1 - p).
/// The mask is a function of (seed, step, module name, call within the pass, global sample, element): the context's
/// Progress (autograd/progress.h) says which step and samples these are; where it was never told the samples, every
/// rank draws its own. Dimension 0 of x counts samples.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x);

 private:
  double p_;
};

}  // namespace shardgrad::nn
