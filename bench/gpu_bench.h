#pragma once
// What the benchmarks of a GPU share.

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>

namespace shardgrad::bench {

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
  for (int round = 0; round < 8; ++round) {
    compute.synchronize();
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) work();
    compute.synchronize();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (round > 0) rounds.push_back(seconds / times);  // the first warms up
  }
  std::ranges::nth_element(rounds, rounds.begin() + std::ptrdiff_t(rounds.size() / 2));
  return rounds[rounds.size() / 2];
}

inline void report(const std::string& name, double value, const char* unit) {
  std::cout << "{\"name\": \"" << name << "\", \"value\": " << value << ", \"unit\": \"" << unit << "\"}" << std::endl;
}

}  // namespace shardgrad::bench
