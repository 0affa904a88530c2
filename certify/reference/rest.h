#pragma once
// Reference versions of random numbers, matmul, optimizers, norms and tree_sum; contracts in kernels/ops.h.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <shardgrad/certify/reference/elementwise.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::reference {

/// Word `index` of the sequence (seed, stream) as a number in [0, 1), of 24 or (fine) 53 bits.
inline double uniform_at(uint64_t seed, uint64_t stream, int64_t index, bool fine = false) {
  auto word = [&](uint64_t of) { return philox(seed, of, uint64_t(index) / 4)[size_t(index % 4)]; };
  return fine ? word(stream) * 0x1p-32 + (word(~stream) >> 11) * 0x1p-53 : unit_float(word(stream));
}

inline void random_uniform(OutView y, kernels::RandomArgs args) {
  bool fine = args.fine && y.dtype == DType::f64;
  for (int64_t i = 0; i < y.numel(); ++i)
    put(y, i, args.a + (args.b - args.a) * uniform_at(args.seed, args.stream, args.begin + i, fine));
}

/// Box-Muller: words 2k and 2k + 1 give radius and angle of elements 2k (cosine) and 2k + 1 (sine).
inline void random_normal(OutView y, kernels::RandomArgs args) {
  bool fine = args.fine && y.dtype == DType::f64;
  auto unit = [&](int64_t index) { return uniform_at(args.seed, args.stream, index, fine); };
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t index = args.begin + i, pair = index / 2 * 2;
    double radius = std::sqrt(-2 * std::log(unit(pair) + (fine ? 0x1p-53 : 0x1p-24)));
    double angle = 2 * M_PI * unit(pair + 1);
    put(y, i, args.a + args.b * radius * (index == pair ? std::cos(angle) : std::sin(angle)));
  }
}

inline void dropout(OutView y, View x, View drawn, kernels::DropoutArgs args) {
  if (drawn.defined()) {
    const auto* now = drawn.as<int64_t>();
    args.seed = uint64_t(now[0]), args.stream = uint64_t(now[1]);
  }
  for (int64_t i = 0; i < y.numel(); ++i) {
    bool keep = uniform_at(args.seed, args.stream, args.first_element + i) >= args.p;
    put(y, i, keep ? get(x, i) / (1 - args.p) : 0);
  }
}

inline int64_t batch_of(const Shape& shape) {
  int64_t batch = 1;
  for (int d = 0; d + 2 < shape.ndim(); ++d) batch *= shape[d];
  return batch;
}

inline std::vector<double> numbers_of(const View& x) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < x.numel(); ++i) numbers.push_back(get(x, i));
  return numbers;
}

inline void matmul(OutView c, OutView pre, View a, View b, View bias, kernels::MatmulArgs args) {
  int64_t m = a.shape[args.trans_a ? -1 : -2], k = a.shape[args.trans_a ? -2 : -1];
  int64_t n = b.shape[args.trans_b ? -2 : -1];
  int64_t batch = std::max(batch_of(a.shape), batch_of(b.shape));
  if (c.numel() == 0) return;
  std::vector<double> left = numbers_of(a), right = numbers_of(b);
  for (int64_t s = 0; s < batch; ++s)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        int64_t a0 = a.shape.ndim() > 2 ? s * m * k : 0, b0 = b.shape.ndim() > 2 ? s * k * n : 0;
        double sum = bias.defined() ? get(bias, j) : 0;
        for (int64_t p = 0; p < k; ++p)
          sum += left[size_t(a0 + (args.trans_a ? p * m + i : i * k + p))] *
                 right[size_t(b0 + (args.trans_b ? j * k + p : p * n + j))];
        if (pre.defined()) put(pre, (s * m + i) * n + j, sum);
        if (args.epilogue == kernels::Epilogue::relu) sum = std::max(sum, 0.0);
        if (args.epilogue == kernels::Epilogue::gelu_tanh) sum *= tanh_cdf(sum);
        put(c, (s * m + i) * n + j, sum);
      }
}

inline void linear_backward_input(OutView dx, View dy, View w, View x, View) {
  int64_t out = w.shape[0], in = w.shape[1];
  for (int64_t i = 0; i < dx.numel(); ++i) {
    double sum = 0;
    for (int64_t o = 0; o < out; ++o) sum += get(dy, i / in * out + o) * get(w, o * in + i % in);
    put(dx, i, x.defined() && get(x, i) <= 0 ? 0 : sum);
  }
}

inline void linear_backward_weight(OutView dw, OutView dbias, View dy, View x) {
  if (dw.defined()) matmul(dw, {}, dy, x, {}, {.trans_a = true});
  int64_t out = dy.shape[-1], rows = dy.shape[0];
  for (int64_t o = 0; dbias.defined() && o < out; ++o) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += get(dy, r * out + o);
    put(dbias, o, sum);
  }
}

/// Replaces an element of a state that is updated in place.
inline void set(OutView y, int64_t i, double value) {
  y.beta = 0;
  put(y, i, value);
}
inline double get(const OutView& y, int64_t i) { return get(View{y.data, y.shape, y.dtype, true}, i); }

/// torch.optim.SGD
inline void sgd(OutView p, OutView momentum, OutView copy, View g, View scale, kernels::SgdArgs args) {
  if (scale.defined()) args.grad_scale *= get(scale, 0);
  for (int64_t i = 0; i < p.numel(); ++i) {
    double grad = get(g, i) * args.grad_scale + args.weight_decay * get(p, i);
    if (momentum.defined()) {
      double buffer = args.first_step ? grad : args.momentum * get(momentum, i) + (1 - args.dampening) * grad;
      set(momentum, i, buffer);
      grad = args.nesterov ? grad + args.momentum * buffer : buffer;
    }
    set(p, i, get(p, i) - args.lr * grad);
    if (copy.defined()) set(copy, i, get(p, i));
  }
}

/// torch.optim.Adam and AdamW
inline void adam(OutView p, OutView exp_avg, OutView exp_avg_sq, OutView copy, View g, View scale,
                 kernels::AdamArgs args) {
  if (scale.defined()) args.grad_scale *= get(scale, 0);
  for (int64_t i = 0; i < p.numel(); ++i) {
    double param = get(p, i), grad = get(g, i) * args.grad_scale;
    if (args.decoupled)
      param *= 1 - args.lr * args.weight_decay;
    else
      grad += args.weight_decay * param;
    double mean = args.beta1 * get(exp_avg, i) + (1 - args.beta1) * grad;
    double square = args.beta2 * get(exp_avg_sq, i) + (1 - args.beta2) * grad * grad;
    set(exp_avg, i, mean);
    set(exp_avg_sq, i, square);
    double denominator = std::sqrt(square / args.bias_correction2) + args.eps;
    set(p, i, param - args.lr / args.bias_correction1 * mean / denominator);
    if (copy.defined()) set(copy, i, get(p, i));
  }
}

/// The sum of values[begin, end) by the tree of neighbours: the left child of a node is the largest full one.
template <class T> T tree_of(const T* values, int count) {
  if (count == 1) return values[0];
  int left = 1;
  while (2 * left < count) left *= 2;
  return T(tree_of(values, left) + tree_of(values + left, count - left));
}

/// In f64. The tree over elements is that over blocks: both are of powers of two.
inline void norm_powers(OutView y, View x, double p, int64_t width) {
  for (int64_t node = 0; node < y.numel(); ++node) {
    std::vector<double> powers;
    for (int64_t i = node * width; i < std::min((node + 1) * width, x.numel()); ++i) {
      double value = std::abs(get(x, i));
      powers.push_back(std::isinf(p) ? value : std::pow(value, p));
    }
    bool none = std::ranges::none_of(powers, [](double value) { return std::isnan(value); });
    double largest = none ? *std::ranges::max_element(powers) : std::numeric_limits<double>::quiet_NaN();
    put(y, node, std::isinf(p) ? largest : tree_of(powers.data(), int(powers.size())));
  }
}

/// Exact in the accumulator's type: f32 for f16, bf16 and f32, f64 for f64, 64-bit integers for integers.
inline void tree_sum(OutView y, kernels::TreeSumArgs args) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    std::vector<double> values;
    std::vector<uint64_t> integers;
    for (int part = 0; part < args.count; ++part) {
      View view{args.parts[part], y.shape, args.dtype, true};
      if (is_floating(args.dtype))
        values.push_back(get(view, i));
      else
        integers.push_back(uint64_t(get_integer(view, i)));
    }
    if (!is_floating(args.dtype)) {
      put_integer(y, i, int64_t(tree_of(integers.data(), args.count)));
    } else if (args.dtype == DType::f64 || y.dtype == DType::f64) {
      put(y, i, tree_of(values.data(), args.count));
    } else {
      std::vector<float> floats(values.begin(), values.end());
      put(y, i, tree_of(floats.data(), args.count));
    }
  }
}

}  // namespace shardgrad::reference
