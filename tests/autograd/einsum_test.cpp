// einsum against loops over every value of every name, with gradients.

#include <map>

#include <shardgrad/certify/gradcheck.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

// Of an equation without "...", whose result is given.
struct Looped {
  std::vector<std::string> operands;
  std::string result;
  std::map<char, int64_t> extents;
  std::vector<Tensor> tensors;

  Looped(std::string equation, std::vector<Tensor> given) : tensors(std::move(given)) {
    size_t arrow = equation.find("->");
    result = equation.substr(arrow + 2);
    std::stringstream left(equation.substr(0, arrow));
    for (std::string term; std::getline(left, term, ',');) operands.push_back(term);
    for (size_t i = 0; i < tensors.size(); ++i)
      for (size_t d = 0; d < operands[i].size(); ++d)
        extents[operands[i][d]] = std::max(extents[operands[i][d]], tensors[i].size(int(d)));
  }
  // Where names with these values stand in a tensor; extents of 1 have one value only.
  int64_t place(const std::string& names, const Shape& shape, const std::map<char, int64_t>& values) const {
    int64_t at = 0;
    for (size_t d = 0; d < names.size(); ++d) at = at * shape[int(d)] + (shape[int(d)] == 1 ? 0 : values.at(names[d]));
    return at;
  }
  Shape shape() const {
    std::vector<int64_t> dims;
    for (char name : result) dims.push_back(extents.at(name));
    return Shape(std::span<const int64_t>(dims));
  }
  std::vector<double> sums() const {
    std::vector<std::vector<double>> numbers;
    for (const Tensor& each : tensors) numbers.push_back(values(each));
    std::vector<double> sums(size_t(shape().numel()));
    int64_t all = 1;
    for (auto [name, extent] : extents) all *= extent;
    for (int64_t i = 0; i < all; ++i) {
      std::map<char, int64_t> at;
      int64_t rest = i;
      for (auto [name, extent] : extents) at[name] = rest % extent, rest /= extent;
      double product = 1;
      for (size_t t = 0; t < tensors.size(); ++t)
        product *= numbers[t][size_t(place(operands[t], tensors[t].shape(), at))];
      sums[size_t(place(result, shape(), at))] += product;
    }
    return sums;
  }
};

std::vector<Tensor> operands_of(const std::vector<Shape>& shapes) {
  std::vector<Tensor> tensors;
  for (const Shape& shape : shapes) tensors.push_back(upstream_like(empty(shape, DType::f64), 1 + tensors.size()));
  return tensors;
}

void expect_as_looped(const std::string& equation, const std::vector<Shape>& shapes, std::string plain = "") {
  SCOPED_TRACE(equation);
  if (plain.empty()) plain = equation;
  std::vector<Tensor> operands = operands_of(shapes);
  Looped expected(plain, operands);
  Tensor y = einsum(equation, operands);
  EXPECT_EQ(y.shape(), expected.shape());
  expect_close(values(y), expected.sums(), 1e-12, equation, 1);
  EXPECT_NO_THROW(gradcheck([&](std::span<const Tensor> in) { return einsum(equation, in); }, operands));
}

TEST(Einsum, OfOneOperandMovesSumsAndTakesDiagonals) {
  Context context;
  expect_as_looped("ij->ji", {{2, 3}});
  expect_as_looped("ij->", {{2, 3}});
  expect_as_looped("ijk->ki", {{2, 3, 4}});
  expect_as_looped("ii->", {{3, 3}});
  expect_as_looped("ii->i", {{3, 3}});
  expect_as_looped("iji->j", {{3, 2, 3}});
  expect_as_looped("iijj->ji", {{3, 3, 2, 2}});
  expect_as_looped("iiij->ij", {{2, 2, 2, 3}});
}

TEST(Einsum, OfTwoOperandsIsProductsInAnyOrder) {
  Context context;
  expect_as_looped("ij,jk->ik", {{2, 3}, {3, 4}});
  expect_as_looped("ji,kj->ki", {{3, 2}, {4, 3}});
  expect_as_looped("bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}});
  expect_as_looped("bij,bkj->bki", {{2, 3, 4}, {2, 5, 4}});
  expect_as_looped("bqhd,bkhd->bhqk", {{2, 3, 2, 4}, {2, 5, 2, 4}});
  expect_as_looped("ijb,kjb->ibk", {{2, 3, 4}, {5, 3, 4}});
  expect_as_looped("i,j->ij", {{3}, {4}});
  expect_as_looped("i,i->", {{4}, {4}});
  expect_as_looped("i,i->i", {{4}, {4}});
  expect_as_looped("ij,ij->i", {{2, 3}, {2, 3}});
  expect_as_looped("ij,kl->il", {{2, 3}, {4, 5}});
  expect_as_looped("ijk,jk->i", {{2, 3, 4}, {3, 4}});
  expect_as_looped("ijk,kj->i", {{2, 3, 4}, {4, 3}});
  expect_as_looped("iij,j->i", {{2, 2, 3}, {3}});
  expect_as_looped(",ij->ji", {{}, {2, 3}});
  expect_as_looped("Ab,bA->A", {{2, 3}, {3, 2}});
}

TEST(Einsum, OfMoreOperandsGoesFromTheLeft) {
  Context context;
  expect_as_looped("ij,jk,kl->il", {{2, 3}, {3, 2}, {2, 4}});
  expect_as_looped("bn,anm,bm->ba", {{2, 3}, {5, 3, 4}, {2, 4}});
  expect_as_looped("i,i,i->i", {{3}, {3}, {3}});
  expect_as_looped("ij,j,ik,k->", {{2, 3}, {3}, {2, 4}, {4}});
}

TEST(Einsum, ExtentsOfOneBroadcast) {
  Context context;
  expect_as_looped("ij,jk->ik", {{2, 1}, {3, 4}});
  expect_as_looped("ij,jk->ijk", {{2, 3}, {1, 4}});
  expect_as_looped("i,i->", {{1}, {4}});
  expect_as_looped("ij,ij->", {{1, 1}, {1, 1}});
}

TEST(Einsum, WithoutAResultHasWhatIsNamedOnceByTheAlphabet) {
  Context context;
  expect_as_looped("ba", {{2, 3}}, "ba->ab");
  expect_as_looped("ij,jh", {{2, 3}, {3, 4}}, "ij,jh->hi");
  expect_as_looped("ii", {{3, 3}}, "ii->");
  expect_as_looped("aB,c", {{2, 3}, {4}}, "aB,c->Bac");
}

TEST(Einsum, DotsAreLeadingDimensionsThatBroadcast) {
  Context context;
  expect_as_looped("...ij,...jk->...ik", {{2, 3, 4}, {2, 4, 5}}, "bij,bjk->bik");
  expect_as_looped("...ij,jk", {{2, 3, 3, 4}, {4, 2}}, "abij,jk->abik");
  expect_as_looped("...i,...i->...", {{2, 1, 3}, {4, 3}}, "abi,bi->ab");
  expect_as_looped("...i,...->...i", {{5, 3}, {2, 5}}, "bi,ab->abi");
  expect_as_looped("i...->...i", {{2, 3, 4}}, "iab->abi");
  expect_as_looped("i...j->ij", {{2, 3, 4}}, "iaj->ij");
  expect_as_looped("...", {{2, 3}}, "ab->ab");
  expect_as_looped(" i j , j -> i ", {{2, 3}, {3}}, "ij,j->i");
  expect_as_looped("...ij->...ji", {{2, 3}}, "ij->ji");
}

TEST(Einsum, OfNothingIsZeros) {
  Context context;
  EXPECT_EQ(values(einsum("ij,jk->ik", {zeros({2, 0}), zeros({0, 2})})), list({0, 0, 0, 0}));
  EXPECT_EQ(einsum("ii->i", {zeros({0, 0})}).shape(), (Shape{0}));
}

TEST(Einsum, IsMatmulsBitsWhereItIsOne) {
  Context context;
  Tensor a = upstream_like(empty({3, 5, 7}), 1), b = upstream_like(empty({3, 7, 2}), 2);
  EXPECT_EQ(bits(einsum("bij,bjk->bik", {a, b})), bits(matmul(a, b)));
  Tensor q = upstream_like(empty({3, 2, 7}), 3);
  EXPECT_EQ(bits(einsum("bij,bkj->bik", {a, q})), bits(matmul(a, q, false, true)));
}

TEST(Einsum, OfIntegersMovesAndMultiplies) {
  Context context;
  Tensor x = arange(6).view({2, 3});
  EXPECT_EQ(values(einsum("ij->ji", {x})), list({0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values(einsum("ij,ij->ij", {x, x})), list({0, 1, 4, 9, 16, 25}));
  EXPECT_REFUSED(einsum("ij,kj->ik", {x, x}), "einsum", "i64");
}

TEST(Einsum, WhatDoesNotFitIsRefusedByName) {
  Context context;
  Tensor x = zeros({2, 3}), v = zeros({4});
  EXPECT_REFUSED(einsum("ij,jk->ik", {x}), "einsum", "2 operands", "1 are given");
  EXPECT_REFUSED(einsum("ijk->ik", {x}), "names 3 dimensions", "[2, 3]");
  EXPECT_REFUSED(einsum("i->i", {x}), "names 1 dimensions");
  EXPECT_REFUSED(einsum("ij,j->i", {x, v}), "dimension 0 of operand 1", "[4]", "'j'", "3");
  EXPECT_REFUSED(einsum("ij->ik", {x}), "'k'", "no operand");
  EXPECT_REFUSED(einsum("ij->ii", {x}), "'i'", "once");
  EXPECT_REFUSED(einsum("ii->i", {x}), "dimension 1 of operand 0", "extent 3");
  EXPECT_REFUSED(einsum("ii->i", {zeros({1, 3})}), "twice", "[1, 3]");
  EXPECT_REFUSED(einsum("i1->i", {x}), "'1' is not possible");
  EXPECT_REFUSED(einsum("i.j", {zeros({2, 3, 4})}), "'.' is not possible");
  EXPECT_REFUSED(einsum("......", {zeros({2, 3, 4})}), "is not possible");
  EXPECT_REFUSED(einsum("ij->i->j", {x}), "is not possible");
  EXPECT_REFUSED(einsum("ijk...->i", {x}), "names 3 dimensions");
}

}  // namespace
}  // namespace shardgrad::test
