// In a scope of Autocast, matrix products compute in 16 bits and what needs range or precision in f32.

#include <functional>
#include <map>

#include <shardgrad/autograd/recompute.h>
#include <tests/autograd/support.h>
#include <tests/numbers.h>

namespace shardgrad::test {
namespace {

Tensor narrow_tensor(const Shape& shape, DType dtype) { return normal(shape, "narrow").to(dtype); }

TEST(Autocast, I12_B35_ProductsComputeInTheChosenDtype) {
  Context context;
  Tensor x = normal({4, 8}, "x"), w = normal({8, 8}, "w"), b = normal({8}, "b");
  for (DType dtype : {DType::bf16, DType::f16}) {
    Autocast scope(dtype);
    EXPECT_EQ(linear(x, w, b).dtype(), dtype);
    EXPECT_EQ(matmul(x, w).dtype(), dtype);
    EXPECT_EQ(linear(x.to(dtype), w, b).dtype(), dtype);
    EXPECT_EQ(attention(normal({2, 3, 6}, "qkv"), Tensor(), {.heads = 2}).dtype(), dtype);
    EXPECT_EQ(tanh(matmul(x, w)).dtype(), dtype) << "other operations keep the dtype they are given";
    EXPECT_EQ(matmul(x.to(DType::f64), w.to(DType::f64)).dtype(), DType::f64);
    {
      Autocast off(std::nullopt);
      EXPECT_EQ(matmul(x, w).dtype(), DType::f32);
    }
  }
  EXPECT_EQ(matmul(x, w).dtype(), DType::f32);
  EXPECT_REFUSED(Autocast wrong(DType::f64), "autocast", "f64", "bf16");
}

TEST(Autocast, I12_LossesNormalisationsAndSumsComputeInSingle) {
  Context context;
  for (DType dtype : {DType::bf16, DType::f16}) {
    Tensor x = narrow_tensor({4, 8}, dtype), scale = ones({8}), labels = zeros({4}, DType::i64);
    EXPECT_EQ(softmax(x).dtype(), dtype);
    Autocast scope(dtype);
    for (const Tensor& y : {softmax(x), log_softmax(x), layer_norm(x, scale, scale + 1), rms_norm(x, scale),
                            add_layer_norm(x, x, scale, scale + 1).y, add_rms_norm(x, x, scale).y, sum(x), mean(x, 0),
                            norm(x), exp(x), log(x), pow(x, 2), mse_loss(x, ones({4, 8})), cross_entropy(x, labels),
                            linear_cross_entropy(x, narrow_tensor({5, 8}, dtype), labels),
                            batch_norm(x, scale, scale + 1).y, batch_norm_apply(x, scale, scale, scale, scale + 1)})
      EXPECT_EQ(y.dtype(), DType::f32);
  }
}

// What a layer gives in 16 bits meets a target in f32, whatever the loss and its reduction.
TEST(Autocast, EveryLossTakesALayersResultAndATargetInSingle) {
  Context context;
  Tensor x = test::uniform({4, 3}, "x"), w = test::uniform({2, 3}, "w").set_requires_grad();
  Tensor target = test::uniform({4, 2}, "t");
  using Loss = std::function<Tensor(const Tensor&, const Tensor&, const LossOptions&)>;
  std::map<std::string, Loss> losses{
      {"mse", [](auto& y, auto& t, auto& o) { return mse_loss(y, t, o); }},
      {"l1", [](auto& y, auto& t, auto& o) { return l1_loss(y, t, o); }},
      {"smooth_l1", [](auto& y, auto& t, auto& o) { return smooth_l1_loss(y, t, 0.3, o); }},
      {"smooth_l1 of 0", [](auto& y, auto& t, auto& o) { return smooth_l1_loss(y, t, 1e-39, o); }},
      {"huber", [](auto& y, auto& t, auto& o) { return huber_loss(y, t, 0.3, o); }},
      {"bce", [](auto& y, auto& t, auto& o) { return binary_cross_entropy_with_logits(y, t, o); }},
      {"kl", [](auto& y, auto& t, auto& o) { return kl_div(y, t, o); }},
      {"cross_entropy",
       [](auto& y, auto& t, auto& o) { return cross_entropy(y, t, ClassOptions{.reduction = o.reduction}); }}};
  for (auto& [name, loss] : losses)
    for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
      Autocast scope(DType::bf16);
      w.zero_grad();
      Tensor value = loss(linear(x, w, Tensor()), target, {.reduction = reduction});
      EXPECT_EQ(value.dtype(), DType::f32) << name;
      sum(value).backward();
      for (float g : w.grad().to_vector<float>()) EXPECT_TRUE(std::isfinite(g)) << name;
    }
}

TEST(Autocast, OperandsOfDifferentWidthMeetInTheWider) {
  Context context;
  Tensor a = normal({4}, "a"), low = narrow_tensor({4}, DType::bf16), half = narrow_tensor({4}, DType::f16);
  EXPECT_REFUSED(a + low, "dtypes");
  EXPECT_REFUSED(index_put(a, {Slice(0, 4)}, low), "dtypes");
  Autocast scope(DType::bf16);
  EXPECT_EQ((a + low).dtype(), DType::f32);
  EXPECT_EQ((low + low).dtype(), DType::bf16);
  EXPECT_EQ((low * half).dtype(), DType::f32);
  EXPECT_EQ(gt(a, low).dtype(), DType::u8);
  EXPECT_EQ(where(ones({4}, DType::u8), low, a).dtype(), DType::f32);
  std::vector<Tensor> parts{low, a};
  EXPECT_EQ(cat(parts, 0).dtype(), DType::f32);
  EXPECT_EQ(scatter_add(a, 0, zeros({4}, DType::i64), low).dtype(), DType::f32);
  for (auto [x, y] : {std::pair(a, low), std::pair(low, a), std::pair(low, half)}) {
    EXPECT_EQ(remainder(x, y).dtype(), DType::f32);
    EXPECT_EQ(floor_divide(x, y).dtype(), DType::f32);
    EXPECT_EQ(index_put(x, {Slice(0, 4)}, y).dtype(), DType::f32);
    EXPECT_EQ(bits(index_put(x, {Slice(0, 4)}, y)), bits(y.to(DType::f32)));
  }
}

struct Layers {
  Tensor x = normal({16, 8}, "x").set_requires_grad(), w1 = (normal({32, 8}, "w1") * 0.3).detach().set_requires_grad(),
         w2 = (normal({4, 32}, "w2") * 0.3).detach().set_requires_grad(), b = zeros({32}).set_requires_grad();
  Tensor loss() const { return mse_loss(linear(layer_norm(linear(x, w1, b), Tensor(), Tensor()), w2, Tensor()), t); }
  Tensor t = normal({16, 4}, "t");
};

TEST(Autocast, GradientsAreSingleAndCloseToThoseOfSingle) {
  Context context;
  Layers single;
  Tensor expected = single.loss();
  expected.backward();
  for (DType dtype : {DType::bf16, DType::f16}) {
    Layers mixed;
    Tensor loss;
    {
      Autocast scope(dtype);
      loss = mixed.loss();
    }
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_NEAR(loss.item(), expected.item(), 1e-2 * expected.item());
    loss.backward();
    const Tensor Layers::*leaves[] = {&Layers::x, &Layers::w1, &Layers::w2, &Layers::b};
    for (const Tensor Layers::*leaf : leaves) {
      EXPECT_EQ((mixed.*leaf).grad().dtype(), DType::f32);
      expect_close(values((mixed.*leaf).grad()), values((single.*leaf).grad()), 2e-2, "gradient");
    }
  }
}

TEST(Autocast, BackwardInsideTheScopeGivesTheSameBits) {
  Context context;
  Layers outside, inside;
  Tensor loss;
  {
    Autocast scope(DType::bf16);
    loss = outside.loss();
    inside.loss().backward();
  }
  loss.backward();
  EXPECT_EQ(bits(inside.w1.grad()), bits(outside.w1.grad()));
  EXPECT_EQ(bits(inside.x.grad()), bits(outside.x.grad()));
}

// An operation outside of the library whose backward calls operations.
struct Product final : Node {
  const char* name() const override { return "product"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override { dx[0].alias(matmul(dy[0], saved(0))); }
};

TEST(Autocast, BackwardComputesAsForwardWasRecorded) {
  Context context;
  Tensor w = normal({8, 8}, "w");
  auto gradient = [&](std::optional<DType> around) {
    Tensor x = normal({4, 8}, "x").set_requires_grad();
    Tensor y = matmul(x.detach(), w, false, true);
    record<Product>(y, x)->save(w);
    Autocast scope(around);
    y.backward(ones({4, 8}));
    return bits(x.grad());
  };
  EXPECT_EQ(gradient(DType::bf16), gradient(std::nullopt));
}

TEST(Autocast, TheConvertedCopyOfAParameterIsNotKeptForBackward) {
  Context context;
  Tensor x = normal({64, 32}, "x").set_requires_grad(), w = normal({16, 32}, "w").set_requires_grad();
  w.set_name("layer.weight");
  Tensor h = affine(x, 1, 0);
  int64_t before = context.ledger().current();
  Autocast scope(DType::bf16);
  Tensor y = linear(h, w, Tensor());
  EXPECT_EQ(context.ledger().current() - before, 2 * (64 * 32 + 64 * 16)) << "the converted input and the result";
  fill_(w, 0);
  EXPECT_REFUSED(sum(y).backward(), "'layer.weight'", "changed in place");
}

TEST(Autocast, I41_B21_ARegionIsRunAgainInTheDtypeOfItsFirstRun) {
  Context context;
  for (std::optional<DType> dtype : {std::optional(DType::bf16), std::optional(DType::f16), std::optional<DType>()})
    for (std::optional<DType> around : {std::optional<DType>(), std::optional(DType::f16)}) {
      auto gradients = [&](bool recompute) {
        Layers layers;
        Tensor loss;
        {
          Autocast scope(dtype);
          auto body = [&](const Tensor& x) {
            return linear(tanh(linear(x, layers.w1, layers.b)), layers.w2, Tensor());
          };
          Tensor y = recompute ? checkpoint(body, layers.x) : body(layers.x);
          EXPECT_EQ(y.dtype(), dtype.value_or(DType::f32));
          loss = mse_loss(y, layers.t.to(y.dtype()));
        }
        Autocast scope(around);
        loss.backward();
        return std::vector{bits(layers.x.grad()), bits(layers.w1.grad()), bits(layers.w2.grad()),
                           bits(layers.b.grad())};
      };
      EXPECT_EQ(gradients(true), gradients(false));
    }
}

}  // namespace
}  // namespace shardgrad::test
