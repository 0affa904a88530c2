#pragma once
// What the autograd tests share.

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/rng.h>

namespace shardgrad::test {

inline std::vector<double> list(std::initializer_list<double> numbers) { return numbers; }
inline std::vector<double> values(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

/// The elements as raw bytes, for bitwise comparison.
inline std::vector<uint8_t> bits(const Tensor& tensor) {
  return dispatch(tensor.dtype(), [&]<class T>() {
    std::vector<T> elements = tensor.to_vector<T>();
    auto* begin = reinterpret_cast<const uint8_t*>(elements.data());
    return std::vector<uint8_t>(begin, begin + elements.size() * sizeof(T));
  });
}

inline double largest(const std::vector<double>& numbers) {
  double most = 0;
  for (double number : numbers) most = std::max(most, std::abs(number));
  return most;
}

/// Every element within `tolerance` of the largest expected one, or of `scale` where that is larger.
inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance,
                         const std::string& what, double scale = 0) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double allowed = tolerance * std::max(scale, largest(expected));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= allowed) continue;
    ADD_FAILURE() << what << " [" << i << "] is " << actual[i] << ", expected " << expected[i] << " within " << allowed;
    return;
  }
}

/// Fixed numbers in [-1, 1) that every floating dtype represents.
inline Tensor upstream_like(const Tensor& tensor, uint64_t stream) {
  std::vector<double> numbers(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = double(philox(3, stream, i)[0] % 128) / 64 - 1;
  return from_vector(numbers, tensor.shape(), {DType::f64, kCpu}).to(tensor.dtype()).to(tensor.device());
}

inline Tensor leaf(const std::vector<float>& numbers, const Shape& shape) {
  return from_vector(numbers, shape).set_requires_grad();
}

/// The message of the Error that `work` throws; empty when it throws none.
template <class Work> std::string refusal(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

#define EXPECT_REFUSED(work, ...)                                                                               \
  do {                                                                                                          \
    std::string message = ::shardgrad::test::refusal([&] { work; });                                            \
    for (const char* part : {__VA_ARGS__})                                                                      \
      EXPECT_NE(message.find(part), std::string::npos) << "message '" << message << "' lacks '" << part << "'"; \
  } while (0)

/// Owns a leaf's gradient and poisons it before the first write of each pass.
class PoisonedSink final : public GradSink {
 public:
  explicit PoisonedSink(const Tensor& like, float beta = 0) : buffer_(empty_like(like)), beta_(beta) {}
  Out open() override {
    ++opened;
    if (beta_ == 0) fill_(buffer_, NAN);
    return out(buffer_, beta_);
  }
  void ready() override { ++made_ready; }
  Tensor grad() const override { return buffer_; }
  void clear() override { fill_(buffer_, 0); }
  DType dtype() const override { return buffer_.dtype(); }
  std::span<const LocalRange> local_ranges() override { return {}; }
  void written() override {}

  int opened = 0, made_ready = 0;

 private:
  Tensor buffer_;
  float beta_;
};

}  // namespace shardgrad::test
