#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// The mask is drawn again in backward: nothing is kept.
struct Dropout final : Node {
  const char* name() const override { return "dropout"; }
  kernels::DropoutArgs args{};
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::dropout, dy[0], dx[0].write(), dy[0], args);
  }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, uint64_t seed, uint64_t stream, int64_t first_sample) {
  check_floating("dropout", x);
  SG_CHECK(p >= 0 && p < 1, "dropout: probability ", p, " is not within [0, 1)");
  SG_CHECK(first_sample >= 0, "dropout: first_sample ", first_sample, " is negative");
  int64_t samples = x.ndim() ? x.size(0) : 1;
  kernels::DropoutArgs args{p, seed, stream, samples ? first_sample * (x.numel() / samples) : 0};
  Tensor y = elementwise(kernels::dropout, x, args);
  if (auto* node = record<Dropout>(y, x)) node->args = args;
  return y;
}

}  // namespace shardgrad
