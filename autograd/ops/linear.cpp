// y = activation(x · Wᵀ + b) is one GEMM whose epilogue adds the bias and applies the activation. Backward is two
// GEMMs, which write straight into their destinations: the one for W sums the bias gradient on its way, and the one for
// x also does the backward of the ReLU that x came out of, where this is the only user of x. So in a chain of layers
// with ReLU no other kernel runs.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

using kernels::MatmulArgs;

struct Linear final : Node {
  const char* name() const override { return "linear"; }
  Activation activation = Activation::none;

  // dy before the activation, as a matrix. It takes dy's place in memory when nobody else holds dy.
  Tensor before_activation(const Tensor& dy) const {
    if (activation == Activation::none || dy_prepared_) return as_rows(dy);
    Tensor dpre = dy.unique() ? dy : empty_like(dy);
    if (activation == Activation::relu)
      launch(kernels::relu_backward, dy, out(dpre), dy, saved(2));
    else
      launch(kernels::gelu_tanh_backward, dy, out(dpre), dy, saved(2));
    return as_rows(dpre);
  }

  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Tensor dpre = before_activation(dy[0]);  // (rows, out)
    if (dx[1].wanted() || dx[2].wanted()) {
      Tensor x = dx[1].wanted() ? as_rows(saved(0)) : Tensor();  // (rows, in)
      launch(kernels::linear_backward_weight, dpre, destination(dx[1]), destination(dx[2]), dpre, x);
    }
    if (!dx[0].wanted()) return;
    const Tensor& weight = saved(1);  // (out, in)
    auto* below = dx[0].sole_maker<Linear>(*this);
    bool through_relu = below && below->activation == Activation::relu;
    Tensor x = through_relu ? as_rows(below->saved(2)) : Tensor(), mask = through_relu ? below->saved(3) : Tensor();
    Out to = view_of(dx[0].write(), {dpre.size(0), weight.size(1)});
    launch(kernels::linear_backward_input, dpre, to, dpre, weight, x, mask);
    if (through_relu) below->dy_prepared_ = true;
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

// Room for the mask that the device's product wants to leave for backward, or undefined.
Tensor relu_mask(const Tensor& y, const Tensor& rows, const Tensor& weight, const Tensor& bias, MatmulArgs args) {
  if (!kernels::relu_mask_bytes.has(y.device().kind, y.dtype())) return Tensor();
  int64_t bytes = 0;
  Out to = view_of(out(y), {rows.size(0), weight.size(0)});
  auto ask = kernels::relu_mask_bytes.find(y.device().kind, y.dtype());
  ask({}, &bytes, to.tensor.out(), rows.in(), weight.in(), bias.defined() ? bias.in() : View{}, args);
  return bytes > 0 ? empty({bytes}, {DType::u8, y.device()}) : Tensor();
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  if (should_lower(x, weight, bias)) return linear(lowered(x), lowered(weight), lowered(bias), activation);
  check_linear(x, weight, bias);
  Tensor rows = as_rows(x);
  Shape result{rows.size(0), weight.size(0)};
  Tensor y = empty(x.shape().with(-1, weight.size(0)), {x.dtype(), x.device()});
  MatmulArgs args{false, true, epilogue_of(activation)};
  bool recorded = will_record(x, weight, bias);
  Tensor kept, mask;  // what backward wants of the product's epilogue
  if (recorded && activation == Activation::gelu_tanh) kept = empty_like(y);
  if (recorded && activation == Activation::relu) mask = relu_mask(y, rows, weight, bias, args);
  Out pre = kept.defined() ? view_of(out(kept), result) : out(mask);
  launch(kernels::matmul, x, view_of(out(y), result), pre, rows, weight, bias, args);
  if (auto* node = record<Linear>(y, x, weight, bias)) {
    node->activation = activation;
    node->save(kept_if(needs_grad(weight), x), kept_if(needs_grad(x), weight));
    if (activation == Activation::gelu_tanh) node->save(kept);
    if (activation == Activation::relu) {
      node->save_output(y);
      node->save(mask);
    }
  }
  return y;
}

}  // namespace shardgrad
