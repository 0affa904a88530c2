#pragma once
// What the benchmarks of a GPU share.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>

namespace shardgrad::bench {

/// Everything once and small: shows on any device that a benchmark runs and that its results are right.
inline bool tiny = false;

struct Mlp : nn::Module {
  std::vector<nn::Child<nn::Linear>> layers;
  Mlp(int count, int64_t width) {
    for (int i = 0; i < count; ++i)
      layers.push_back(child<nn::Linear>("layer" + std::to_string(i), width, width, true,
                                         i + 1 < count ? Activation::relu : Activation::none));
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return x;
  }
};

// Seconds of one call of work: the median of several rounds of `times` calls each.
inline double seconds_of(Device device, int times, const std::function<void()>& work) {
  Stream& compute = context().backend(device).compute();
  std::vector<double> rounds;
  for (int round = 0; round < (tiny ? 2 : 8); ++round) {
    compute.synchronize();
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < (tiny ? 1 : times); ++i) work();
    compute.synchronize();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (round > 0) rounds.push_back(seconds / (tiny ? 1 : times));  // the first warms up
  }
  std::ranges::nth_element(rounds, rounds.begin() + std::ptrdiff_t(rounds.size() / 2));
  return rounds[rounds.size() / 2];
}

/// What is timed must be right: throws unless the difference is at most `tolerance` of the length of what is expected.
inline void check(const std::string& name, const Tensor& actual, const Tensor& expected, double tolerance) {
  NoGrad no_grad;
  Tensor wide = expected.to(kCpu).to(DType::f64), difference = actual.to(kCpu).to(DType::f64) - wide;
  double error = norm(difference).item(), size = norm(wide).item();
  SG_CHECK(size > 0 && error <= tolerance * size, name, " is wrong by ", error / size, " of its length");
}

/// `of`: the row with the limit that this one is held against; `beside`: PyTorch's row of the same work, if its name is
/// another.
inline void report(const std::string& name, double value, const char* unit, const std::string& of = "",
                   const std::string& beside = "") {
  std::cout << "{\"name\": \"" << name << "\", \"value\": " << value << ", \"unit\": \"" << unit << "\"";
  if (!of.empty()) std::cout << ", \"of\": \"" << of << "\"";
  if (!beside.empty()) std::cout << ", \"beside\": \"" << beside << "\"";
  std::cout << "}" << std::endl;
}

/// What could not be measured so far.
inline int failed_rows = 0;

/// Measures and reports; where that fails, the row `name` says why in its "error", and the others are measured all the
/// same.
inline void row(const std::string& name, const std::function<void()>& measure) {
  try {
    measure();
  } catch (const std::exception& error) {
    ++failed_rows;
    std::string why;
    for (char c : std::string(error.what())) {
      if (c == '"' || c == '\\') why += '\\';
      why += (unsigned char)c < ' ' ? ' ' : c;
    }
    std::cout << "{\"name\": \"" << name << "\", \"error\": \"" << why << "\"}" << std::endl;
  }
}

}  // namespace shardgrad::bench
