// An operation of your own: x³, element by element.

struct Cube final : sg::Node {
  const char* name() const override { return "cube"; }
  void backward(std::span<const Tensor> dy, std::span<sg::GradSlot> dx) override {
    // TODO(you): hand over the gradient of the input. d(x³)/dx = 3 x², and dy[0] is what comes from above.

    // end of TODO
  }
};

inline Tensor cube(const Tensor& x) {
  Tensor y = sg::empty_like(x);
  sg::launch(sg::kernels::mul, x, sg::out(y), x, x);
  sg::launch(sg::kernels::mul, x, sg::out(y), y, x);
  // TODO(you): record the node, and save in it what backward reads; my_square() in main.cpp does the same.

  // end of TODO
  return y;
}
