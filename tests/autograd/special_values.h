#pragma once
// Lines of special_values.json and special_layers.json: what goes in, what comes out here, and what in PyTorch.

#include <cmath>
#include <cstdlib>
#include <sstream>

#include <tests/autograd/program_layers.h>

namespace shardgrad::test::programs {

using Numbers = std::vector<double>;

inline Numbers numbers_in(const json& text) {
  Numbers numbers;
  std::istringstream words(text.get<std::string>());
  for (std::string word; words >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
  return numbers;
}

// A result, or the gradient of an input, on one line of the file.
struct Values {
  std::string what;
  Numbers actual, expected;
};

inline std::vector<Values> tried(const Steps& steps, const json& line) {
  Args inputs;
  for (size_t i = 0; i < line["inputs"].size(); ++i) {
    Tensor x = from_vector(numbers_in(line["inputs"][i]), shape_of(line["shapes"][i]), DType::f64).to(DType::f32);
    inputs.push_back(x.set_requires_grad());
  }
  Tensor y = steps.at(line["step"])(inputs, line["numbers"]);
  std::vector<Values> all{{"result", values(y), numbers_in(line["result"])}};
  EXPECT_EQ(y.requires_grad(), line.contains("gradients")) << line["step"];
  if (!y.requires_grad()) return all;
  std::vector<float> upstream;
  for (int64_t i = 0; i < y.numel(); ++i) upstream.push_back(1 + float(i % 4) / 4);
  y.backward(from_vector(upstream, y.shape()));
  for (size_t i = 0; i < inputs.size(); ++i)
    all.push_back({concat("gradient ", i), values(inputs[i].grad()), numbers_in(line["gradients"][i])});
  return all;
}

// A zero of a result has a sign. What is below the smallest normal number may be 0.
inline bool same(double actual, double expected, bool signs, double tolerance) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return actual == expected;
  if (signs && expected == 0 && actual == 0) return std::signbit(actual) == std::signbit(expected);
  return std::abs(actual - expected) <= tolerance + 0x1p-126;
}

}  // namespace shardgrad::test::programs
