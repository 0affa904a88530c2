// Autograd by hand: the gradients of a small expression with pencil and paper, from the library, and by finite
// differences; then an operation of our own.

#include <cmath>
#include <cstdio>
#include <iostream>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/tutorials/rung.h>

using sg::Tensor;

#include YOURS  // solution.cpp, or your copy of exercise.cpp

// loss = (w x - t)^2 for one weight: dloss/dw = 2 (w x - t) x.
double loss_of(double w, double x, double t) { return (w * x - t) * (w * x - t); }

// An operation is a node: forward and backward side by side. backward writes into the slots it is given.
struct Square final : sg::Node {
  const char* name() const override { return "my_square"; }
  void backward(std::span<const Tensor> dy, std::span<sg::GradSlot> dx) override {
    if (!dx[0].wanted()) return;
    dx[0].alias(dy[0] * saved(0) * 2);  // d(x^2)/dx = 2 x
  }
};

Tensor my_square(const Tensor& x) {
  Tensor y = sg::empty_like(x);
  sg::launch(sg::kernels::mul, x, sg::out(y), x, x);
  if (auto* node = sg::record<Square>(y, x)) node->save(x);
  return y;
}

void autograd(learn::Rung& rung) {
  sg::Context context;
  double w = 3, x = 2, t = 1;

  // 1. By hand, and by moving w a little.
  double by_hand = 2 * (w * x - t) * x;
  double step = 1e-4, by_difference = (loss_of(w + step, x, t) - loss_of(w - step, x, t)) / (2 * step);
  std::printf("by hand %.3f, by differences %.3f\n", by_hand, by_difference);

  // 2. By the library: operations on a tensor that requires a gradient are recorded, backward() walks them back.
  Tensor weight = sg::full({1}, w).set_requires_grad();
  Tensor loss = my_square(weight * x - t);
  loss.backward();
  std::printf("by backward %.3f\n", weight.grad().item());
  rung.count("weight_gradient", weight.grad().item());

  // 3. A value used twice receives the sum of both gradients: b = a + a has db/da = 2.
  Tensor a = sg::full({1}, 5).set_requires_grad();
  Tensor b = a + a;
  (b * b).backward();
  std::printf("d(a + a)^2 / da = 8 a = %.3f\n", a.grad().item());
  rung.count("twice_gradient", a.grad().item());

  // 4. Gradients add up until they are cleared.
  (a * 1.0).backward();
  std::printf("after another backward: %.3f\n", a.grad().item());
  rung.count("added_gradient", a.grad().item());
  a.zero_grad();
  (a * 1.0).backward();
  std::printf("after zero_grad and backward: %.3f\n", a.grad().item());

  // 5. Broadcasting forward is summing backward: each bias element was used by every row.
  Tensor rows = sg::ones({4, 2}), bias = sg::zeros({2}).set_requires_grad();
  sg::sum(rows + bias).backward();
  std::cout << "gradient of a bias used by four rows: " << to_string(bias.grad()) << "\n";
  rung.count("bias_gradient", bias.grad().rows(0, 1).item());

  // 6. A recorded value that changes before backward is refused: its gradient would be wrong.
  Tensor v = sg::full({1}, 2).set_requires_grad();
  Tensor u = v * 1.0, y = my_square(u);
  sg::fill_(u.detach(), 7);
  try {
    y.backward();
  } catch (const sg::Error& error) {
    std::cout << "refused: " << error.what() << "\n";
  }

  // 7. Yours, beside finite differences.
  Tensor z = sg::full({1}, 2).set_requires_grad();
  cube(z).backward();
  double slope = (std::pow(2 + step, 3) - std::pow(2 - step, 3)) / (2 * step);
  rung.require(std::abs(z.grad().item() - slope) < 1e-5,
               sg::concat("cube at 2: backward says ", z.grad().item(), ", differences say ", slope));
  rung.term("w", w), rung.term("x", x), rung.term("t", t), rung.term("a", 5), rung.term("rows", 4);
}

int main(int count, char** words) { return learn::run(count, words, autograd); }
