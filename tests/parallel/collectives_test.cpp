// Collectives within autograd, against one rank that computes with all the ranks' tensors at once.

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/nn/init.h>
#include <shardgrad/parallel/collectives.h>

namespace shardgrad::parallel {
namespace {

using dist::ProcessGroup;

constexpr int kRanks = 3;

Tensor numbers(const Shape& shape, const std::string& name) {
  Tensor x = empty(shape, {DType::f64, context().default_device()});
  nn::init::normal().fill(x, 0, shape, name);
  return x;
}

/// Rank r's tensor, and the weights that make rank r's loss out of its result.
Tensor input(int r, const Shape& shape) { return numbers(shape, concat("input ", r)).set_requires_grad(); }
Tensor weights(int r, const Shape& shape) { return numbers(shape, concat("weights ", r)); }

/// The same loss, computed by one rank: `reference` makes every rank's result out of every rank's tensor.
using Results = std::vector<Tensor>;
using Reference = std::function<Results(const Results&)>;

void expect_close(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_TRUE(a.defined() && b.defined()) << what;
  EXPECT_EQ(a.shape(), b.shape()) << what;
  std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-12) << what << ", element " << i;
}

/// With `Sums` every rank's loss counts; what is replicated has one loss, the same on every rank, which counts once.
enum class Loss { of_every_rank, replicated };

void compare(const Shape& shape, const std::function<Tensor(const Tensor&, ProcessGroup&)>& op,
             const Reference& reference, Loss loss = Loss::of_every_rank, Device device = kCpu) {
  dist::run_ranks(kRanks,
                  [&](ProcessGroup& world) {
                    int rank = world.rank();
                    Results inputs;
                    for (int r = 0; r < kRanks; ++r) inputs.push_back(input(r, shape));
                    Results expected = reference(inputs);
                    Tensor total;
                    for (int r = 0; r < kRanks; ++r) {
                      if (loss == Loss::replicated && r > 0) break;
                      Tensor part = sum(expected[size_t(r)] * weights(r, expected[size_t(r)].shape()));
                      total = total.defined() ? total + part : part;
                    }
                    total.backward();

                    Tensor x = input(rank, shape), y = op(x, world);
                    expect_close(y, expected[size_t(rank)], concat("result of rank ", rank));
                    sum(y * weights(loss == Loss::replicated ? 0 : rank, y.shape())).backward();
                    expect_close(x.grad(), inputs[size_t(rank)].grad(), concat("gradient of rank ", rank));
                  },
                  {.device = device, .seed = 7});
}

Tensor total_of(const Results& x) {
  Tensor total = x[0];
  for (size_t r = 1; r < x.size(); ++r) total = total + x[r];
  return total;
}
Results everywhere(const Tensor& x) { return Results(kRanks, x); }
Results parts_of(const Tensor& x, int dim) {
  Results parts;
  int64_t extent = x.size(dim) / kRanks;
  for (int r = 0; r < kRanks; ++r) parts.push_back(slice(x, dim, extent * r, extent * (r + 1)));
  return parts;
}

struct OnDevice : testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Collectives, OnDevice, testing::Values(kCpu, kAcc),
                         [](const auto& info) { return std::string(name_of(info.param.kind)); });

TEST_P(OnDevice, AllGatherJoinsAlongEachDimension) {
  for (int dim : {0, 1, 2, -1})
    compare(
        {2, 3, 4}, [=](const Tensor& x, ProcessGroup& g) { return all_gather(x, g, dim); },
        [=](const Results& x) { return everywhere(cat(x, dim)); }, Loss::of_every_rank, GetParam());
}

TEST_P(OnDevice, ReduceScatterGivesEachItsPartOfTheSum) {
  for (int dim : {0, 1, 2, -1})
    compare(
        {3, 6, 9}, [=](const Tensor& x, ProcessGroup& g) { return reduce_scatter(x, g, dim); },
        [=](const Results& x) { return parts_of(total_of(x), dim < 0 ? 2 : dim); }, Loss::of_every_rank, GetParam());
}

TEST_P(OnDevice, AllReduceSumsAndSumsItsGradients) {
  compare(
      {2, 3}, [](const Tensor& x, ProcessGroup& g) { return all_reduce(x, g); },
      [](const Results& x) { return everywhere(total_of(x)); }, Loss::of_every_rank, GetParam());
}

TEST_P(OnDevice, AllToAllSplitsAlongOneDimensionAndJoinsAlongAnother) {
  for (auto [split_dim, cat_dim] :
       {std::pair(0, 0), std::pair(0, 1), std::pair(1, 0), std::pair(1, 2), std::pair(-1, 1)})
    compare(
        {3, 6, 9},
        [split_dim = split_dim, cat_dim = cat_dim](const Tensor& x, ProcessGroup& g) {
          return all_to_all(x, g, split_dim, cat_dim);
        },
        [split_dim = split_dim, cat_dim = cat_dim](const Results& x) {
          Results out;
          for (size_t to = 0; to < kRanks; ++to) {
            Results pieces;
            for (const Tensor& from : x) pieces.push_back(parts_of(from, split_dim < 0 ? 2 : split_dim)[to]);
            out.push_back(cat(pieces, cat_dim));
          }
          return out;
        },
        Loss::of_every_rank, GetParam());
}

TEST_P(OnDevice, BroadcastBringsTheGradientBackToTheRootAlone) {
  for (int root : {0, 2})
    compare(
        {4}, [=](const Tensor& x, ProcessGroup& g) { return broadcast(x, g, root); },
        [=](const Results& x) {
          Results out;
          for (int r = 0; r < kRanks; ++r) out.push_back(x[size_t(root)] + total_of(x) * 0);  // all get a gradient
          return out;
        },
        Loss::of_every_rank, GetParam());
}

TEST_P(OnDevice, WhatComesAfterReduceFromGroupIsReplicated) {
  compare(
      {2, 3}, [](const Tensor& x, ProcessGroup& g) { return reduce_from_group(x, g); },
      [](const Results& x) { return everywhere(total_of(x)); }, Loss::replicated, GetParam());
}

TEST_P(OnDevice, WhatComesAfterGatherFromGroupIsReplicated) {
  for (int dim : {0, 1})
    compare(
        {2, 3}, [=](const Tensor& x, ProcessGroup& g) { return gather_from_group(x, g, dim); },
        [=](const Results& x) { return everywhere(cat(x, dim)); }, Loss::replicated, GetParam());
}

// f and its like take a replicated tensor: every rank has the same x, and its gradient is that of all ranks' losses.
void compare_replicated(const std::function<Tensor(const Tensor&, ProcessGroup&)>& op,
                        const std::function<Tensor(const Tensor&, int)>& reference, Device device) {
  dist::run_ranks(kRanks,
                  [&](ProcessGroup& world) {
                    Tensor whole = input(0, {6, 3}), total;
                    for (int r = 0; r < kRanks; ++r) {
                      Tensor y = reference(whole, r), part = sum(y * weights(r, y.shape()));
                      total = r ? total + part : part;
                    }
                    total.backward();
                    Tensor x = input(0, {6, 3}), y = op(x, world);
                    expect_close(y, reference(whole, world.rank()), "result");
                    sum(y * weights(world.rank(), y.shape())).backward();
                    expect_close(x.grad(), whole.grad(), "gradient");
                  },
                  {.device = device, .seed = 7});
}

TEST_P(OnDevice, CopyToGroupSumsTheGradientsOfWhatItFeeds) {
  compare_replicated([](const Tensor& x, ProcessGroup& g) { return copy_to_group(x, g); },
                     [](const Tensor& x, int) { return x; }, GetParam());
}

TEST_P(OnDevice, ScatterToGroupJoinsTheGradientsOfTheParts) {
  for (int dim : {0, 1})
    compare_replicated([=](const Tensor& x, ProcessGroup& g) { return scatter_to_group(x, g, dim); },
                       [=](const Tensor& x, int r) { return parts_of(x, dim)[size_t(r)]; }, GetParam());
}

TEST_P(OnDevice, MaxOverTakesTheLargestAtEachPlaceAndKeepsNaN) {
  dist::run_ranks(
      kRanks,
      [](ProcessGroup& world) {
        float r = float(world.rank()), nan = std::numeric_limits<float>::quiet_NaN();
        Tensor x = from_vector<float>({r, -r, world.rank() == 1 ? nan : 0, -5}, {2, 2}).to(context().default_device());
        Tensor y = max_over(x.set_requires_grad(), world);
        EXPECT_FALSE(y.requires_grad());
        EXPECT_EQ(y.shape(), Shape({2, 2}));
        std::vector<float> values = y.to_vector<float>();
        EXPECT_EQ(values[0], 2);
        EXPECT_EQ(values[1], 0);
        EXPECT_TRUE(std::isnan(values[2]));
        EXPECT_EQ(values[3], -5);
      },
      {.device = GetParam()});
}

TEST(ParallelCollectives, TensorsWithoutElementsPassThrough) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    EXPECT_EQ(all_gather(zeros({0, 3}), world, 1).shape(), Shape({0, 6}));
    EXPECT_EQ(reduce_scatter(zeros({2, 0}), world).shape(), Shape({1, 0}));
    EXPECT_EQ(all_to_all(zeros({4, 0}), world, 0, 1).shape(), Shape({2, 0}));
  });
}

std::string refusal(const std::function<void(ProcessGroup&)>& op) {
  try {
    dist::run_ranks(2, op);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// In backward one rank would send its gradient, and wait for the other in vain.
TEST(ParallelCollectives, RanksOfWhichOneRecordsAreRefusedInForward) {
  using Op = Tensor (*)(ProcessGroup&, const Tensor&);
  for (Op op : {Op([](ProcessGroup&g, const Tensor&x) { return broadcast(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return all_reduce(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return all_gather(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return all_to_all(x, g); })}) {
    std::string said = refusal([&](ProcessGroup& g) { op(g, zeros({4}).set_requires_grad(g.rank() == 0)); });
    EXPECT_NE(said.find(" in forward ("), std::string::npos) << said;
    EXPECT_NE(said.find(", recorded)"), std::string::npos) << said;
    EXPECT_NE(said.find(", not recorded)"), std::string::npos) << said;
    EXPECT_EQ(refusal([&](ProcessGroup& g) {
                NoGrad no_grad;
                op(g, zeros({4}).set_requires_grad(g.rank() == 0));
              }),
              "");
  }
}

// They send nothing in forward: the next collective tells.
TEST(ParallelCollectives, CopiesAndPartsThatOneRankRecordsAreRefusedInForwardToo) {
  using Op = Tensor (*)(ProcessGroup&, const Tensor&);
  for (auto [word, op] :
       {std::pair("copy [4]", Op([](ProcessGroup&g, const Tensor&x) { return copy_to_group(x, g); })),
        std::pair("scatter [4] along 0", Op([](ProcessGroup&g, const Tensor&x) { return scatter_to_group(x, g); }))}) {
    auto product = [op = op](ProcessGroup& g, bool records) {
      Tensor x = op(g, zeros({4}).set_requires_grad(records)), weight = ones({x.size(0)}).set_requires_grad();
      sum(reduce_from_group(x * weight, g)).backward();
    };
    std::string said = refusal([&](ProcessGroup& g) { product(g, g.rank() == 0); });
    EXPECT_NE(said.find(" in forward ("), std::string::npos) << said;
    EXPECT_NE(said.find(concat(", recorded, ", word, " recorded)")), std::string::npos) << said;
    EXPECT_NE(said.find(concat(", recorded, ", word, " not recorded)")), std::string::npos) << said;
    for (bool records : {true, false}) EXPECT_EQ(refusal([&](ProcessGroup& g) { product(g, records); }), "");
  }
}

// They move alike in forward, and part in backward: one adds the gradients up, the other does not.
TEST(ParallelCollectives, SumsAndReplicatedResultsOfOneShapeAreToldApartInForward) {
  using Op = Tensor (*)(ProcessGroup&, const Tensor&);
  Op sum_of = [](ProcessGroup& g, const Tensor& x) { return all_reduce(x, g); };
  Op reduced = [](ProcessGroup& g, const Tensor& x) { return reduce_from_group(x, g); };
  Op all = [](ProcessGroup& g, const Tensor& x) { return all_gather(x, g); };
  Op joined = [](ProcessGroup& g, const Tensor& x) { return gather_from_group(x, g); };
  for (auto [here, there] : {std::pair(sum_of, reduced), std::pair(all, joined)})
    for (bool records : {true, false}) {
      std::string said = refusal([&, here = here, there = there](ProcessGroup& g) {
        (g.rank() == 0 ? here : there)(g, zeros({4}).set_requires_grad(records));
      });
      EXPECT_NE(said.find(" in forward ("), std::string::npos) << said;
      EXPECT_NE(said.find(", replicated [4]"), std::string::npos) << said;
    }
}

TEST(ParallelCollectives, BackwardAfterTheGroupIsGoneIsRefused) {
  dist::run_ranks(2, [](ProcessGroup& world) {
    using Op = Tensor (*)(ProcessGroup&, const Tensor&);
    for (Op op : {Op([](ProcessGroup&g, const Tensor&x) { return all_reduce(x, g); }),
                  Op([](ProcessGroup&g, const Tensor&x) { return broadcast(x, g); }),
                  Op([](ProcessGroup&g, const Tensor&x) { return copy_to_group(x, g); })}) {
      auto group = world.split(0, world.rank());
      Tensor loss = sum(op(*group, ones({4}).set_requires_grad()));
      group.reset();
      try {
        loss.backward();
        ADD_FAILURE() << "went backward without its group";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("its process group is gone"), std::string::npos) << error.what();
      }
    }
  });
}

// They move as many elements, in another order.
TEST(ParallelCollectives, RanksWhoseShapesOrDimensionsDifferAreRefusedAndToldBoth) {
  const Shape tall{4, 2}, wide{2, 4};
  struct Difference {
    std::function<void(ProcessGroup&, bool first)> op;
    const char *one, *other;
  };
  for (const Difference& d : std::vector<Difference>{
           {[&](auto&g, bool f) { all_gather(zeros(f ? tall : wide), g); }, "[4, 2] along 0", "[2, 4] along 0"},
           {[&](auto&g, bool f) { all_gather(zeros(tall), g, f ? 0 : 1); }, "[4, 2] along 0", "[4, 2] along 1"},
           {[&](auto&g, bool f) { reduce_scatter(zeros(f ? tall : wide), g); }, "[4, 2] along 0", "[2, 4] along 0"},
           {[&](auto&g, bool f) { reduce_scatter(zeros(tall), g, f ? 0 : 1); }, "[4, 2] along 0", "[4, 2] along 1"},
           {[&](auto&g, bool f) { all_reduce(zeros(f ? tall : wide), g); }, "[4, 2], not", "[2, 4], not"},
           {[&](auto&g, bool f) { all_to_all(zeros(tall), g, f ? 0 : 1, 0); }, "split along 0", "split along 1"},
           {[&](auto&g, bool f) { all_to_all(zeros(tall), g, 0, f ? 0 : 1); }, "joined along 0", "joined along 1"},
           {[&](auto&g, bool f) { broadcast(zeros(f ? tall : wide), g); }, "[4, 2], not", "[2, 4], not"},
           {[&](auto&g, bool f) { max_over(zeros(f ? tall : wide), g); }, "[4, 2], not", "[2, 4], not"},
           {[&](auto&g, bool f) { reduce_from_group(zeros(f ? tall : wide), g); }, "[4, 2], not", "[2, 4], not"},
           {[&](auto&g, bool f) { gather_from_group(zeros(tall), g, f ? 0 : 1); }, "along 0", "along 1"}}) {
    std::string said = refusal([&](ProcessGroup& g) { d.op(g, g.rank() == 0); });
    for (const char* each : {"rank 0", d.one, "rank 1", d.other}) EXPECT_NE(said.find(each), std::string::npos) << said;
    EXPECT_EQ(refusal([&](ProcessGroup& g) { d.op(g, true), d.op(g, false); }), "");
  }
}

// Both ranks have made both, and go backward through another one each.
TEST(ParallelCollectives, RanksThatGoBackwardThroughOtherShapesAreRefused) {
  using Op = Tensor (*)(ProcessGroup&, const Tensor&);
  for (Op op : {Op([](ProcessGroup&g, const Tensor&x) { return all_gather(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return reduce_scatter(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return all_reduce(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return all_to_all(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return broadcast(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return copy_to_group(x, g); }),
                Op([](ProcessGroup&g, const Tensor&x) { return scatter_to_group(x, g); })}) {
    std::string said = refusal([&](ProcessGroup& g) {
      Tensor tall = op(g, zeros({4, 2}).set_requires_grad()), wide = op(g, zeros({2, 4}).set_requires_grad());
      sum(g.rank() == 0 ? tall : wide).backward();
    });
    EXPECT_NE(said.find(" in backward ("), std::string::npos) << said;
    EXPECT_NE(said.find(", [4, 2]"), std::string::npos) << said;
    EXPECT_NE(said.find(", [2, 4]"), std::string::npos) << said;
  }
}

TEST(ParallelCollectives, ManyNotesEndInOneNumber) {
  auto three_of = [](ProcessGroup& g, bool records) {
    Tensor x = zeros({4}).set_requires_grad(records), y = zeros({4}).set_requires_grad();
    reduce_from_group(copy_to_group(y, g) + copy_to_group(y, g) + copy_to_group(x, g), g);
  };
  EXPECT_NE(refusal([&](ProcessGroup& g) { three_of(g, g.rank() == 0); }).find("... #"), std::string::npos);
  EXPECT_EQ(refusal([&](ProcessGroup& g) { three_of(g, true); }), "");
}

TEST(ParallelCollectives, AnExtentThatDoesNotDivideIsRefusedWithShapeAndRanks) {
  EXPECT_NE(refusal([](ProcessGroup& g) {
              reduce_scatter(zeros({3, 2}), g);
            }).find("reduce_scatter: dimension 0 of shape [3, 2] does not divide into 2 equal parts"),
            std::string::npos);
  EXPECT_NE(refusal([](ProcessGroup& g) {
              all_gather(zeros({3, 2}), g, 2);
            }).find("there is no dimension 2 in shape [3, 2]"),
            std::string::npos);
  EXPECT_NE(refusal([](ProcessGroup& g) { all_gather(zeros({}), g); }).find("at least one dimension"),
            std::string::npos);
}

}  // namespace
}  // namespace shardgrad::parallel
