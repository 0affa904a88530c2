#include <shardgrad/certify/certify_outcome.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/reference/table.h>
#include <shardgrad/core/float_mode.h>
#include <shardgrad/core/rng.h>

namespace shardgrad {
namespace {

Tensor upstream_like(const Tensor& result, uint64_t stream) {
  std::vector<double> numbers(static_cast<size_t>(result.numel()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = double(philox(3, stream, i)[0] % 128) / 64 - 1;
  return from_vector(numbers, result.shape(), {DType::f64, kCpu}).to(result.dtype()).to(result.device());
}

class PoisonedSink final : public GradSink {
 public:
  PoisonedSink(const Tensor& leaf, bool unaligned)
      : buffer_(unaligned ? empty_unaligned(leaf.shape(), {leaf.dtype(), leaf.device()}) : empty_like(leaf)) {}
  Out open() override {
    if (beta_ == 0) fill_(buffer_, NAN);
    return out(buffer_, std::exchange(beta_, 1.0f));
  }
  void ready() override {}
  Tensor grad() const override { return buffer_; }
  void clear() override {}
  DType dtype() const override { return buffer_.dtype(); }
  std::span<const LocalRange> local_ranges() override { return {}; }
  void written() override {}

 private:
  Tensor buffer_;
  float beta_ = 0;
};

}  // namespace

std::vector<Tensor> as_leaves(const OpCase& op, std::vector<Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (differentiable(op.inputs[i])) inputs[i].set_requires_grad();
  return inputs;
}

Outcome run(const OpCase& op, const std::vector<Tensor>& inputs) {
  Outcome outcome{op.call(inputs), {}};
  std::vector<Tensor> roots, upstream;
  for (size_t k = 0; k < outcome.results.size(); ++k) {
    if (!outcome.results[k].requires_grad()) continue;
    roots.push_back(outcome.results[k]);
    upstream.push_back(upstream_like(outcome.results[k], k));
  }
  if (!roots.empty()) backward(roots, upstream);
  for (const Tensor& input : inputs) outcome.grads.push_back(input.grad());
  return outcome;
}
Outcome run(const OpCase& op, DType dtype, Device device) {
  return run(op, as_leaves(op, op.make_inputs(dtype, device)));
}

Outcome run_reference(const OpCase& op, const std::vector<Tensor>& inputs) {
  reference::ReferenceKernels kernels;
  KeepSubnormals mode;
  return run(op, inputs);
}
Outcome run_reference(const OpCase& op, DType dtype) {
  return run_reference(op, as_leaves(op, op.make_inputs(dtype, kCpu)));
}

std::vector<double> values(const Tensor& tensor) { return tensor.to(kCpu).to(DType::f64).to_vector<double>(); }

std::string difference(const char* what, size_t number, const Tensor& actual, const std::vector<double>& expected,
                       double tolerance, double scale) {
  std::vector<double> numbers = values(actual);
  for (double value : expected)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    bool same = numbers[i] == expected[i] || (std::isnan(numbers[i]) && std::isnan(expected[i]));
    bool finite = std::isfinite(numbers[i]) && std::isfinite(expected[i]);
    if (!same && !(finite && std::abs(numbers[i] - expected[i]) <= tolerance * scale))
      return concat(what, " ", number, " of shape ", actual.shape(), ", element ", i, ", is ", numbers[i],
                    ", expected ", expected[i], " within ", tolerance * scale);
  }
  return "";
}

std::string difference(const Outcome& actual, const Outcome& expected, double tolerance, double scale) {
  for (size_t k = 0; k < expected.results.size(); ++k)
    if (std::string found = difference("result", k, actual.results[k], values(expected.results[k]), tolerance, scale);
        !found.empty())
      return found;
  for (size_t i = 0; i < expected.grads.size(); ++i) {
    if (!expected.grads[i].defined()) continue;
    std::string found = difference("gradient", i, actual.grads[i], values(expected.grads[i]), tolerance, scale);
    if (!found.empty()) return found;
  }
  return "";
}

void poison_gradients(const OpCase& op, const std::vector<Tensor>& leaves) {
  for (size_t i = 0; i < leaves.size(); ++i)
    if (differentiable(op.inputs[i]))
      leaf_of(leaves[i]).set_sink(std::make_shared<PoisonedSink>(leaves[i], op.unaligned));
}

}  // namespace shardgrad
