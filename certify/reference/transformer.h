#pragma once
// Reference versions of what transformers are made of; contracts in kernels/ops.h.

#include <cmath>

#include <shardgrad/certify/reference/element.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::reference {

inline double silu_of(double x) { return x / (1 + std::exp(-x)); }

inline void swiglu(OutView y, View x) {
  int64_t cols = y.shape[-1];
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t gate = i / cols * 2 * cols + i % cols;
    put(y, i, silu_of(get(x, gate)) * get(x, gate + cols));
  }
}

inline void swiglu_backward(OutView dx, View dy, View x) {
  int64_t cols = dy.shape[-1];
  for (int64_t i = 0; i < dy.numel(); ++i) {
    int64_t gate = i / cols * 2 * cols + i % cols;
    double v = get(x, gate), slope = 1 / (1 + std::exp(-v)) * (1 + v / (1 + std::exp(v)));
    put(dx, gate, get(dy, i) * get(x, gate + cols) * slope);
    put(dx, gate + cols, get(dy, i) * silu_of(v));
  }
}

}  // namespace shardgrad::reference
