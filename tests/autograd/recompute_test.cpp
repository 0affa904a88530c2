// What is inside a region is not kept but computed again; nothing else changes.

#include <map>
#include <optional>
#include <thread>

#include <shardgrad/autograd/recompute.h>
#include <shardgrad/certify/gradcheck.h>
#include <tests/autograd/support.h>
#include <tests/numbers.h>

namespace shardgrad::test {
namespace {

int64_t activations() { return context().ledger().current(Category::activation); }

// Three operations that save what they compute.
Tensor body(const Tensor& x, const Tensor& w) { return tanh(matmul(sigmoid(matmul(x, w)), w)); }

struct Weights {
  Tensor x = normal({8, 8}, "x").set_requires_grad(), w = normal({8, 8}, "w").set_requires_grad();
  std::vector<std::vector<uint8_t>> gradients() const { return {bits(x.grad()), bits(w.grad())}; }
};

TEST(Recompute, GradientsAreTheSameBitsAndTheBodyRunsOnceMore) {
  Context context;
  Weights plain, again;
  int runs = 0;
  sum(body(body(plain.x, plain.w), plain.w)).backward();
  auto counted = [&runs](const Tensor& x, const Tensor& w) { return ++runs, body(x, w); };
  Tensor loss = sum(checkpoint(counted, checkpoint(counted, again.x, again.w), again.w));
  EXPECT_EQ(runs, 2);
  loss.backward();
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(again.gradients(), plain.gradients());
}

TEST(Recompute, I32_AfterForwardExactlyTheBoundaryInputsAreHeld) {
  Context context;
  constexpr int kRegions = 5;
  constexpr int64_t kBytes = 64 * 16 * 4;
  Tensor w = normal({16, 16}, "w").set_requires_grad();
  Tensor input = normal({64, 16}, "x");
  int64_t before = activations();
  auto forward = [&](bool recompute) {
    Tensor h = input;
    for (int i = 0; i < kRegions; ++i) h = recompute ? checkpoint(body, h, w) : body(h, w);
    return sum(h);
  };
  {
    Tensor loss = forward(false);
    EXPECT_EQ(activations() - before, 2 * kRegions * kBytes + 4) << "every result of sigmoid and tanh, and the loss";
  }
  EXPECT_EQ(activations(), before);
  Tensor loss = forward(true);
  EXPECT_EQ(activations() - before, (kRegions - 1) * kBytes + 4) << "the inputs of later regions, and the loss";
  context.ledger().reset_peaks();
  loss.backward();
  EXPECT_LE(context.ledger().peak(Category::activation) - before, (kRegions - 1) * kBytes + 4 + 4 * kBytes)
      << "the inside of one region at a time";
  EXPECT_EQ(activations() - before, 4);
}

struct Pair {
  Tensor low, high;
  std::map<std::string, Tensor> rest;
};

TEST(Recompute, ArgumentsAndResultsMayBeStructuresOfTensors) {
  Context context;
  auto function = [](const Pair& in, std::vector<Tensor> list, int power, std::optional<Tensor> none) {
    EXPECT_FALSE(none);
    Tensor high = mul(in.high, list[1]) * power;
    return std::tuple(Pair{tanh(in.low), high, {{"p", exp(in.rest.at("p"))}}}, sigmoid(list[0]));
  };
  auto gradients = [&](bool recompute) {
    std::vector<Tensor> leaves;
    for (int i = 0; i < 5; ++i) leaves.push_back(normal({3}, "leaf" + std::to_string(i)).set_requires_grad());
    Pair in{leaves[0], leaves[1], {{"p", leaves[2]}}};
    std::vector<Tensor> list{leaves[3], leaves[4]};
    std::optional<Tensor> none;
    auto [pair, other] = recompute ? checkpoint(function, in, list, 3, none) : function(in, list, 3, none);
    EXPECT_TRUE(list[1].same_as(leaves[4])) << "the caller's variable is left alone";
    sum(pair.low * pair.high + pair.rest.at("p") * other).backward();
    std::vector<std::vector<uint8_t>> all;
    for (const Tensor& leaf : leaves) all.push_back(bits(leaf.grad()));
    return all;
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(Recompute, OneOfTwoOutputsMayBeUsedAndTheOtherLater) {
  Context context;
  Tensor x = leaf({0.5f, 2}, {2});
  auto [a, b] = checkpoint([](const Tensor& t) { return std::pair(exp(t), mul(t, tanh(t))); }, x);
  sum(a).backward();
  std::vector<double> first = values(x.grad());
  EXPECT_FLOAT_EQ(float(first[0]), std::exp(0.5f));
  EXPECT_EQ(activations(), int64_t(x.bytes() + a.bytes() + b.bytes())) << "values of the other output do not stay";
  x.zero_grad();
  sum(b).backward();
  EXPECT_NEAR(values(x.grad())[0], std::tanh(0.5) + 0.5 * (1 - std::tanh(0.5) * std::tanh(0.5)), 1e-6);
}

TEST(Recompute, RegionsNestAndHoldNothingOfTheirInsides) {
  Context context;
  Weights plain, again;
  sum(body(body(body(plain.x, plain.w), plain.w), plain.w)).backward();
  int inner = 0, outer = 0;
  auto inside = [&](const Tensor& x, const Tensor& w) { return ++inner, body(x, w); };
  auto outside = [&](const Tensor& x, const Tensor& w) {
    ++outer;
    return checkpoint(inside, checkpoint(inside, body(x, w), w), w);
  };
  int64_t before = activations();
  Tensor loss = sum(checkpoint(outside, again.x, again.w));
  EXPECT_EQ(activations() - before, 4) << "the loss";
  loss.backward();
  EXPECT_EQ(again.gradients(), plain.gradients());
  EXPECT_EQ(outer, 2);
  EXPECT_EQ(inner, 6) << "two of them, each three times";
  EXPECT_EQ(activations() - before, 4);
}

TEST(Recompute, ATensorCapturedInAnInnerRegionIsFoundAgain) {
  Context context;
  Weights plain, again;
  auto function = [](bool recompute, const Tensor& x, const Tensor& w) {
    Tensor h = tanh(x);
    auto inside = [h](const Tensor& v) { return mul(sigmoid(v), h); };
    return recompute ? checkpoint(inside, w) : inside(w);
  };
  sum(function(false, plain.x, plain.w)).backward();
  sum(checkpoint(function, true, again.x, again.w)).backward();
  EXPECT_EQ(again.gradients(), plain.gradients());
}

TEST(Recompute, WithoutGradModeItIsAPlainCall) {
  Context context;
  NoGrad no_grad;
  Weights some;
  int runs = 0;
  int64_t before = activations();
  Tensor y = checkpoint(
      [&](const Tensor& x) {
        EXPECT_EQ(Region::current(), nullptr);
        return ++runs, tanh(x);
      },
      some.x);
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(activations() - before, int64_t(y.bytes()));
}

TEST(Recompute, HooksRunOnceBecauseThereIsOneGraph) {
  Context context;
  Weights some;
  int before = 0, ready = 0;
  leaf_of(some.w).add_ready_hook([&] { ++ready; });
  Tensor y = checkpoint(body, some.x, some.w);
  node_of(y)->add_pre_hook([&] { ++before; });
  sum(y).backward();
  EXPECT_EQ(before, 1);
  EXPECT_EQ(ready, 1);
}

TEST(Recompute, RetainGraphRunsAgainInEveryPassAndHoldsNothingBetween) {
  Context context;
  Weights plain, again;
  int runs = 0;
  Tensor twice = sum(body(plain.x, plain.w));
  twice.backward(Tensor(), true);
  twice.backward();
  Tensor loss = sum(checkpoint([&](const Tensor& x, const Tensor& w) { return ++runs, body(x, w); }, again.x, again.w));
  int64_t held = activations();
  loss.backward(Tensor(), true);
  EXPECT_EQ(activations(), held);
  loss.backward(Tensor(), true);
  EXPECT_EQ(activations(), held);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(again.gradients(), plain.gradients());
}

TEST(Recompute, GradcheckThroughARegion) {
  Context context;
  Tensor x = normal({3, 4}, "x", DType::f64), w = normal({4, 4}, "w", DType::f64);
  gradcheck([](std::span<const Tensor> in) { return checkpoint(body, in[0], in[1]); }, {x, w});
}

// --- what must not differ -------------------------------------------------------------------------------------------

TEST(Recompute, AnotherShapeDtypeOrOperationInTheSecondRunIsRefusedByName) {
  Context context;
  Tensor x = normal({4, 4}, "x").set_requires_grad();
  auto second = [&](auto first_body, auto second_body) {
    auto function = [=](const Tensor& t) { return recomputing() ? second_body(t) : first_body(t); };
    Tensor loss = sum(checkpoint({.name = "block"}, function, x).to(DType::f32));
    return refusal([&] { loss.backward(); });
  };
  auto plain = [](const Tensor& t) { return tanh(t); };
  auto has = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks " << part;
  };
  has(second(plain,
             [](const Tensor& t) {
               return tanh(reshape(t, {2, 8}));
             }),
      {"'block'", "reshape", "[2, 8]", "tanh", "[4, 4]"});
  has(second(plain, [](const Tensor& t) { return sigmoid(t); }), {"'block'", "sigmoid of", "it was tanh"});
  has(second([](const Tensor& t) { return tanh(t.to(DType::bf16)); },
             [](const Tensor& t) { return tanh(t.to(DType::f16)); }),
      {"'block'", "cast", "f16[4, 4]", "bf16[4, 4]"});
  has(second(plain, [](const Tensor& t) { return tanh(tanh(t)); }), {"'block'", "also records tanh"});
  has(second([](const Tensor& t) { return tanh(tanh(t)); }, plain), {"'block'", "stops after 1", "tanh"});
}

TEST(Recompute, AnInPlaceChangeBetweenTheRunsIsRefusedByName) {
  Context context;
  Tensor x = normal({4, 4}, "x").set_requires_grad(), w = normal({4, 4}, "w").set_requires_grad(),
         bias = normal({4}, "b").set_requires_grad();
  bias.set_name("block.bias");
  auto function = [=](const Tensor& t) { return tanh(linear(t, w, bias)); };
  Tensor loss = sum(checkpoint(function, x));
  fill_(x, 1);
  EXPECT_REFUSED(loss.backward(), "changed in place");
  loss = sum(checkpoint(function, x));
  fill_(w, 1);
  EXPECT_REFUSED(loss.backward(), "changed in place");
  loss = sum(checkpoint(function, x));
  fill_(bias, 1);  // backward without a region would not read it: only the second run does
  EXPECT_REFUSED(loss.backward(), "'block.bias'", "changed in place");
  sum(checkpoint(function, x)).backward();
}

// A tensor that needs no gradient and meets only its like records nothing: the second run reads it all the same.
TEST(Recompute, ABufferThatNoRecordedOperationReadsMustStayTheSame) {
  Context context;
  Tensor x = normal({4}, "x").set_requires_grad(), scale = ones({4});
  scale.set_name("block.scale");
  auto function = [=](const Tensor& h) {
    Tensor twice = affine(scale, 2, 0);
    return h * twice * h;
  };
  Tensor loss = sum(checkpoint(function, x));
  fill_(scale, 100);
  EXPECT_REFUSED(loss.backward(), "'block.scale'", "changed in place");
}

// As parameters do that lie end to end in one unit.
TEST(Recompute, EachValueOfAMemoryThatCountsWritesApartMustStayTheSame) {
  Context context;
  Tensor x = normal({4}, "x").set_requires_grad(), both = ones({8});
  both.storage()->count_writes_apart({0, 4 * sizeof(float)});
  Tensor first = both.rows(0, 4), second = both.rows(4, 8);
  second.set_name("block.second");
  Tensor loss = sum(checkpoint([=](const Tensor& h) { return h * (first * second) * h; }, x));
  fill_(second, 100);
  EXPECT_REFUSED(loss.backward(), "'block.second'", "changed in place");
}

TEST(Recompute, WhatIsOnlyKeptUpToDateMayChange) {
  Context context;
  Tensor x = normal({4}, "x").set_requires_grad(), running = zeros({4});
  auto function = [=](const Tensor& h) {
    if (!recomputing()) {
      NoGrad no_grad;
      copy_into(running, affine(running, 0.9, 0) + h.detach());
    }
    return tanh(h);
  };
  Tensor loss = sum(checkpoint(function, x) + checkpoint(function, x));
  loss.backward();
}

TEST(Recompute, AnInPlaceChangeInsideIsStillRefused) {
  Context context;
  Tensor x = normal({4}, "x").set_requires_grad();
  auto function = [](const Tensor& t) {
    Tensor h = tanh(t);  // saves its result
    copy_into(h.detach(), t.detach());
    return exp(h);
  };
  Tensor loss = sum(checkpoint(function, x));
  EXPECT_REFUSED(loss.backward(), "tanh", "changed in place");
}

// Whichever thread runs forward, and however many tensors it has made.
TEST(Recompute, AnInPlaceChangeOfWhatAnotherThreadHasMadeIsRefused) {
  Context context;
  Tensor factor = tensor({5.}), x = tensor({0.2}).set_requires_grad();
  std::thread([&] {
    ContextScope scope(context);
    Tensor loss = sum(checkpoint([&](const Tensor& t) { return exp(t * factor); }, x));
    fill_(factor, 7);
    EXPECT_REFUSED(loss.backward(), "changed in place");
  }).join();
}

// --- other threads of the rank --------------------------------------------------------------------------------------

TEST(Recompute, ARunForBackwardLeavesSeedAndProgressOfOtherThreadsAsTheyAre) {
  Context context({.seed = 3});
  auto in_another_thread = [&](const auto& work) {
    std::thread([&] {
      ContextScope scope(context);
      work();
    }).join();
  };
  Tensor x = normal({4}, "x").set_requires_grad();
  progress() = {.step = 1, .first_sample = 0};
  Tensor loss = sum(checkpoint(
      [&](const Tensor& t) {
        Tensor dropped = dropout(exp(t), 0.5, "mask");
        EXPECT_EQ(progress().step, 1u);
        EXPECT_EQ(context.seed(), 3u);
        if (recomputing()) {
          in_another_thread([&] {
            EXPECT_EQ(progress().step, 2u);
            EXPECT_EQ(context.seed(), 4u);
            progress().draws.next(7);
          });
          manual_seed(5);
          EXPECT_EQ(context.seed(), 5u);
        }
        return dropped;
      },
      x));
  progress() = {.step = 2, .first_sample = 0};
  manual_seed(4);
  loss.backward();
  EXPECT_EQ(progress().step, 2u);
  EXPECT_EQ(context.seed(), 4u);
  EXPECT_EQ(progress().draws.counts().size(), 1u) << "what the other thread drew meanwhile counts";
}

// --- failures -------------------------------------------------------------------------------------------------------

TEST(Recompute, I33_I41_B23_AnExceptionInEitherRunLeavesNothingBehind) {
  Context context;
  Weights some;
  int fail_in = 1, run = 0;
  auto function = [&](const Tensor& x, const Tensor& w) {
    Tensor h = body(x, w);
    progress().draws.next(7);
    if (++run == fail_in) fail("this body fails");
    return body(h, w);
  };
  int64_t before = context.ledger().current();
  EXPECT_REFUSED(checkpoint(function, some.x, some.w), "this body fails");
  EXPECT_EQ(context.ledger().current(), before);
  EXPECT_EQ(Region::current(), nullptr);
  fail_in = 3;
  {
    Tensor loss = sum(checkpoint(function, some.x, some.w));
    int64_t held = context.ledger().current();
    progress().draws.next(8);
    auto draws = progress().draws.counts();
    EXPECT_REFUSED(loss.backward(), "this body fails");
    EXPECT_EQ(context.ledger().current(), held);
    EXPECT_EQ(progress().draws.counts(), draws) << "counters are as before the second run";
    EXPECT_FALSE(recomputing());
    EXPECT_EQ(Region::current(), nullptr);
  }
  EXPECT_EQ(context.ledger().current(), before);
  sum(checkpoint(function, some.x, some.w)).backward();
  Weights plain;
  sum(body(body(plain.x, plain.w), plain.w)).backward();
  EXPECT_EQ(some.gradients(), plain.gradients());
}

// --- boundary inputs in host memory --------------------------------------------------------------------------------

TEST(Recompute, I32_OffloadedInputsWaitInHostMemory) {
  Context context({.device = kAcc});
  constexpr int kRegions = 4;
  constexpr int64_t kBytes = 32 * 8 * 4;
  Ledger& ledger = context.ledger();
  auto run = [&](std::optional<bool> offload) {
    Tensor x = normal({32, 8}, "x").set_requires_grad(), w = normal({8, 8}, "w").set_requires_grad();
    int64_t before = activations();
    Tensor h = affine(x, 1, 0);
    for (int i = 0; i < kRegions; ++i)
      h = offload ? checkpoint({.offload_inputs = *offload}, body, std::move(h), w) : body(h, w);
    Tensor loss = sum(h);
    h = Tensor();
    if (offload) {
      EXPECT_EQ(activations() - before, 4 + (*offload ? 0 : kRegions * kBytes));
      EXPECT_EQ(ledger.current(Category::pinned_host), *offload ? kRegions * kBytes : 0);
    }
    loss.backward();
    EXPECT_EQ(ledger.current(Category::pinned_host), 0);
    return std::vector{bits(x.grad()), bits(w.grad())};
  };
  auto plain = run(std::nullopt);
  EXPECT_EQ(run(false), plain);
  EXPECT_EQ(run(true), plain);
}

TEST(Recompute, NestedRegionsMayOffload) {
  Context context({.device = kAcc});
  Weights plain, again;
  sum(body(body(plain.x, plain.w), plain.w)).backward();
  RecomputeOptions options{.offload_inputs = true};
  auto inside = [=](const Tensor& x, const Tensor& w) { return checkpoint(options, body, body(x, w), w); };
  Tensor loss = sum(checkpoint(options, inside, again.x, again.w));
  loss.backward();
  EXPECT_EQ(again.gradients(), plain.gradients());
  EXPECT_EQ(context.ledger().current(Category::pinned_host), 0);
}

}  // namespace
}  // namespace shardgrad::test
