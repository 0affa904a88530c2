// Broadcasting instead of a loop.

/// Each row of x (rows, columns) less its own mean.
inline sg::Tensor centred(const sg::Tensor& x) {
  sg::Tensor y = x;
  // TODO(you): one line. sg::mean takes a dimension, and whether to keep it, with extent 1, so that it can be
  // broadcast.
  y = x - sg::mean(x, 1, true);
  // end of TODO
  return y;
}
