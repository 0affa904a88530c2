#pragma once
// What the programs of rungs K1 to K5 have in common: they launch a kernel on tensors, and look at its result and
// score.

#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/tutorials/kernel.h>
#include <shardgrad/tutorials/rung.h>

namespace learn {

/// What was counted: `most` by the thread that did most of a kind, `all` by all of them.
struct Counts {
  std::array<int64_t, kinds> most, all;
};

/// y = kernel(a, b), on device sim or a GPU. Throws what the simulator finds.
inline Counts launch(const Kernel& kernel, const sg::Tensor& y, const sg::Tensor& a, const sg::Tensor& b = {}) {
  sg::Tensor score = sg::zeros({2, kinds}, {sg::DType::i64});
  sg::launch(kernel, a, sg::out(y), sg::out(score), a, b);
  std::vector<int64_t> found = score.to_vector<int64_t>();
  Counts counts;
  for (size_t kind = 0; kind < kinds; ++kind) counts.most[kind] = found[kind], counts.all[kind] = found[kinds + kind];
  return counts;
}

/// Throws unless y has these elements, up to rounding; names the first that it has not.
inline void require_elements(const Rung& rung, const sg::Tensor& y, const std::function<double(size_t)>& expected) {
  std::vector<float> found = y.to_vector<float>();
  for (size_t i = 0; i < found.size(); ++i)
    rung.require(std::abs(double(found[i]) - expected(i)) <= 1e-5 * (1 + std::abs(expected(i))),
                 sg::concat("element ", i, " of the result is ", found[i], ", not ", expected(i)));
}

/// A matrix of small whole numbers, which are exact in bf16, as their products are in f32.
inline sg::Tensor whole_numbers(int64_t rows, int64_t columns, int64_t stride) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * columns; ++i) values.push_back(float(i * stride % 13) - 6);
  return sg::from_vector(values, {rows, columns});
}

/// Throws unless c = a · b.
inline void require_product(const Rung& rung, const sg::Tensor& c, const sg::Tensor& a, const sg::Tensor& b) {
  std::vector<float> left = a.to(sg::DType::f32).to_vector<float>(), right = b.to(sg::DType::f32).to_vector<float>();
  const size_t n = size_t(c.size(1)), depth = size_t(a.size(1));
  require_elements(rung, c, [&](size_t i) {
    double sum = 0;
    for (size_t k = 0; k < depth; ++k) sum += double(left[i / n * depth + k]) * double(right[k * n + i % n]);
    return sum;
  });
}

/// One line of a table: what the busiest thread did.
inline void print(const char* name, const Counts& counts) {
  std::printf("%-14s", name);
  for (Kind kind : {global_reads, shared_reads, multiplications}) std::printf(" %15d", int(counts.most[kind]));
  std::printf("\n");
}
inline void print_head(const char* what) {
  std::printf("%s\n%-14s %15s %15s %15s\n", what, "a thread makes", "global reads", "shared reads", "multiplications");
}

/// Throws where a thread did more of something than it needs to.
inline void require_at_most(const Rung& rung, int64_t counted, int64_t enough, const char* of) {
  rung.require(counted <= enough, sg::concat("right, but a thread makes ", counted, " ", of, ", and ", enough, " do"));
}

}  // namespace learn
