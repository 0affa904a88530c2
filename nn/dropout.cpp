#include <shardgrad/nn/dropout.h>

namespace shardgrad::nn {

Dropout::Dropout(double p) : p_(p) { SG_CHECK(p >= 0 && p < 1, "Dropout: probability ", p, " is not within [0, 1)"); }

Tensor Dropout::forward(const Tensor& x) {
  if (!training() || p_ == 0) return x;
  return dropout(x, p_, full_name());
}

}  // namespace shardgrad::nn
