// CUDA's everyday words do on the simulator what CUDA says of them, and kernels as books have them run as they stand.

#include <cmath>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include <shardgrad/core/dtype.h>

#include "tests/sim/simulated.h"
#include "tests/sim/words.h"

namespace shardgrad::test {
namespace {

class EverydayWord : public ::testing::TestWithParam<Word> {};

TEST_P(EverydayWord, Behaves) {
  sim::Operands operands;
  Operand<float> x(32, 1.0f), y(32);
  y.values.assign(32, 0.0f);
  run_word(GetParam(), y.out(operands), x.in(operands));
  for (int t = 0; t < 32; ++t) EXPECT_NEAR(y.values[size_t(t)], GetParam().expected(t), 2e-5f * float(t + 1)) << t;
}
auto name_of = [](const auto& one) {
  std::string name = one.param.name;
  std::erase(name, ':');
  return name;
};
INSTANTIATE_TEST_SUITE_P(Numbers, EverydayWord, ::testing::ValuesIn(number_words()), name_of);
INSTANTIATE_TEST_SUITE_P(Threads, EverydayWord, ::testing::ValuesIn(thread_words()), name_of);

// Those of the first table after "## Words", by their names in the kernels here.
TEST(EverydayWords, OfTheDocumentationAreAllUsed) {
  auto text_of = [](const std::string& path) {
    std::ifstream file(std::string(kSourceFolder) + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::set<std::string> used;
  std::regex word("[A-Za-z_]\\w*"), no_code(R"re("[^"\n]*"|//[^\n]*)re");
  for (const char* name : {"number_words", "words", "books"}) {
    std::string text = std::regex_replace(text_of(concat("/tests/sim/", name, ".cu")), no_code, "");
    for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at) used.insert(at->str());
  }
  std::string table = text_of("/docs/simulator.md");
  table = table.substr(table.find("| words | |"));
  table.erase(table.find("\n\n"));
  std::regex promised("`([A-Za-z_]\\w*)");
  int count = 0;
  for (std::sregex_iterator at(table.begin(), table.end(), promised), end; at != end; ++at, ++count)
    EXPECT_TRUE(used.contains((*at)[1])) << (*at)[1];
  EXPECT_GE(count, 90);
}

class Book : public ::testing::Test {
 protected:
  sim::Operands operands;
};

TEST_F(Book, VectorAddMovesFourAtATime) {
  Operand<float> a(1000, 1.0f), b(1000, 5.0f), c(1000);
  run_vector_add(c.out(operands), a.in(operands), b.in(operands), 1000);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(c.values[i], float(2 * i + 6));
}

TEST_F(Book, TiledProductOfASizeThatIsNoMultipleOfTheTile) {
  constexpr size_t n = 37;
  Operand<float> a(n * n, 1.0f), b(n * n), c(n * n);
  for (size_t i = 0; i < n * n; ++i) a.values[i] = float(i % 7), b.values[i] = float(i % 5);
  run_tiled_product(c.out(operands), a.in(operands), b.in(operands), int(n));
  for (size_t i = 0; i < n * n; ++i) {
    float sum = 0;
    for (size_t k = 0; k < n; ++k) sum += a.values[i / n * n + k] * b.values[k * n + i % n];
    ASSERT_EQ(c.values[i], sum) << i;
  }
}

TEST_F(Book, BlockSumsByShuffles) {
  Operand<float> x(2000, 1.0f), sums(3);
  run_block_sums(sums.out(operands), x.in(operands), 2000, 3);
  EXPECT_EQ(sums.values[0] + sums.values[1] + sums.values[2], 2000.0f * 2001 / 2);
}

TEST_F(Book, HistogramOfBytes) {
  Operand<unsigned char> x(4096);
  Operand<unsigned> counts(256);
  counts.values.assign(256, 0);
  run_histogram_of_bytes(counts.out(operands), x.in(operands), 4096);
  EXPECT_EQ(counts.values, std::vector<unsigned>(256, 16));
}

TEST_F(Book, SoftmaxByCooperativeGroups) {
  constexpr size_t rows = 6, columns = 50;
  Operand<float> x(rows * columns), y(rows * columns);
  for (size_t i = 0; i < rows * columns; ++i) x.values[i] = float(i % 11);
  run_softmax(y.out(operands), x.in(operands), int(rows), int(columns));
  for (size_t i = 0; i < rows * columns; ++i) {
    double sum = 0;
    for (size_t k = 0; k < columns; ++k) sum += std::exp(double(x.values[i / columns * columns + k]));
    ASSERT_NEAR(y.values[i], std::exp(double(x.values[i])) / sum, 1e-6);
  }
}

TEST_F(Book, StencilWithConstantWeights) {
  Operand<float> x(300, 1.0f), y(300);
  float weights[] = {1, 2, 3, 4, 5, 6, 7};
  run_stencil(y.out(operands), x.in(operands), weights, 300);
  for (int i = 0; i < 300; ++i) {
    float sum = 0;
    for (int k = -3; k <= 3; ++k)
      if (i + k >= 0 && i + k < 300) sum += weights[k + 3] * float(i + k + 1);
    ASSERT_EQ(y.values[size_t(i)], sum);
  }
}

TEST_F(Book, CopiesToASymbolStayWithinIt) {
  Operand<float> x(300, 1.0f), y(300);
  float weights[] = {0, 0, 0, 1, 0, 0, 0, 0}, twice[] = {2};
  const float* from = x.in(operands);
  float* to = y.out(operands);
  run_stencil(to, from, weights, 300);
  EXPECT_EQ(y.values[7], 8);
  copy_weights(twice, 1, 3);
  run_stencil(to, from, nullptr, 300);
  EXPECT_EQ(y.values[7], 16);
  for (auto part : {std::pair(8, 0), std::pair(1, 7), std::pair(4, 4)}) {
    std::string fault = fault_of([&] { copy_weights(weights, size_t(part.first), size_t(part.second)); });
    EXPECT_EQ(fault, concat("simulator: cudaMemcpyToSymbol of ", 4 * part.first, " bytes at byte ", 4 * part.second,
                            " of a variable of 28"));
  }
  copy_weights(weights, 0, 7);
}

TEST_F(Book, SumsOfGroupsOfAnyKind) {
  Operand<int> x(256, 1), whole(1), tiles(16), running(256);
  run_group_sums(whole.out(operands), tiles.out(operands), running.out(operands), x.in(operands));
  EXPECT_EQ(whole.values[0], 256 * 257 / 2);
  for (int t = 0; t < 16; ++t) EXPECT_EQ(tiles.values[size_t(t)], 16 * 16 * t + 16 * 17 / 2);
  for (int i = 0; i < 256; ++i) {
    int n = i % 32 + 1;
    ASSERT_EQ(running.values[size_t(i)], n * (i - i % 32) + n * (n + 1) / 2) << i;
  }
}

TEST_F(Book, HalvesInTwos) {
  Operand<unsigned short> x(64), y(64);
  for (size_t i = 0; i < 64; ++i) x.values[i] = f16(float(i)).bits, y.values[i] = f16(1.0f).bits;
  run_half_axpy(y.out(operands), x.in(operands), 0.5f, 64);
  for (size_t i = 0; i < 64; ++i) ASSERT_EQ(y.values[i], f16(float(i) / 2 + 1).bits);
}

}  // namespace
}  // namespace shardgrad::test
