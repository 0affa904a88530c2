// The operations of transformers' layers: against numbers worked out by hand, and against the same thing composed of
// other operations.

#include <functional>

#include <shardgrad/autograd/recompute.h>
#include <shardgrad/autograd/rope_table.h>
#include <shardgrad/core/ledger.h>

#include <tests/autograd/support.h>
#include <tests/devices.h>
#include <tests/numbers.h>

namespace shardgrad::test {
namespace {

using OfTensors = std::function<Tensor(std::span<const Tensor>)>;

/// The result and the gradients of all floating inputs, from fixed upstream gradients.
std::vector<std::vector<double>> result_and_gradients(const OfTensors& call, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.detach());
    if (is_floating(input.dtype())) leaves.back().set_requires_grad();
  }
  Tensor y = call(leaves);
  y.backward(upstream_like(y, 1));
  std::vector<std::vector<double>> all{values(y)};
  for (const Tensor& input : leaves)
    if (is_floating(input.dtype())) all.push_back(values(input.grad()));
  return all;
}

void expect_like_composed(const OfTensors& operation, const OfTensors& composed, const std::vector<Tensor>& inputs,
                          double tolerance = 1e-13) {
  auto actual = result_and_gradients(operation, inputs), expected = result_and_gradients(composed, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    expect_close(actual[i], expected[i], tolerance, i == 0 ? "result" : concat("gradient ", i - 1));
}

Tensor wide_numbers(const Shape& shape, const char* name) { return normal(shape, name, DType::f64); }

TEST(Silu, IsTheInputTimesItsSigmoid) {
  Context context;
  Tensor x = from_vector<double>({1, -2, 0}, {3}).set_requires_grad();
  Tensor y = silu(x);
  sum(y).backward();
  expect_close(values(y), {0.7310585786300049, -0.2384058440442351, 0}, 1e-15, "silu");
  expect_close(values(x.grad()), {0.9276705118714869, -0.0907842487848955, 0.5}, 1e-14, "its slope");
  expect_like_composed([](auto in) { return silu(in[0]); }, [](auto in) { return mul(in[0], sigmoid(in[0])); },
                       {wide_numbers({5, 33}, "x") * 4.0});
}

TEST(Silu, FarOutIsALineOrNothing) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Tensor x = from_vector<double>({1e30, 1000, -1000, -1e30}, {4}).to(dtype).detach().set_requires_grad();
    Tensor y = silu(x);
    sum(y).backward();
    std::vector<double> line = values(x.detach());
    EXPECT_EQ(values(y), (std::vector<double>{line[0], line[1], 0, 0})) << dtype;
    EXPECT_EQ(values(x.grad()), (std::vector<double>{1, 1, 0, 0})) << dtype;
  }
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  Context context;
  Tensor x = from_vector<double>({3, 4, 0, 0}, {2, 2}).set_requires_grad();
  Tensor weight = from_vector<double>({2, 10}, {2}).set_requires_grad();
  Tensor y = rms_norm(x, weight, 12.5);  // 1 / √(12.5 + 12.5) is 1/5
  expect_close(values(y), {1.2, 8, 0, 0}, 1e-15, "rms_norm");
  sum(y).backward();
  // g = (2, 10), x̂ = (3, 4) / 5, mean(g · x̂) = 4.6; of the row of zeros 1 / √12.5 · g.
  double other = 1 / std::sqrt(12.5);
  expect_close(values(x.grad()), {(2 - 0.6 * 4.6) / 5, (10 - 0.8 * 4.6) / 5, 2 * other, 10 * other}, 1e-14, "dx");
  expect_close(values(weight.grad()), {0.6, 0.8}, 1e-15, "dweight");
}

TEST(RmsNorm, IsWhatOtherOperationsCompose) {
  Context context;
  auto composed = [](std::span<const Tensor> in) {
    Tensor square = mean(mul(in[0], in[0]), -1, true);
    return mul(mul(in[0], pow(square + 1e-3, -0.5)), in[1]);
  };
  expect_like_composed([](auto in) { return rms_norm(in[0], in[1], 1e-3); }, composed,
                       {wide_numbers({3, 4, 37}, "x"), wide_numbers({37}, "weight")}, 1e-12);
}

TEST(Swiglu, MultipliesTheSecondHalfByTheSiluOfTheFirst) {
  Context context;
  Tensor x = from_vector<double>({1, 0, 3, 5, -2, 1, 10, 1}, {2, 4}).set_requires_grad();
  Tensor y = swiglu(x);
  EXPECT_EQ(y.shape(), (Shape{2, 2}));
  double one = 0.7310585786300049, minus_two = -0.2384058440442351;  // silu
  expect_close(values(y), {3 * one, 0, 10 * minus_two, one}, 1e-15, "swiglu");
  sum(y).backward();
  double slope_one = 0.9276705118714869, slope_minus_two = -0.0907842487848955;
  expect_close(values(x.grad()), {3 * slope_one, 2.5, one, 0, 10 * slope_minus_two, slope_one, minus_two, one}, 1e-14,
               "its gradient");
}

TEST(Swiglu, IsWhatOtherOperationsCompose) {
  Context context;
  auto composed = [](std::span<const Tensor> in) {
    int64_t half = in[0].size(-1) / 2;
    return mul(silu(slice(in[0], -1, 0, half)), slice(in[0], -1, half, 2 * half));
  };
  expect_like_composed([](auto in) { return swiglu(in[0]); }, composed, {wide_numbers({3, 5, 74}, "x")});
}

TEST(RopeTable, HasCosinesAndSinesOfPositionTimesFrequency) {
  Context context;
  Tensor table = rope_table(4, 4, {}, DType::f64);  // frequencies 1 and 1/100
  EXPECT_EQ(table.shape(), (Shape{4, 4}));
  std::vector<double> first = values(table.alias_rows(0, 1)), last = values(table.alias_rows(3, 4));
  EXPECT_EQ(first, (std::vector<double>{1, 1, 0, 0}));
  expect_close(last, {-0.9899924966004454, 0.9995500337489875, 0.1411200080598672, 0.02999550020249566}, 1e-15, "row");
  Tensor single = rope_table(4, 4);
  EXPECT_EQ(single.dtype(), DType::f32);
  EXPECT_EQ(bits(single), bits(table.to(DType::f32))) << "rounded once";
  EXPECT_EQ(rope_table(4, 4, {}, kMeta).shape(), (Shape{4, 4}));
  EXPECT_REFUSED(rope_table(4, 5), "rope_table", "head_dim 5");
  EXPECT_REFUSED(rope_table(4, 4, {}, DType::bf16), "rope_table", "bf16");
  EXPECT_REFUSED(rope_table(4, 4, {.scaling = Llama3Scaling{.high_freq_factor = 1}}), "rope_table",
                 "high_freq_factor 1");
}

// The four frequencies are one that stays, a second one, one between and a slow one, which is divided by 8.
TEST(RopeTable, ScalesSlowRotationsAsLlama3Does) {
  Context context;
  Tensor table = rope_table(101, 8, {.theta = 500000, .scaling = Llama3Scaling{}}, DType::f64);
  std::vector<double> row = values(table.alias_rows(100, 101));
  expect_close(row,
               {0.8623188722876839, -0.8144530275275864, 0.998622998674658, 0.9999997790291391, -0.5063656411097588,
                -0.5802294942099622, 0.052460523425087294, 0.0006647869381519385},
               1e-12, "row 100");
}

TEST(Rope, RotatesQueriesAndKeysAndLeavesValues) {
  Context context;
  Tensor table = from_vector<double>({1, 0, 0, 1, -1, 0}, {3, 2});  // by 0, 90 and 180 degrees
  Tensor qkv = from_vector<double>({1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, {1, 3, 6});
  Tensor y = rope(qkv, table, 1, 1);
  EXPECT_EQ(values(y), (std::vector<double>{1, 2, 3, 4, 5, 6, -2, 1, -4, 3, 5, 6, -1, -2, -3, -4, 5, 6}));
}

TEST(Rope, PositionsCountFromStartsAndFromTheFirstPosition) {
  Context context;
  Tensor table = rope_table(9, 4, {}, DType::f64), qkv = wide_numbers({2, 4, 16}, "qkv");
  Tensor starts = from_vector<int64_t>({0, 2}, {2});
  Tensor padded = rope(qkv, table, 2, 1, starts), plain = rope(qkv, table, 2, 1);
  auto sample = [](const Tensor& t, int64_t b, int64_t begin, int64_t end) {
    return values(t.alias_rows(b, b + 1).alias({t.size(1), t.size(2)}).alias_rows(begin, end));
  };
  EXPECT_EQ(sample(padded, 0, 0, 4), sample(plain, 0, 0, 4));
  EXPECT_EQ(sample(padded, 1, 0, 2), sample(qkv, 1, 0, 2)) << "before the start the angle is 0";
  Tensor tail = slice(slice(qkv, 0, 1, 2), 1, 2, 4);  // the same rows where they are the first ones
  EXPECT_EQ(sample(padded, 1, 2, 4), values(rope(tail, table, 2, 1)));
  EXPECT_EQ(sample(plain, 1, 2, 4), values(rope(tail, table, 2, 1, Tensor(), 2)));
}

// With angles 0 for the values, and pairs that lie d / 2 apart.
TEST(Rope, IsWhatOtherOperationsCompose) {
  Context context;
  constexpr int64_t heads = 3, kv_heads = 2, d = 6, rotated = (heads + kv_heads) * d, time = 5;
  Tensor table = rope_table(time, d, {.theta = 50}, DType::f64);
  auto composed = [&](std::span<const Tensor> in) {
    Tensor x = reshape(slice(in[0], 2, 0, rotated), {2, time, heads + kv_heads, d});
    Tensor angles = reshape(table, {1, time, 1, d}), half = slice(x, 3, 0, d / 2), other = slice(x, 3, d / 2, d);
    Tensor cosine = slice(angles, 3, 0, d / 2), sine = slice(angles, 3, d / 2, d);
    const Tensor halves[] = {half * cosine - other * sine, other * cosine + half * sine};
    const Tensor parts[] = {reshape(cat(halves, 3), {2, time, rotated}), slice(in[0], 2, rotated, in[0].size(2))};
    return cat(parts, 2);
  };
  expect_like_composed([&](auto in) { return rope(in[0], table, heads, kv_heads); }, composed,
                       {wide_numbers({2, time, (heads + 2 * kv_heads) * d}, "qkv")});
}

TEST(Rope, BackwardTakesTheMemoryOfAGradientThatNobodyHolds) {
  Context context;
  Tensor table = rope_table(8, 4, {}, DType::f64);
  auto pass = [&](bool held) {
    Tensor x = wide_numbers({1, 1, 16}, "x").set_requires_grad();
    Tensor y = rope(expand(x, {2, 8, 16}), table, 2, 1), upstream = upstream_like(y, 3);
    Tensor root = held ? y : affine(y, 2, 0);  // whose gradient is backward's own
    context.ledger().reset_peaks();
    root.backward(held ? upstream : upstream * 0.5);
    return std::pair(bits(x.grad()), context.ledger().peak(Category::activation_gradient));
  };
  auto [expected, one_gradient] = pass(true);
  auto [gradient, peak] = pass(false);
  EXPECT_EQ(gradient, expected);
  EXPECT_EQ(peak, one_gradient) << "that of rope's result, which becomes that of its input";
}

// --- cross_entropy -------------------------------------------------------------------------------------------------

// Whatever the padding holds, and to the bit.
TEST(CrossEntropy, ColumnsBeyondTheClassesDoNotExist) {
  Context context;
  std::vector<Device> devices = kernel_devices();
  devices.insert(devices.begin(), {kCpu, kAcc});
  Tensor few = normal({6, 37}, "few"), labels = from_vector<int64_t>({0, 36, 5, -100, 7, 7}, {6});
  const Tensor parts[] = {few, full({6, 3}, NAN)};
  Tensor padded = cat(parts, 1);
  for (Device device : devices)
    for (DType dtype : {DType::f32, DType::bf16})
      for (double count : {0.0, 8.0}) {
        Tensor x = few.to(dtype).to(device).detach().set_requires_grad();
        Tensor wide = padded.to(dtype).to(device).detach().set_requires_grad();
        Tensor loss = cross_entropy(x, labels.to(device), count);
        Tensor same = cross_entropy(wide, labels.to(device), count, -100, 37);
        EXPECT_EQ(bits(same), bits(loss)) << dtype << " on " << device;
        loss.backward();
        same.backward();
        Tensor gradient = wide.grad().to(kCpu);
        EXPECT_EQ(bits(slice(gradient, 1, 0, 37)), bits(x.grad())) << dtype << " on " << device;
        EXPECT_EQ(values(slice(gradient, 1, 37, 40)), std::vector<double>(18, 0)) << dtype << " on " << device;
      }
}

TEST(CrossEntropy, CountsTheFirstClassesOnly) {
  Context context;
  Tensor logits = zeros({2, 10}).set_requires_grad();
  Tensor loss = cross_entropy(logits, from_vector<int64_t>({1, 3}, {2}), 0, -100, 4);
  EXPECT_NEAR(loss.item(), std::log(4), 1e-6);
  loss.backward();
  std::vector<double> gradient = values(logits.grad());
  expect_close({gradient.begin(), gradient.begin() + 5}, {0.125, -0.375, 0.125, 0.125, 0}, 1e-6, "gradient");
}

TEST(CrossEntropy, ReadsLogitsOf16BitsAsTheyAre) {
  Context context;
  Tensor logits = normal({64, 500}, "x").to(DType::bf16).detach().set_requires_grad(), labels = zeros({64}, DType::i64);
  int64_t before = context.ledger().current();
  context.ledger().reset_peaks();
  Tensor loss = cross_entropy(logits, labels, 64);
  EXPECT_LT(context.ledger().peak() - before, int64_t(logits.bytes()) / 10) << "no copy in f32";
  EXPECT_EQ(loss.dtype(), DType::f32);
  loss.backward();
  EXPECT_EQ(logits.grad().dtype(), DType::bf16);
  Tensor single = logits.detach().to(DType::f32).set_requires_grad(), same = cross_entropy(single, labels, 64);
  EXPECT_EQ(bits(same), bits(loss));
  same.backward();
  EXPECT_EQ(bits(single.grad().to(DType::bf16)), bits(logits.grad()));
}

struct Projection {
  Tensor x = normal({1, 40}, "x").set_requires_grad(), labels = full({64}, 3, DType::i64);
  Tensor logits() const { return expand(x, {64, 40}); }
  Tensor loss(const Tensor& y) const { return cross_entropy(y, labels, 64, -100, 39); }
};
constexpr int64_t kLogitBytes = 64 * 40 * 4;

TEST(CrossEntropy, BackwardTakesTheMemoryOfLogitsThatNobodyHolds) {
  Context context;
  auto pass = [&](bool held) {
    Projection p;
    Tensor y = p.logits(), loss = p.loss(y);
    std::vector<double> before = values(y.detach());
    if (!held) y = Tensor();
    context.ledger().reset_peaks();
    loss.backward();
    if (held) {
      EXPECT_EQ(values(y.detach()), before) << "they are the holder's";
    }
    return std::pair(bits(p.x.grad()), context.ledger().peak(Category::activation_gradient));
  };
  auto [expected, with_copy] = pass(true);
  auto [gradient, in_place] = pass(false);
  EXPECT_EQ(gradient, expected);
  EXPECT_EQ(with_copy - in_place, kLogitBytes);
}

TEST(CrossEntropy, LogitsThatAnotherOperationOrPassReadsAreLeftAlone) {
  Context context;
  Projection once, twice, shared;
  once.loss(once.logits()).backward();
  Tensor loss = twice.loss(twice.logits());
  loss.backward(Tensor(), true);
  loss.backward();
  expect_close(values(twice.x.grad()), values(once.x.grad() * 2.0), 1e-6, "two passes through one graph");
  Tensor y = shared.logits(), square = sum(mul(y, y)) * 0.5;  // older than the loss, so its backward comes later
  Tensor both = square + shared.loss(y);
  y = Tensor();  // mul keeps it
  both.backward();
  expect_close(values(shared.x.grad()), values(once.x.grad() + shared.x.detach() * 64.0), 1e-6, "two readers");
}

TEST(CrossEntropy, InARegionThatRunsAgainItGivesTheSameGradient) {
  Context context;
  Projection plain, again;
  plain.loss(plain.logits()).backward();
  checkpoint([&](const Tensor& x) { return again.loss(expand(x, {64, 40})); }, again.x).backward();
  EXPECT_EQ(bits(again.x.grad()), bits(plain.x.grad()));
}

}  // namespace
}  // namespace shardgrad::test
