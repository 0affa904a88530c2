// A tensor prints as NumPy's str() prints the same array; the expected texts are NumPy's (2.x).

#include <cmath>
#include <sstream>

#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad::test {
namespace {

template <class T> std::string text(const std::vector<T>& values, const Shape& shape) {
  std::ostringstream out;
  out << from_vector<T>(values, shape);
  return out.str();
}
std::string floats(const std::vector<float>& values) { return text(values, {int64_t(values.size())}); }
std::vector<int64_t> counting(int64_t n) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < n; ++i) numbers.push_back(i);
  return numbers;
}

TEST(Print, NumbersWithTheirPointsBelowEachOther) {
  Context context;
  EXPECT_EQ(text<float>({1, 2, 3, 4}, {2, 2}), "[[1. 2.]\n [3. 4.]]");
  EXPECT_EQ(floats({1.5, 2, 3.25}), "[1.5  2.   3.25]");
  EXPECT_EQ(floats({0.1f, 0.2f, 1.f / 3}), "[0.1        0.2        0.33333334]");
  EXPECT_EQ(text<double>({1. / 3, 2}, {2}), "[0.33333333 2.        ]");
  EXPECT_EQ(floats({-1.5, 22.25, 0}), "[-1.5  22.25  0.  ]");
  EXPECT_EQ(floats({0, 0}), "[0. 0.]");
}

TEST(Print, LargeAndSmallNumbersWithExponents) {
  Context context;
  EXPECT_EQ(floats({1e-5f, 1}), "[1.e-05 1.e+00]");
  EXPECT_EQ(text<double>({1e10, 1.5}, {2}), "[1.0e+10 1.5e+00]");
  EXPECT_EQ(text<float>({-1e-7f, 123.5f}, {1, 2}), "[[-1.000e-07  1.235e+02]]");
  EXPECT_EQ(text<double>({1e100, 1.5}, {2}), "[1.0e+100 1.5e+000]");
}

TEST(Print, WhatIsNoNumber) {
  Context context;
  EXPECT_EQ(floats({NAN, 1, -INFINITY}), "[ nan   1. -inf]");
  EXPECT_EQ(text<double>({1, INFINITY, 2.5}, {3}), "[1.  inf 2.5]");
  EXPECT_EQ(text<double>({NAN, 1e-7}, {2}), "[   nan 1.e-07]");
}

TEST(Print, NumbersOf16BitsWithTheFewestDigitsThatGiveThemAgain) {
  Context context;
  auto halves = [](const std::vector<float>& values) {
    return text(std::vector<f16>(values.begin(), values.end()), {int64_t(values.size())});
  };
  EXPECT_EQ(halves({0.1f, 0.2f, 0.3f}), "[0.1 0.2 0.3]");
  EXPECT_EQ(halves({1.f / 3, -2.f / 3}), "[ 0.3333 -0.6665]");
  EXPECT_EQ(halves({0.1f, 100}), "[  0.1 100. ]");
  EXPECT_EQ(halves({1e-5f, 1}), "[1.e-05 1.e+00]");
  EXPECT_EQ(halves({NAN, 0.1f, -INFINITY}), "[ nan  0.1 -inf]");
  EXPECT_EQ(text<f16>({f16(0.1f)}, {}), "0.1");
  EXPECT_EQ(text<bf16>({bf16(0.1f), bf16(3.1416f), bf16(-0.f)}, {3}), "[ 0.1   3.14 -0.  ]");
}

TEST(Print, InOneLineIntegersWithAllDigits) {
  Context context;
  constexpr int64_t large = (int64_t(1) << 53) + 1;
  EXPECT_EQ(to_string(from_vector<int64_t>({large, large - 1}, {2})), "[9007199254740993, 9007199254740992]");
  EXPECT_EQ(to_string(from_vector<int32_t>({123456789}, {1, 1})), "[[123456789]]");
  EXPECT_EQ(to_string(from_vector<uint8_t>({65}, {1})), "[65]");
  EXPECT_EQ(to_string(from_vector<float>({0.1f, 2}, {2})), "[0.1, 2]");
  EXPECT_EQ(to_string(from_vector<f16>({f16(0.1f)}, {1})), "[0.1]");
}

TEST(Print, ScalarsAsPythonAndWhatHasNoValuesByItsDescription) {
  Context context;
  EXPECT_EQ(text<float>({3.5}, {}), "3.5");
  EXPECT_EQ(text<float>({3}, {}), "3.0");
  EXPECT_EQ(text<int64_t>({3}, {}), "3");
  std::ostringstream out;
  out << empty({2, 3}, kMeta) << ", " << Tensor();
  EXPECT_EQ(out.str(), "f32[2, 3] on meta, undefined tensor");
  EXPECT_EQ(concat("got ", from_vector<float>({1}, {1})), "got f32[1] on cpu");
}

TEST(Print, LongRowsGoOnInTheNextLine) {
  Context context;
  EXPECT_EQ(text(counting(30), {30}),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n 24 25 26 27 28 29]");
  EXPECT_EQ(text(counting(8), {2, 2, 2}), "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
}

TEST(Print, MoreThanAThousandElementsByTheirEdges) {
  Context context;
  EXPECT_EQ(text(counting(2000), {40, 50}),
            "[[   0    1    2 ...   47   48   49]\n [  50   51   52 ...   97   98   99]\n"
            " [ 100  101  102 ...  147  148  149]\n ...\n [1850 1851 1852 ... 1897 1898 1899]\n"
            " [1900 1901 1902 ... 1947 1948 1949]\n [1950 1951 1952 ... 1997 1998 1999]]");
}

}  // namespace
}  // namespace shardgrad::test
