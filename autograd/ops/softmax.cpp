#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Softmax final : Node {
  int dim = 0;
  bool log = false;
  const char* name() const override { return log ? "log_softmax" : "softmax"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::softmax_backward, dy[0], dx[0].write(), dy[0], saved(0), dim, log);
  }
};

Tensor softmax(const char* op, const Tensor& x, int dim, bool log) {
  if (should_widen(x)) return softmax(op, widened(x), dim, log);
  check_floating(op, x);
  SG_CHECK(x.ndim() >= 1, op, ": needs at least one dimension, got a scalar");
  dim = check_dim(op, x, dim);
  Tensor y = of_each(kernels::softmax, x, dim, log);
  if (auto* node = record<Softmax>(y, x)) {
    node->dim = dim;
    node->log = log;
    node->save_output(y);
  }
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return softmax("softmax", x, dim, false); }
Tensor log_softmax(const Tensor& x, int dim) { return softmax("log_softmax", x, dim, true); }

}  // namespace shardgrad
