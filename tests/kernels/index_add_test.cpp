// index_add, the gradient of an embedding: sums in the order of the index, to the bit, on every device.

#include <cmath>
#include <map>
#include <string>

#include <shardgrad/kernels/workspace.h>
#include <tests/kernels/placed.h>

namespace shardgrad::test {
namespace {

/// Rows whose elements are of such different size that another order of additions would show.
Buffer uneven_rows(Shape shape, DType dtype) {
  Buffer x = Buffer::random(shape, dtype, -1, 1);
  const int sizes = dtype == DType::f16 ? 8 : 23;  // which f16 can hold
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, std::ldexp(x.get(i), int(i * 7 % sizes)));
  return x;
}

/// What adding one entry after the other gives, in f64 or f32, rounded once.
std::vector<double> added_in_order(const Buffer& x, const std::vector<int64_t>& index, Shape table) {
  auto add = [&]<class S>() {
    std::vector<S> sums(size_t(table.numel()));
    int64_t inner = table[1];
    for (int64_t i = 0; i < x.numel(); ++i) sums[size_t(index[size_t(i / inner)] * inner + i % inner)] += S(x.get(i));
    return Buffer::of(table, x.dtype(), {sums.begin(), sums.end()}).values();
  };
  return x.dtype() == DType::f64 ? add.operator()<double>() : add.operator()<float>();
}

std::vector<double> index_added(const Buffer& x, const std::vector<int64_t>& index, const Buffer& old, float beta,
                                bool at_a_pack) {
  Placed from(x, at_a_pack), to(old, at_a_pack);
  kernel_of(kernels::index_add, x.dtype())(1, to.out(beta), from.in(), Buffer::labels(index).in(), 0);
  return to.values();
}

/// How often an entry is named, as the ids of a text are: all one, none twice, and of every length at which a GPU's
/// warps and blocks share the work in another way, in no order.
std::map<std::string, std::vector<int64_t>> indices() {
  std::map<std::string, std::vector<int64_t>> all;
  all["a single entry"] = {3};
  all["one id"].assign(70, 7);
  for (int64_t i = 0; i < 97; ++i) all["all distinct"].push_back(i * 41 % 97);
  std::vector<int64_t> ids;
  for (int64_t length : {1, 2, 7, 8, 9, 23, 24, 25, 31, 32, 33, 65}) ids.insert(ids.end(), size_t(length), length);
  for (size_t i = 0; i < ids.size(); ++i) all["runs"].push_back(ids[i * 7 % ids.size()]);
  return all;
}

TEST(IndexAdd, AddsInTheOrderOfTheIndexWhateverTheWidthAndTheAddress) {
  Context context;
  const int64_t rows = 97;
  for (const auto& [name, index] : indices())
    for (DType dtype : kFloats)
      for (int64_t width : {1, 3, 255, 257, 264, 770}) {
        SCOPED_TRACE(concat(name, ' ', dtype, ", ", width, " columns"));
        Buffer x = uneven_rows({int64_t(index.size()), width}, dtype);
        Buffer old = Buffer::random({rows, width}, dtype, -1, 1, 3);
        std::vector<double> expected = added_in_order(x, index, old.shape());
        for (bool at_a_pack : {true, false}) {
          ASSERT_EQ(index_added(x, index, old, 0, at_a_pack), expected) << at_a_pack;
        }
        ASSERT_EQ(index_added(x, index, old, 1, true), index_added(x, index, old, 1, false));
      }
}

TEST(IndexAdd, AddsIntegersAsTheyAre) {
  Context context;
  for (const auto& [name, index] : indices())
    for (DType dtype : kIntegers)
      for (int64_t width : {37, 48}) {  // 48 columns are packs of every one of them
        Buffer x = Buffer::random({int64_t(index.size()), width}, dtype, 0, 3);
        Buffer old = Buffer::random({97, width}, dtype, 0, 3, 3);
        for (float beta : {0.0f, 1.0f}) {
          std::vector<double> expected(size_t(old.numel()));
          if (beta != 0) expected = old.values();
          for (int64_t i = 0; i < x.numel(); ++i)
            expected[size_t(index[size_t(i / width)] * width + i % width)] += x.get(i);
          EXPECT_EQ(index_added(x, index, old, beta, true), expected) << name << dtype << width << " beta " << beta;
        }
      }
}

// Of more entries than a block of a GPU sorts at once, by one, two and three digits.
TEST(IndexAdd, AddsInTheOrderOfALongIndex) {
  Context context;
  constexpr int64_t count = 4500, inner = 3;
  for (int64_t extent : {1, 40, 300, 70000})
    for (DType dtype : {DType::f32, DType::bf16}) {
      Buffer ids = Buffer::random({count}, DType::i64, 0, double(extent - 1), 8), y({extent, inner}, dtype);
      std::vector<int64_t> index(count);
      for (int64_t i = 0; i < count; ++i) index[size_t(i)] = reference::get_integer(ids.in(), i);
      Buffer x = uneven_rows({count, inner}, dtype);
      kernel_of(kernels::index_add, dtype)(1, y.poison().out(), x.in(), ids.in(), 0);
      EXPECT_TRUE(y.values() == added_in_order(x, index, y.shape())) << dtype << ' ' << extent;
    }
}

// So many blocks sort them that a GPU sums their counts up in more than one turn.
TEST(IndexAdd, AddsInTheOrderOfAnIndexThatManyBlocksSort) {
  Context context;
  std::vector<int64_t> index;
  for (int64_t i = 0; i < 17 * 2048 + 5; ++i) index.push_back(i % 20 == 0 ? 11 : i * 7919 % 300);
  Buffer x = uneven_rows({int64_t(index.size()), 1}, DType::f32), y({300, 1}, DType::f32);
  EXPECT_TRUE(index_added(x, index, y, 0, true) == added_in_order(x, index, y.shape()));
}

TEST(IndexAdd, AnEmptyIndexLeavesZerosOrWhatWasThere) {
  Context context;
  Buffer old = Buffer::random({5, 12}, DType::f32), x({0, 12}, DType::f32);
  EXPECT_EQ(index_added(x, {}, old, 1, true), old.values());
  EXPECT_EQ(index_added(x, {}, old, 0, true), std::vector<double>(60, 0.0));
}

// The wrong one is the last of an index that several warps of a GPU sort.
TEST(Refusals, AnIndexOutOfRangeIsRefusedWhereverItStands) {
  Context context;
  std::vector<int64_t> index(2500, 1);
  index.back() = 3;
  Buffer x = Buffer::random({2500, 2}, DType::f32), y({3, 2}, DType::f32);
  try {
    index_added(x, index, y, 0, true);
    ADD_FAILURE() << "index 3 of 3 rows was taken";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "index_add: index 2499 is 3, outside [0, 3)");
  }
}

TEST(CpuIndexAdd, OfHalvesNeedsMemoryForTheRowsThatAreNamed) {
  Context context;
  Buffer y({5000, 64}, DType::bf16), x = Buffer::random({10, 64}, DType::bf16);
  Buffer index = Buffer::labels({4, 4, 0, 4999, 17, 4, 0, 17, 3, 2});
  context.ledger().reset_peaks();
  kernel_of(kernels::index_add, DType::bf16)(1, y.out(), x.in(), index.in(), 0);
  EXPECT_LE(context.ledger().peak(Category::workspace), 10 * 64 * 4) << "and not for the table in f32, 1,280,000 bytes";
}

}  // namespace
}  // namespace shardgrad::test
