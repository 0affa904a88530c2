// Lines of the table in docs/from-pytorch.md: what PyTorch says, what says the same here, and what both print.
// repo.docs compares the table with this file; pytorch_lines.py runs the left side with PyTorch.

#include <sstream>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

template <class T> std::string printed(const T& result) {
  std::ostringstream out;
  out << result;
  return out.str();
}

#define LINE(pytorch, ours, text) EXPECT_EQ(printed(ours), text) << pytorch

class PyTorchLines : public testing::Test {
 protected:
  Context context_;
  Tensor x = tensor({{1., -2., 3.}, {-4., 5., 6.}}), y = tensor({{2., 2., 2.}, {1., 1., 1.}});
  Tensor v = tensor({3., 1., 2.}), i = tensor({2, 0}), labels = tensor({0, 2});
};

TEST_F(PyTorchLines, NewTensors) {
  LINE("torch.tensor([[1., 2.], [3., 4.]])", tensor({{1., 2.}, {3., 4.}}), "[[1. 2.]\n [3. 4.]]");
  LINE("torch.arange(5)", arange(5), "[0 1 2 3 4]");
  LINE("torch.arange(1, 9, 3)", arange(1, 9, 3), "[1 4 7]");
  LINE("torch.linspace(0, 1, 5)", linspace(0, 1, 5), "[0.   0.25 0.5  0.75 1.  ]");
  LINE("torch.eye(2)", eye(2), "[[1. 0.]\n [0. 1.]]");
  LINE("torch.zeros_like(v)", zeros_like(v), "[0. 0. 0.]");
  LINE("torch.full((2,), 7.)", full({2}, 7), "[7. 7.]");
  LINE("torch.zeros(2, dtype=torch.int64)", zeros({2}, DType::i64), "[0 0]");
}

TEST_F(PyTorchLines, Arithmetic) {
  LINE("1 - x", 1 - x, "[[ 0.  3. -2.]\n [ 5. -4. -5.]]");
  LINE("6 / v", 6 / v, "[2. 6. 3.]");
  LINE("x ** 2", x.pow(2), "[[ 1.  4.  9.]\n [16. 25. 36.]]");
  LINE("2 ** v", pow(2, v), "[8. 2. 4.]");
  LINE("v ** v", pow(v, v), "[27.  1.  4.]");
  LINE("torch.maximum(x, y)", maximum(x, y), "[[2. 2. 3.]\n [1. 5. 6.]]");
  LINE("x.clamp(-1, 4)", x.clamp(-1, 4), "[[ 1. -1.  3.]\n [-1.  4.  4.]]");
  LINE("x.clamp(min=0)", x.clamp(0, INFINITY), "[[1. 0. 3.]\n [0. 5. 6.]]");
  LINE("x % 4", x % 4, "[[ 1.  2.  3.]\n [-0.  1.  2.]]");
  LINE("torch.arange(5) % 3", arange(5) % 3, "[0 1 2 0 1]");
  LINE("torch.arange(5) // 2", floor_divide(arange(5), 2), "[0 0 1 1 2]");
  LINE("torch.arange(4) ** 2", arange(4).pow(2), "[0 1 4 9]");
  LINE("torch.sin(torch.zeros(2))", sin(zeros({2})), "[0. 0.]");
  LINE("torch.round(v / 2)", round(v / 2), "[2. 0. 1.]");
  LINE("F.softplus(torch.zeros(1))", softplus(zeros({1})), "[0.6931472]");
  LINE("F.leaky_relu(x, 0.1)", leaky_relu(x, 0.1), "[[ 1.  -0.2  3. ]\n [-0.4  5.   6. ]]");
}

TEST_F(PyTorchLines, Comparisons) {
  LINE("(x > 0).int()", (x > 0).to(DType::i32), "[[1 0 1]\n [0 1 1]]");
  LINE("((x > 0) & (x < 5)).int()", ((x > 0) & (x < 5)).to(DType::i32), "[[1 0 1]\n [0 0 0]]");
  LINE("torch.where(x > y, x, y)", where(x > y, x, y), "[[2. 2. 3.]\n [1. 5. 6.]]");
  LINE("x.masked_fill(x < 0, 0)", masked_fill(x, x < 0, 0), "[[1. 0. 3.]\n [0. 5. 6.]]");
  LINE("int((v == 2).sum())", int((v == 2).sum().item()), "1");
  LINE("bool((v > 0).all())", bool((v > 0).all()), "1");
  LINE("torch.isfinite(v / 0).int()", isfinite(v / 0).to(DType::i32), "[0 0 0]");
}

TEST_F(PyTorchLines, Indices) {
  LINE("x[1]", x[1], "[-4.  5.  6.]");
  LINE("x[-1, 0]", (x[{-1, 0}]), "-4.0");
  LINE("x[:, 1:]", (x[{Slice(), Slice(1)}]), "[[-2.  3.]\n [ 5.  6.]]");
  LINE("x[..., -1]", (x[{Ellipsis, -1}]), "[3. 6.]");
  LINE("x[:, ::2]", (x[{Slice(), Slice({}, {}, 2)}]), "[[ 1.  3.]\n [-4.  6.]]");
  LINE("x[x > 0]", x[x > 0], "[1. 3. 5. 6.]");
  LINE("v[i]", v[i], "[2. 3.]");
  LINE("x[torch.arange(2), labels]", (x[{arange(2), labels}]), "[1. 6.]");
  LINE("x.gather(1, labels[:, None])", gather(x, 1, labels.unsqueeze(1)), "[[1.]\n [6.]]");
  LINE("v[None].shape[0]", v.unsqueeze(0).size(0), "1");
  LINE("z = x.clone(); z[0] = v; z", index_put(x, {0}, v), "[[ 3.  1.  2.]\n [-4.  5.  6.]]");
  LINE("torch.nonzero(x < 0)", nonzero(x < 0), "[[0 1]\n [1 0]]");
}

TEST_F(PyTorchLines, Shapes) {
  LINE("x.T", x.t(), "[[ 1. -4.]\n [-2.  5.]\n [ 3.  6.]]");
  LINE("x.reshape(3, -1)", x.reshape({3, -1}), "[[ 1. -2.]\n [ 3. -4.]\n [ 5.  6.]]");
  LINE("x.flatten()", x.flatten(), "[ 1. -2.  3. -4.  5.  6.]");
  LINE("torch.stack([v, v])", stack({v, v}), "[[3. 1. 2.]\n [3. 1. 2.]]");
  LINE("torch.cat([x, y], 0)[:, 0]", (cat({x, y}, 0)[{Slice(), 0}]), "[ 1. -4.  2.  1.]");
  LINE("v.repeat(2)", repeat(v, {2}), "[3. 1. 2. 3. 1. 2.]");
  LINE("v.flip(0)", flip(v, {0}), "[2. 1. 3.]");
  LINE("torch.tril(torch.ones(2, 2))", tril(ones({2, 2})), "[[1. 0.]\n [1. 1.]]");
  LINE("v.expand(2, 3)", expand(v, {2, 3}), "[[3. 1. 2.]\n [3. 1. 2.]]");
}

TEST_F(PyTorchLines, Reductions) {
  LINE("x.sum(1, keepdim=True)", x.sum(1, true), "[[2.]\n [7.]]");
  LINE("x.mean((0, 1))", mean(x, {0, 1}), "1.5");
  LINE("x.max(1).values", max(x, 1).values, "[3. 6.]");
  LINE("x.min()", x.min(), "-4.0");
  LINE("x.amin(1)", amin(x, 1), "[-2. -4.]");
  LINE("x.amax((0, 1))", x.amax({0, 1}), "6.0");
  LINE("x.var((0, 1))", var(x, {0, 1}), "15.5");
  LINE("x.argmax(1)", x.argmax(1), "[2 2]");
  LINE("v.var()", var(v), "1.0");
  LINE("v.std()", std(v), "1.0");
  LINE("v.prod()", prod(v), "6.0");
  LINE("v.cumsum(0)", cumsum(v, 0), "[3. 4. 6.]");
  LINE("torch.zeros(4).softmax(0)", zeros({4}).softmax(0), "[0.25 0.25 0.25 0.25]");
  LINE("torch.logsumexp(torch.zeros(1), 0)", logsumexp(zeros({1}), 0), "0.0");
  LINE("v.sort().values", sort(v).values, "[1. 2. 3.]");
  LINE("v.argsort(descending=True)", argsort(v, 0, true), "[0 2 1]");
  LINE("v.topk(2).indices", topk(v, 2).index, "[0 2]");
}

TEST_F(PyTorchLines, Products) {
  LINE("x @ y.T", x.matmul(y.t()), "[[ 4.  2.]\n [14.  7.]]");
  LINE("x @ v", x.matmul(v), "[7. 5.]");
  LINE("v @ v", v.matmul(v), "14.0");
  LINE("torch.outer(v, v)[0]", outer(v, v)[0], "[9. 3. 6.]");
}

TEST_F(PyTorchLines, InPlace) {
  Tensor z = x.clone();
  LINE("z = x.clone(); z += 1; z", z += 1, "[[ 2. -1.  4.]\n [-3.  6.  7.]]");
  LINE("z = x.clone(); z += 1; z *= y; z", z *= y, "[[ 4. -2.  8.]\n [-3.  6.  7.]]");
}

}  // namespace
}  // namespace shardgrad::test
