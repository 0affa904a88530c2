#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Swiglu final : Node {
  const char* name() const override { return "swiglu"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::swiglu_backward, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

}  // namespace

Tensor swiglu(const Tensor& gate_up) {
  check_floating("swiglu", gate_up);
  SG_CHECK(gate_up.ndim() >= 1 && gate_up.size(-1) % 2 == 0, "swiglu: an input of shape ", gate_up.shape(),
           " does not end in two halves of a row, gates and what they multiply");
  Shape half = gate_up.shape().with(-1, gate_up.size(-1) / 2);
  Tensor y = empty(half, {gate_up.dtype(), gate_up.device()});
  launch(kernels::swiglu, gate_up, out(y), gate_up);
  if (auto* node = record<Swiglu>(y, gate_up)) node->save(gate_up);
  return y;
}

}  // namespace shardgrad
