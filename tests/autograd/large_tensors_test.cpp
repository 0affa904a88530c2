// More than 2^31 elements. Slow, and takes up to 15 GB.

#include <unistd.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

constexpr int64_t kCount = (int64_t(1) << 31) + 77;

class LargeTensorsSlow : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) < int64_t(20) << 30) GTEST_SKIP() << "needs 20 GiB of memory";
  }
  Context context_;
};

double at(const Tensor& x, int64_t i) { return values(slice(x, 0, i, i + 1)).at(0); }

TEST_F(LargeTensorsSlow, AreFilledAddedCutAndAddedUp) {
  NoGrad no_grad;
  Tensor x = full({kCount}, 3, DType::u8);
  fill_(x.rows(kCount - 2, kCount), 5);
  Tensor y = add(x, full({1}, 1, DType::u8));
  x = Tensor();
  EXPECT_EQ(at(y, 0), 4);
  EXPECT_EQ(at(y, kCount - 3), 4);
  EXPECT_EQ(at(y, kCount - 1), 6);
  EXPECT_EQ(sum(y).to_vector<int64_t>()[0], 4 * kCount + 4);
}

TEST_F(LargeTensorsSlow, OfRowsAndColumnsAreTransposedAndReduced) {
  NoGrad no_grad;
  constexpr int64_t kRows = 3, kColumns = (int64_t(1) << 30) + 5;
  Tensor x = full({kRows, kColumns}, 1, DType::u8);
  fill_(x.rows(2, 3), 2);
  EXPECT_EQ(sum(x, 1).to_vector<int64_t>(), (std::vector<int64_t>{kColumns, kColumns, 2 * kColumns}));
  Tensor y = permute(x, {1, 0});
  EXPECT_EQ(values(slice(y, 0, kColumns - 1, kColumns)), (std::vector<double>{1, 1, 2}));
}

TEST_F(LargeTensorsSlow, AreMultipliedAndHaveGradients) {
  constexpr int64_t kRows = (int64_t(1) << 25) + 3, kColumns = 64;  // bf16: 4.3 GB
  Tensor x = full({kRows, kColumns}, 0.5, DType::bf16), w = full({1, kColumns}, 1, DType::bf16).set_requires_grad();
  Tensor y = linear(x, w, Tensor());
  EXPECT_EQ(at(y, kRows - 1), 32);
  Tensor upstream = zeros({kRows, 1}, DType::bf16);
  fill_(upstream.rows(kRows - 2, kRows), 1);
  y.backward(upstream);
  EXPECT_EQ(values(w.grad()), std::vector<double>(kColumns, 1));
}

}  // namespace
}  // namespace shardgrad::test
