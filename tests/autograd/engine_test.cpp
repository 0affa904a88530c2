#include <thread>

#include <tests/autograd/support.h>
#include <tests/numbers.h>

namespace shardgrad::test {
namespace {

TEST(Engine, Diamond) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  Tensor left = mul(x, x), right = affine(x, 3, 0);
  sum(mul(left, right)).backward();  // Σ 3x³
  EXPECT_EQ(values(x.grad()), (std::vector<double>{9, 36}));
}

TEST(Engine, ATensorUsedTwiceByOneOperationCountsTwice) {
  Context context;
  Tensor a = leaf({1, 2}, {2});
  sum(a + a).backward();
  EXPECT_EQ(values(a.grad()), (std::vector<double>{2, 2}));
  Tensor b = leaf({1, 2}, {2});
  Tensor middle = affine(b, 5, 0);  // the same of a computed tensor, whose gradient is handed over
  sum(middle + middle).backward();
  EXPECT_EQ(values(b.grad()), (std::vector<double>{10, 10}));
}

struct Largest final : Node {
  const char* name() const override { return "largest"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    EXPECT_FALSE(dy[0].defined());
    dx[0].alias(dy[1]);
  }
};

TEST(Engine, AResultOfIntegersRequiresNoGradAndKeepsItsPlace) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  const Tensor results[] = {tensor({1}), tensor({5., 7.})}, integers[] = {tensor({1})}, inputs[] = {x};
  ASSERT_TRUE(record_all<Largest>(results, inputs));
  EXPECT_FALSE(results[0].requires_grad());
  EXPECT_TRUE(results[0].is_leaf());
  sum(mul(results[1], results[1])).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{10, 14}));
  EXPECT_FALSE(record_all<Largest>(integers, inputs)) << "integers alone";
  EXPECT_FALSE(record<Largest>(integers[0], x));
}

TEST(Engine, AnUnusedLeafHasNoGradient) {
  Context context;
  Tensor used = leaf({1}, {1}), unused = leaf({1}, {1});
  mul(used, used).backward();
  EXPECT_TRUE(used.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
}

TEST(Engine, GradientsAccumulateOverPasses) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  for (int i = 0; i < 3; ++i) sum(mul(x, x)).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{6, 12}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  sum(mul(x, x)).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{2, 4}));
}

// As in PyTorch without create_graph: with one, sum(slope²) would add 8x.
TEST(Engine, AGradientIsAConstantInALaterLoss) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  sum(mul(x, x)).backward();
  Tensor slope = x.grad();
  x.zero_grad();
  EXPECT_FALSE(slope.requires_grad());
  (sum(affine(x, 5, 0)) + sum(mul(slope, slope))).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{5, 5}));
  EXPECT_THROW(sum(mul(slope, slope)).backward(), Error) << "a penalty alone";
}

TEST(Engine, AResidualIsNotCorruptedByLaterContributions) {
  Context context;
  Tensor x = leaf({1, 2, 3}, {3});
  Tensor h = affine(x, 2, 0);
  Tensor y = h + mul(h, h);  // the gradient of y becomes that of h with no copy, then h's grows
  Tensor z = y + mul(h, y);
  sum(z).backward();  // z = h + 2h² + h³, so dz/dx = 2 (1 + 4h + 3h²)
  std::vector<double> expected;
  for (double v : {2.0, 4.0, 6.0}) expected.push_back(2 * (1 + 4 * v + 3 * v * v));
  EXPECT_EQ(values(x.grad()), expected);
}

TEST(Engine, AGivenGradientIsLeftAsItWas) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  Tensor y = affine(x, 1, 0), upstream = from_vector<float>({3, 4}, {2});
  Tensor z = y + y;
  z.backward(upstream);
  EXPECT_EQ(values(x.grad()), (std::vector<double>{6, 8}));
  EXPECT_EQ(values(upstream), (std::vector<double>{3, 4}));
  relu(linear(reshape(x, {1, 2}), from_vector<float>({1, 0, 0, 1}, {2, 2}), Tensor(), Activation::relu))
      .backward(reshape(upstream, {1, 2}));
  EXPECT_EQ(values(upstream), (std::vector<double>{3, 4}));
}

TEST(Engine, SeveralRoots) {
  Context context;
  Tensor x = leaf({1, 2}, {2});
  Tensor h = mul(x, x);
  Tensor first = sum(h), second = affine(h, 10, 0);
  Tensor upstream = from_vector<float>({1, 2}, {2});
  std::vector<Tensor> roots{first, second, first, h}, grads{Tensor(), upstream, Tensor(), upstream};
  backward(roots, grads);
  EXPECT_EQ(values(x.grad()), (std::vector<double>{2 * (1 + 10 + 1 + 1), 4 * (1 + 20 + 1 + 2)}));
}

TEST(Engine, ALeafMayBeARoot) {
  Context context;
  Tensor x = leaf({4}, {1});
  x.backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{1}));
}

TEST(Engine, AMillionNodesRunBackwardAndAreDestroyedWithoutRecursion) {
  Context context;
  constexpr int kNodes = 1'000'000;
  Tensor x = leaf({1}, {1});
  Tensor y = x;
  for (int i = 0; i < kNodes; ++i) y = affine(y, 1, 1);
  y.backward();
  EXPECT_EQ(x.grad().item(), 1);
  y = x;
  for (int i = 0; i < kNodes; ++i) y = tanh(y);
  y = Tensor();  // never run: the whole chain goes at once
  EXPECT_LE(context.ledger().current(), 64);
}

TEST(Engine, MemoryIsGivenBackWhileBackwardRuns) {
  Context context;
  constexpr int64_t kBytes = 1 << 20;
  constexpr int kDepth = 20;
  Tensor x = zeros({kBytes / 4}).set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < kDepth; ++i) y = tanh(y);
  Tensor loss = sum(y);
  y = Tensor();
  int64_t after_forward = context.ledger().current();
  EXPECT_GE(after_forward, (kDepth + 1) * kBytes);
  context.ledger().reset_peaks();
  loss.backward();
  EXPECT_LE(context.ledger().peak(), after_forward + 2 * kBytes + 64);
  EXPECT_LE(context.ledger().current(), 2 * kBytes + 64);  // x, its gradient, and the loss
}

TEST(Engine, RetainGraphAllowsASecondPass) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = mul(x, x);
  y.backward(Tensor(), true);
  y.backward(Tensor(), true);
  y.backward();
  EXPECT_EQ(x.grad().item(), 18);
}

TEST(Engine, NothingIsRecordedUnderNoGrad) {
  Context context;
  Tensor x = leaf({3}, {1});
  {
    NoGrad no_grad;
    EXPECT_FALSE(mul(x, x).requires_grad());
    {
      GradMode again(true);
      EXPECT_TRUE(mul(x, x).requires_grad());
    }
  }
  EXPECT_TRUE(mul(x, x).requires_grad());
  EXPECT_FALSE(mul(x.detach(), x.detach()).requires_grad());
}

TEST(Engine, OneOutputOfSeveralMayBeUsed) {
  Context context;
  Tensor x = leaf({1, 2, 3, 4}, {4});
  const int64_t sizes[] = {1, 2, 1};
  sum(mul(split(x, sizes, 0)[1], split(x, sizes, 0)[1])).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{0, 4, 6, 0}));
}

TEST(Engine, PreHooksRunOnceBeforeTheirNode) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor h = mul(x, x), y = affine(h, 2, 0) + h;
  int runs = 0;
  node_of(h)->add_pre_hook([&] {
    ++runs;
    EXPECT_FALSE(x.grad().defined());
  });
  y.backward();
  EXPECT_EQ(runs, 1);
}

TEST(Engine, ReadyHooksRunOnceAfterTheLastContribution) {
  Context context;
  Tensor x = leaf({3}, {1});
  int runs = 0;
  leaf_of(x).add_ready_hook([&] {
    ++runs;
    EXPECT_EQ(x.grad().item(), 3 * 9 + 1);  // x³ + x
  });
  (mul(mul(x, x), x) + x).backward();
  EXPECT_EQ(runs, 1);
}

TEST(Engine, ACompleteGradientIsAnnouncedBeforeOlderNodesRun) {
  Context context;
  Tensor early = leaf({2}, {1}), late = leaf({3}, {1});
  std::vector<std::string> order;
  Tensor h = mul(early, early);
  node_of(h)->add_pre_hook([&] { order.push_back("first node"); });
  leaf_of(late).add_ready_hook([&] { order.push_back("late leaf"); });
  mul(h, late).backward();
  EXPECT_EQ(order, (std::vector<std::string>{"late leaf", "first node"}));
}

TEST(Engine, CallbacksOfAFailureRunOnlyThenAndHideItsCauseNever) {
  Context context;
  for (bool fails : {false, true}) {
    Tensor x = leaf({3}, {1}), y = mul(x, x);
    int told = 0;
    node_of(y)->add_pre_hook([&] {
      on_backward_failed([&] {
        ++told;
        fail("a second cause");
      });
      on_backward_failed([&] { ++told; });
      if (fails) fail("the first cause");
    });
    if (fails) {
      EXPECT_REFUSED(y.backward(), "the first cause");
    } else {
      y.backward();
    }
    EXPECT_EQ(told, fails ? 2 : 0);
  }
  EXPECT_REFUSED(on_backward_failed([] {}), "no backward is running");
}

TEST(Engine, CallbacksRunWhenThePassHasFinished) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = mul(x, x);
  bool done = false;
  node_of(y)->add_pre_hook([&] {
    EXPECT_TRUE(in_backward());
    on_backward_end([&] {
      done = true;
      EXPECT_EQ(x.grad().item(), 6);
    });
  });
  y.backward();
  EXPECT_TRUE(done);
  EXPECT_FALSE(in_backward());
  EXPECT_REFUSED(on_backward_end([] {}), "no backward is running");
}

TEST(Engine, ASinkReceivesEveryContributionAndIsReadyOnce) {
  Context context;
  Tensor x = leaf({3}, {1});
  auto sink = std::make_shared<PoisonedSink>(x);
  leaf_of(x).set_sink(sink);
  (mul(x, x) + affine(x, 4, 0)).backward();  // tied: used by two operations, three times
  EXPECT_EQ(x.grad().item(), 10);
  EXPECT_EQ(sink->opened, 1);
  EXPECT_EQ(sink->made_ready, 1);
}

TEST(Engine, ASinkWithBetaOneIsAddedTo) {
  Context context;
  Tensor x = leaf({3}, {1});
  auto sink = std::make_shared<PoisonedSink>(x, 1.0f);
  sink->clear();
  leaf_of(x).set_sink(sink);
  for (int i = 1; i <= 2; ++i) {
    mul(x, x).backward();
    EXPECT_EQ(x.grad().item(), 6 * i);
  }
  EXPECT_REFUSED(x.set_grad(zeros({1})), "sharded unit");
}

struct Failing final : Node {
  const char* name() const override { return "failing"; }
  void backward(std::span<const Tensor>, std::span<GradSlot> dx) override {
    dx[0].write();
    fail("this backward fails");
  }
};

TEST(Engine, AnExceptionLeavesNoGradientBehind) {
  Context context;
  Tensor x = leaf({1, 2}, {2}), w = leaf({3, 4}, {2});
  int64_t before = context.ledger().current();
  {
    Tensor h = mul(x, x);
    Tensor y = clone(h.detach());
    record<Failing>(y, h);
    Tensor z = sum(mul(mul(y, w), affine(h, 2, 0)));
    EXPECT_THROW(z.backward(), Error);
    EXPECT_FALSE(in_backward());
    EXPECT_EQ(context.ledger().current(Category::activation_gradient), 0);
  }
  EXPECT_EQ(context.ledger().current(), before);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
  sum(mul(x, w)).backward();  // and the leaves still work
  EXPECT_EQ(values(x.grad()), (std::vector<double>{3, 4}));
}

TEST(Engine, AnExceptionInAHookEndsThePass) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = mul(x, x);
  node_of(y)->add_pre_hook([] { fail("hook"); });
  EXPECT_REFUSED(y.backward(), "hook");
  mul(x, x).backward();
  EXPECT_EQ(x.grad().item(), 6);
}

struct Lazy final : Node {
  const char* name() const override { return "lazy"; }
  void backward(std::span<const Tensor>, std::span<GradSlot>) override {}
};

TEST(Engine, AWantedGradientLeftUnwrittenIsABug) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = zeros({1});
  record<Lazy>(y, x);
  EXPECT_REFUSED(y.backward(), "lazy", "unwritten");
}

TEST(Engine, ALeafMayBeTrainedFromAnotherThreadLater) {
  Context context;
  Tensor x = leaf({3}, {1});
  Tensor y = mul(x, x);
  y.backward(Tensor(), true);
  std::thread([&] {
    ContextScope scope(context);
    y.backward(Tensor(), true);
  }).join();
  EXPECT_EQ(x.grad().item(), 12);
}

TEST(Engine, ContributionsAddInTheSameOrderEveryTime) {
  Context context;
  auto gradient = [] {
    Tensor x = normal({257}, "x").set_requires_grad();
    Tensor total = x;
    for (int i = 0; i < 8; ++i) total = total + mul(tanh(total), x);
    sum(total).backward();
    return bits(x.grad());
  };
  EXPECT_EQ(gradient(), gradient());
}

}  // namespace
}  // namespace shardgrad::test
