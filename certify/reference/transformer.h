#pragma once
// Reference versions of what transformers are made of; contracts in kernels/ops.h.

#include <algorithm>
#include <cmath>
#include <vector>

#include <shardgrad/certify/reference/element.h>
#include <shardgrad/certify/reference/rows.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::reference {

/// Calls norm(rows) with x + residual, as its dtype has it.
template <class Norm> void add_norm(OutView sum, View x, View residual, const Norm& norm) {
  std::vector<char> memory(x.bytes());
  OutView made{memory.data(), x.shape, x.dtype, 0, true};
  View rows{memory.data(), x.shape, x.dtype, true};
  for (int64_t i = 0; i < x.numel(); ++i) {
    put(made, i, get(x, i) + get(residual, i));
    put(sum, i, get(rows, i));
  }
  norm(rows);
}
inline void add_layer_norm(OutView sum, OutView y, OutView mean, OutView rstd, View x, View residual, View weight,
                           View bias, double eps) {
  add_norm(sum, x, residual, [&](View rows) { layer_norm(y, mean, rstd, rows, weight, bias, eps); });
}
inline void add_rms_norm(OutView sum, OutView y, OutView rstd, View x, View residual, View weight, double eps) {
  add_norm(sum, x, residual, [&](View rows) { rms_norm(y, rstd, rows, weight, eps); });
}

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

inline void rope(OutView y, View x, View table, View starts, kernels::RopeArgs args) {
  if (x.numel() == 0) return;
  int64_t time = x.shape[1], cols = x.shape[2], width = table.shape[1], half = width / 2;
  for (int64_t r = 0; r < x.shape[0] * time; ++r) {
    int64_t start = starts.defined() ? get_integer(starts, r / time) : 0;
    int64_t angles = std::max<int64_t>(0, args.first_position + r % time - start) * width;
    for (int64_t c = args.heads * width; c < cols; ++c) put(y, r * cols + c, get(x, r * cols + c));
    for (int64_t h = 0; h < args.heads; ++h)
      for (int64_t i = 0; i < half; ++i) {
        int64_t at = r * cols + h * width + i;
        double a = get(x, at), b = get(x, at + half), cosine = get(table, angles + i);
        double sine = get(table, angles + half + i) * (args.inverse ? -1 : 1);
        put(y, at, a * cosine - b * sine);
        put(y, at + half, b * cosine + a * sine);
      }
  }
}

}  // namespace shardgrad::reference
