// The training loop.

/// Trains the model on all points at once, so many times, and returns the last loss. `count` is of the points of the
/// whole batch, on all ranks together; here there is one rank.
inline double train(const sg::nn::Child<Mlp>& model, sg::optim::AdamW& optimizer, const Points& points, int steps,
                    double count) {
  double last = 0;
  for (int step = 0; step < steps; ++step) {
    // TODO(you): the loss of all points (cross_entropy), its gradients, a step, and gradients that are forgotten.
    Tensor loss = sg::cross_entropy(model(points.x), points.labels, count);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item();
    // end of TODO
  }
  return last;
}
