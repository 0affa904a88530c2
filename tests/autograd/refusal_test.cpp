// What is refused, and that the message names the operation and what did not fit.

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

TEST(Refusals, AChangedSavedTensorIsNamed) {
  Context context;
  Tensor x = leaf({1, 2}, {2}), w = leaf({3, 4}, {2});
  w.set_name("layer.weight");
  Tensor y = sum(mul(x, w));
  {
    NoGrad no_grad;
    fill_(w, 0);
  }
  EXPECT_REFUSED(y.backward(), "mul", "'layer.weight'", "changed in place");
}

TEST(Refusals, AViewSharesItsVersion) {
  Context context;
  Tensor x = leaf({1, 2, 3, 4}, {4});
  Tensor h = affine(x, 1, 0);
  Tensor view = slice(h, 0, 0, 2);
  Tensor y = sum(mul(h, h));
  fill_(view.detach(), 9);
  EXPECT_REFUSED(y.backward(), "mul", "changed in place");
}

TEST(Refusals, ATensorThatBackwardDoesNotReadMayChange) {
  Context context;
  Tensor x = leaf({1, 2}, {2}), constant = from_vector<float>({3, 4}, {2});
  Tensor data = from_vector<float>({5, 6}, {2});
  Tensor y = sum(mul(data, x)) + sum(x + constant);
  fill_(constant, 0);
  fill_(x, 0);  // mul reads x only for the gradient of data, which needs none
  y.backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{6, 7}));
}

TEST(Refusals, FillOfAComputedTensor) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  Tensor y = mul(x, x);
  EXPECT_REFUSED(fill_(y, 0), "fill_", "computed", "detach()");
}

TEST(Refusals, BackwardTwice) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = mul(x, x);
  y.backward();
  EXPECT_REFUSED(y.backward(), "mul", "retain_graph");
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(Refusals, AViewThatIsUsedInTwoStepsIsNamedAsItWasCalled) {
  Context context;
  Tensor x = leaf({1, 2, 3, 4}, {4});
  Tensor rows = x.rows(0, 2), view = x.view({2, 2});
  sum(rows).backward();
  EXPECT_REFUSED(sum(rows).backward(), "rows:", "made once and used in two steps");
  sum(view).backward();
  EXPECT_REFUSED(sum(view).backward(), "view:", "retain_graph", "Make it anew in each forward");
  EXPECT_REFUSED(x.view({5}), "view", "[4]", "[5]");
  EXPECT_REFUSED(x.rows(2, 5), "rows", "[2, 5)", "[4]");
}

TEST(Refusals, ReleasedMemoryIsNamedByItsOwner) {
  Context context;
  Tensor x = [] {
    TagScope owner(Category::named<"gathered">);
    return ones({2, 3});
  }();
  x.storage()->release(current_stream(kCpu));
  EXPECT_REFUSED(exp(x), "[2, 3]", "its storage was released, whose owner is gathered", "materialize");
  EXPECT_REFUSED(x.storage()->data(), "gathered", "has been released; materialize it");
}

TEST(Refusals, DoubleBackward) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = mul(x, x);
  y.backward();
  EXPECT_REFUSED(x.grad().backward(), "does not require grad", "double backward");
}

TEST(Refusals, BackwardInsideBackward) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = mul(x, x);
  node_of(y)->add_pre_hook([&] { x.backward(); });
  EXPECT_REFUSED(y.backward(), "inside backward", "double backward");
}

TEST(Refusals, AResultThatIsNotAScalar) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  EXPECT_REFUSED(mul(x, x).backward(), "[2]", "not a scalar", "sum()");
}

TEST(Refusals, AGradientThatDoesNotFit) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  Tensor y = mul(x, x);
  EXPECT_REFUSED(y.backward(zeros({3})), "f32[3]", "f32[2]");
  EXPECT_REFUSED(y.backward(zeros({2}, DType::f64)), "f64[2]", "f32[2]");
  EXPECT_REFUSED(y.backward(zeros({2}, kAcc)), "acc", "cpu");
}

TEST(Refusals, NothingRequiresGrad) {
  Context context;
  EXPECT_REFUSED(zeros({1}).backward(), "does not require grad");
  EXPECT_REFUSED(zeros({1}, DType::i64).set_requires_grad(), "i64", "no gradient");
  Tensor x = leaf({1}, {1});
  EXPECT_REFUSED(mul(x, x).set_requires_grad(), "computed", "detach()");
  EXPECT_REFUSED(x.set_grad(zeros({2})), "f32[2]", "does not fit");
}

TEST(Refusals, ShapesDTypesAndDevicesOfOperands) {
  Context context;
  Tensor a = zeros({2, 3}), b = zeros({4}), wide = zeros({2, 3}, DType::f64), far = zeros({2, 3}, kAcc);
  EXPECT_REFUSED(add(a, b), "add", "[2, 3]", "[4]");
  EXPECT_REFUSED(mul(a, wide), "mul", "f32", "f64", ".to(dtype)");
  EXPECT_REFUSED(div(a, far), "div", "cpu", "acc", ".to(device)");
  EXPECT_REFUSED(eq(a, b), "eq", "[2, 3]", "[4]");
  EXPECT_REFUSED(where(a, a, a), "where", "u8", "f32");
  EXPECT_REFUSED(matmul(a, a), "matmul", "[2, 3] x [2, 3]", "3 and 2");
  EXPECT_REFUSED(matmul(a, b), "matmul", "[2, 3] x [4]", "3 and 4 differ");
  EXPECT_REFUSED(matmul(zeros({2, 2, 3}), zeros({3, 3, 2})), "matmul", "[2, 2, 3]", "[3, 3, 2]", "leading dimensions");
  EXPECT_REFUSED(linear(a, zeros({5, 4}), Tensor()), "linear", "[2, 3]", "[5, 4]");
  EXPECT_REFUSED(linear(a, zeros({5, 3}), zeros({4})), "linear", "[4]", "[5, 3]");
  EXPECT_REFUSED(layer_norm(a, zeros({2}), Tensor()), "layer_norm", "weight [2]", "[2, 3]");
  EXPECT_REFUSED(layer_norm(zeros({2, 4}), b, b), "layer_norm", "different tensors");
  EXPECT_REFUSED(layer_norm(b, b, Tensor()), "layer_norm", "different tensors");
  EXPECT_REFUSED(rms_norm(a, zeros({2})), "rms_norm", "weight [2]", "[2, 3]");
  EXPECT_REFUSED(rms_norm(zeros({}), Tensor()), "rms_norm", "scalar");
  EXPECT_REFUSED(batch_norm(zeros({4}), Tensor(), Tensor()), "batch_norm", "[4]");
  EXPECT_REFUSED(group_norm(zeros({4}), 2, Tensor(), Tensor()), "group_norm", "[4]");
  EXPECT_REFUSED(group_norm(a, 2, Tensor(), Tensor()), "group_norm", "3 channels", "2 groups");
  EXPECT_REFUSED(group_norm(a, 0, Tensor(), Tensor()), "group_norm", "0 groups");
  EXPECT_REFUSED(group_norm(a, 3, zeros({2}), Tensor()), "group_norm", "weight [2]", "[2, 3]");
  EXPECT_REFUSED(batch_norm(zeros({0, 4}), Tensor(), Tensor()), "batch_norm", "no samples");
  EXPECT_REFUSED(batch_norm_apply(a, zeros({2}), zeros({3}), Tensor(), Tensor()), "mean f32[2]", "f32[2, 3]");
  EXPECT_REFUSED(swiglu(a), "swiglu", "[2, 3]", "halves");
  EXPECT_REFUSED(swiglu(zeros({2, 4}, DType::i64)), "swiglu", "floating", "i64");
  Tensor rows = zeros({2, 3, 16}), table = zeros({3, 4});
  EXPECT_REFUSED(rope(a, table, 2, 1), "rope", "[2, 3]", "[3, 4]", "2 query, 1 key");
  EXPECT_REFUSED(rope(rows, table, 3, 1), "rope", "[2, 3, 16]", "3 query");
  EXPECT_REFUSED(rope(rows, table, 2, 1, Tensor(), 1), "rope", "from 1 on", "[3, 4]", "longer");
  EXPECT_REFUSED(rope(rows, table, 2, 1, Tensor(), INT64_MAX), "rope", "from 9223372036854775807 on");
  EXPECT_REFUSED(rope(rows, table.to(DType::bf16), 2, 1), "rope", "bf16[3, 4]", "f32");
  EXPECT_REFUSED(rope(rows, table, 2, 1, zeros({3}, DType::i64)), "rope", "i64[3]", "[2, 3, 16]", "i64 (2)");
  EXPECT_REFUSED(mse_loss(a, b), "mse_loss", "[2, 3]", "[4]");
  EXPECT_REFUSED(cross_entropy(a, zeros({4}, DType::i64)), "cross_entropy", "[2, 3]", "[4]");
  EXPECT_REFUSED(cross_entropy(a, zeros({2})), "cross_entropy", "i64", "f32[2]");
  EXPECT_REFUSED(cross_entropy(a, zeros({2}, DType::i64), 0, -100, 4), "cross_entropy", "4 classes", "[2, 3]");
  EXPECT_REFUSED(softmax(zeros({2}, DType::i64)), "softmax", "floating", "i64");
}

TEST(Refusals, DimensionsAndRanges) {
  Context context;
  Tensor a = zeros({2, 3});
  EXPECT_REFUSED(sum(a, 2), "sum", "[2, 3]", "dimension 2");
  EXPECT_REFUSED(max(zeros({2, 0}), 1), "max", "[2, 0]", "empty");
  EXPECT_REFUSED(reshape(a, {4, -1}), "reshape", "[2, 3]");
  EXPECT_REFUSED(reshape(a, {-1, -1}), "reshape", "only one");
  EXPECT_REFUSED(reshape(a, Shape{5}), "reshape", "[2, 3]", "[5]");
  EXPECT_REFUSED(permute(a, {0, 0}), "permute", "twice");
  EXPECT_REFUSED(permute(a, {0}), "permute", "[2, 3]");
  EXPECT_REFUSED(slice(a, 1, 2, 4), "slice", "[2, 4)", "[2, 3]");
  const int64_t sizes[] = {1, 1};
  EXPECT_REFUSED(split(a, sizes, 1), "split", "2", "[2, 3]");
  const Tensor parts[] = {a, zeros({3, 3})};
  EXPECT_REFUSED(cat(parts, 1), "cat", "[2, 3]", "[3, 3]");
  EXPECT_REFUSED(expand(a, {2, 4}), "expand", "[2, 3]", "[2, 4]");
  EXPECT_REFUSED(index_select(a, 0, zeros({2})), "index_select", "i64");
  EXPECT_REFUSED(gather(a, 0, zeros({2, 4}, DType::i64)), "gather", "[2, 4]", "[2, 3]");
  EXPECT_REFUSED(scatter_add(a, 0, zeros({2, 3}, DType::i64), zeros({1, 3})), "scatter_add", "[2, 3]", "[1, 3]");
  EXPECT_REFUSED(clamp(a, 2, 1), "clamp", "2", "1");
  EXPECT_REFUSED(clamp(a, NAN, 1), "clamp: from nan to 1 is not possible", "infinite");
  EXPECT_REFUSED(clamp(a, 0, NAN), "clamp: from 0 to nan");
  constexpr int64_t many = int64_t(1) << 40;
  EXPECT_REFUSED(flatten(zeros({0, many, many}), 1), "more than 2^56 elements");
  EXPECT_EQ(flatten(zeros({0, many, many})).shape(), Shape{0});
  EXPECT_REFUSED(dropout(a, 1.0, 0, 0), "dropout", "[0, 1)");
  EXPECT_REFUSED(to_device(zeros({2}, kMeta), kCpu), "to_device", "meta");
}

TEST(Refusals, LabelsAndIdsOutOfRange) {
  Context context;
  Tensor logits = zeros({2, 3});
  Tensor labels = from_vector<int64_t>({1, 3}, {2});
  EXPECT_REFUSED(cross_entropy(logits, labels), "cross_entropy", "row 1 is 3");
  EXPECT_REFUSED(one_hot(labels, 3), "3");
  EXPECT_REFUSED(embedding(zeros({3, 2}), labels), "3");
  EXPECT_REFUSED(embedding(zeros({8, 2}), labels, 3), "index 1 is 3", "[0, 3)");
  EXPECT_REFUSED(embedding(zeros({3, 2}), labels, 4), "[3, 2]", "4 rows");
  EXPECT_REFUSED(index_select(logits, 1, from_vector<int64_t>({-1}, {1})), "-1");
}

TEST(Refusals, OnAnAsynchronousDeviceARefusedLabelSurfacesAtTheNextWait) {
  Context context;
  Tensor loss = cross_entropy(zeros({2, 3}, kAcc), from_vector<int64_t>({1, 3}, {2}).to(kAcc));
  EXPECT_REFUSED(loss.item(), "cross_entropy", "row 1 is 3");
}

}  // namespace
}  // namespace shardgrad::test
