// What a training step will hold, before it runs: a plan.

#include <cstdint>

/// `layers` of width x width weights and width biases with a relu, on a batch of so many samples, in f32.
struct Sizes {
  int layers;
  int64_t width, batch;
};

/// Parameters, their gradients after backward, AdamW's state, and what is kept between forward and backward.
struct Bytes {
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0;
};

inline Bytes bytes_of_one_step(const Sizes& sizes) {
  const int64_t f32 = 4;
  Bytes bytes;
  // TODO(you): the parameters of all layers, weights and biases.
  // TODO(you): a gradient for each parameter, and AdamW's two moments for each.
  // TODO(you): what each layer gives to the next one, and the loss, which is one number.
  // end of TODO
  return bytes;
}
