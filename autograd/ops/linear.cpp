// y = activation(x · Wᵀ + b) is one GEMM whose epilogue adds the bias and applies the activation. Backward is three
// kernels after the activation's: two GEMMs and a column sum, which write straight into their destinations.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Linear final : Node {
  const char* name() const override { return "linear"; }
  Activation activation = Activation::none;

  // dy before the activation, as a matrix. It takes dy's place in memory when nobody else holds dy.
  Tensor before_activation(const Tensor& dy) const {
    if (activation == Activation::none) return as_rows(dy);
    Tensor dpre = dy.unique() ? dy : empty_like(dy);
    if (activation == Activation::relu)
      launch(kernels::relu_backward, dy, out(dpre), dy, saved(2));
    else
      launch(kernels::gelu_backward, dy, out(dpre), dy, saved(2), true);
    return as_rows(dpre);
  }

  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Tensor dpre = before_activation(dy[0]);  // (rows, out)
    if (dx[2].wanted()) launch(kernels::sum_to, dpre, dx[2].write(), dpre);
    if (dx[1].wanted()) {
      Tensor x = as_rows(saved(0));  // (rows, in)
      launch(kernels::matmul, dpre, dx[1].write(), unwanted(), dpre, x, Tensor(), kernels::MatmulArgs{true, false});
    }
    if (dx[0].wanted()) {
      const Tensor& weight = saved(1);  // (out, in)
      Out to = view_of(dx[0].write(), {dpre.size(0), weight.size(1)});
      launch(kernels::matmul, dpre, to, unwanted(), dpre, weight, Tensor(), kernels::MatmulArgs{});
    }
  }
};

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_same_kind("linear", x, weight);
  check_floating("linear", x);
  SG_CHECK(x.ndim() >= 1 && weight.ndim() == 2 && x.size(-1) == weight.size(1), "linear: input ", x.shape(),
           " does not fit weight ", weight.shape(), "; it must end in ", weight.ndim() == 2 ? weight.size(1) : 0,
           " and the weight be (out, in)");
  if (!bias.defined()) return;
  check_same_kind("linear", weight, bias);
  SG_CHECK(bias.ndim() == 1 && bias.size(0) == weight.size(0), "linear: bias ", bias.shape(), " does not fit weight ",
           weight.shape(), "; it must be (out)");
}

constexpr kernels::Epilogue epilogue_of(Activation activation) {
  constexpr kernels::Epilogue epilogues[] = {kernels::Epilogue::none, kernels::Epilogue::relu,
                                             kernels::Epilogue::gelu_tanh};
  return epilogues[int(activation)];
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  if (should_lower(x, weight, bias)) return linear(lowered(x), lowered(weight), lowered(bias), activation);
  check_linear(x, weight, bias);
  Tensor rows = as_rows(x);
  Shape result{rows.size(0), weight.size(0)};
  Tensor y = empty(x.shape().with(-1, weight.size(0)), {x.dtype(), x.device()});
  bool recorded = will_record(x, weight, bias);
  Tensor pre = recorded && activation == Activation::gelu_tanh ? empty_like(y) : Tensor();
  launch(kernels::matmul, x, view_of(out(y), result), pre.defined() ? view_of(out(pre), result) : unwanted(), rows,
         weight, bias, kernels::MatmulArgs{false, true, epilogue_of(activation)});
  if (auto* node = record<Linear>(y, x, weight, bias)) {
    node->activation = activation;
    node->save(kept_if(needs_grad(weight), x), kept_if(needs_grad(x), weight));
    if (pre.defined())
      node->save(pre);
    else if (activation == Activation::relu)
      node->save_output(y);
  }
  return y;
}

}  // namespace shardgrad
