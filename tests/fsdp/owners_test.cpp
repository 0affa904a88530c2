// Which unit owns which parameter, which rank which elements.

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include <shardgrad/dist/watch/control_page.h>
#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// Parameters of 10, 20, … elements in two levels:  first (10 + 20),  second (30, inner (40 + 50)),  alone 60,  own 5.
struct Levels : nn::Module {
  struct Leaf : nn::Module {
    Tensor w;
    explicit Leaf(int64_t numel) : w(param("w", {numel}, nn::init::ones())) {}
    Tensor forward(const Tensor& x) { return x * sum(w); }
  };
  struct Pair : nn::Module {
    nn::Child<Leaf> a, b;
    Pair(int64_t first, int64_t second) : a(child<Leaf>("a", first)), b(child<Leaf>("b", second)) {}
    Tensor forward(const Tensor& x) { return b(a(x)); }
  };
  struct Outer : nn::Module {
    Tensor w = param("w", {30}, nn::init::ones());
    nn::Child<Pair> inner = child<Pair>("inner", 40, 50);
    Tensor forward(const Tensor& x) { return inner(x * sum(w)); }
  };
  nn::Child<Pair> first = child<Pair>("first", 10, 20);
  nn::Child<Outer> second = child<Outer>("second");
  nn::Child<Leaf> alone = child<Leaf>("alone", 60);
  Tensor own = param("own", {5}, nn::init::ones());
  Tensor forward(const Tensor& x) { return alone(second(first(x))) * sum(own); }
};

using Units = std::vector<std::pair<std::string, int64_t>>;

/// Names and sizes of the units, which must be the same on every rank and every time.
Units units_of(const WrapPolicy& wrap) {
  std::vector<Units> all(6);
  for (size_t run : {0, 3})
    dist::run_ranks(3, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Levels>();
      auto sharded = fully_shard(*model, group, {.wrap = wrap});
      for (const auto& unit : sharded->units())
        all[run + size_t(group.rank())].emplace_back(unit->name(), unit->numel());
    });
  for (const Units& units : all) EXPECT_EQ(units, all[0]);
  return all[0];
}

TEST(Owners, I36_ThePlanIsAFunctionOfModelAndPolicy) {
  EXPECT_EQ(units_of({}), (Units{{"root", 5}, {"first", 30}, {"second", 120}, {"alone", 60}}));
  EXPECT_EQ(units_of(wrap_by_size(1)), (Units{{"root", 5},
                                              {"first.a", 10},
                                              {"first.b", 20},
                                              {"second.inner.a", 40},
                                              {"second.inner.b", 50},
                                              {"second", 30},
                                              {"alone", 60}}));
  EXPECT_EQ(units_of(wrap_by_size(41)), (Units{{"root", 35}, {"second.inner.b", 50}, {"second", 70}, {"alone", 60}}));
  EXPECT_EQ(units_of(wrap_by_size(1000)), (Units{{"root", 215}}));
  EXPECT_EQ(units_of(wrap_by_name({"*.inner", "alone"})), (Units{{"root", 65}, {"second.inner", 90}, {"alone", 60}}));
}

TEST(Owners, I36_B28_OfParentAndChildTheChildTakesItsParametersFirst) {
  EXPECT_EQ(units_of(wrap_by_name({"second", "second.inner", "second.inner.?"})),
            (Units{{"root", 95}, {"second.inner.a", 40}, {"second.inner.b", 50}, {"second", 30}}));
  EXPECT_EQ(units_of(wrap_by_type({"Outer", "Pair"})),
            (Units{{"root", 65}, {"first", 30}, {"second.inner", 90}, {"second", 30}}));
}

TEST(Owners, I36_B33_APolicyThatChoosesNothingIsRefusedNamingWhatIsWrong) {
  auto refusal = [](const WrapPolicy& wrap) { return message_of([&] { units_of(wrap); }); };
  std::string what = refusal(wrap_by_name({"first", "blocks.*", "Alone"}));
  EXPECT_TRUE(contains(what, "'blocks.*', 'Alone'") && !contains(what, "'first'")) << what;
  EXPECT_TRUE(contains(what, "; there are first.a, first.b, first, ")) << what;
  what = refusal(wrap_by_type({"Leaf", "Block"}));
  EXPECT_TRUE(contains(what, "wrap_by_type: no module fits 'Block'; there are Leaf, ")) << what;
}

template <class Model> void expect_views() {
  std::map<std::string, Shape> shapes;
  int64_t numel = 0;
  {
    Context context;
    auto model = nn::make<Model>();
    for (const NamedParameter& p : model->named_parameters())
      shapes[p.name] = p.tensor.shape(), numel += p.tensor.numel();
  }
  for (int world : {1, 2, 3})
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Model>();
      auto sharded = fully_shard(*model, group);
      EXPECT_EQ(sharded->index().size(), shapes.size());
      int64_t found = 0;
      for (const NamedParameter& p : model->named_parameters()) {
        ASSERT_TRUE(shapes.contains(p.name)) << p.name;
        EXPECT_EQ(p.tensor.shape(), shapes[p.name]);
        const FlatParam& flat = *sharded->index().at(p.name).flat;
        const Slice& slice = flat.slices()[sharded->index().at(p.name).slice];
        EXPECT_EQ(p.tensor.storage().get(), flat.full().storage().get());
        EXPECT_EQ(p.tensor.offset(), size_t(slice.offset) * sizeof(float));
        found += slice.numel();
      }
      EXPECT_EQ(found, numel);
      for (const auto& unit : sharded->units())
        for (const auto& flat : unit->flat_params()) {
          int64_t end = 0;
          for (const Slice& slice : flat->slices()) {
            EXPECT_EQ(slice.offset, (end + 31) / 32 * 32) << slice.name;
            end = slice.offset + slice.numel();
          }
          EXPECT_EQ(flat->padded(), (end + 32 * world - 1) / (32 * world) * 32 * world);
        }
    });
}

TEST(Owners, I35_ParametersAreViewsOfTheFlatBufferUnderTheirOwnNamesAndShapes) {
  expect_views<Rooted>();
  expect_views<Frozen>();
  expect_views<Tied>();
  expect_views<TiedAcross>();
  expect_views<Tiny>();
}

TEST(Owners, I46_EveryRankOwnsTheSameNumberOfElementsHoweverUnequalTheParametersAre) {
  struct Unequal : nn::Module {
    explicit Unequal(std::vector<int64_t> sizes) {
      for (int64_t size : sizes) param("p" + std::to_string(size), {size}, nn::init::ones());
    }
  };
  for (int64_t world : {1, 2, 3, 4})
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{9 * world, 7 * world, 5 * world, 3 * world},
                                              std::vector<int64_t>{10000}, std::vector<int64_t>{1}}) {
      std::set<int64_t> loads;
      std::mutex mutex;
      dist::run_ranks(int(world), [&](dist::ProcessGroup& group) {
        auto model = nn::make<Unequal>(sizes);
        auto sharded = fully_shard(*model, group);
        const FlatParam& flat = *sharded->units()[0]->flat_params()[0];
        std::lock_guard lock(mutex);
        loads.insert(flat.shard().numel());
        EXPECT_EQ(flat.shard().numel() * world, flat.padded());
        EXPECT_LT(flat.padded() - flat.numel(), 32 * (world + int64_t(sizes.size()))) << "padding";
      });
      EXPECT_EQ(loads.size(), 1u);
    }
}

// Ranks 0 and 2 train one model, ranks 1 and 3 another.
TEST(Owners, I47_B27_AModelMayBelongToSomeOfTheRanks) {
  for (const Config& config : kAll) {
    std::vector<Weights> ends(4), expected(2);
    auto train = [&](dist::ProcessGroup& group, int offset) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, config);
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
      for (int step = 0; step < 3; ++step) {
        auto thrower = [&] {
          NoSync local(*sharded);
          fail("leave the scope");
        };
        EXPECT_THROW(thrower(), Error);
        train_step(model, optimizer, step + offset, group.rank());
      }
      return weights_of(*sharded);
    };
    dist::run_ranks(4, [&](dist::ProcessGroup& world) {
      auto mine = world.split(world.rank() % 2, world.rank());
      ends[size_t(world.rank())] = train(*mine, 10 * (world.rank() % 2));
    });
    for (size_t half : {0, 1})
      dist::run_ranks(2, [&](dist::ProcessGroup& world) {
        Weights end = train(world, 10 * int(half));
        if (world.rank() == 0) expected[half] = end;
      });
    for (size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(ends[rank], expected[rank % 2]) << name_of(config.strategy);
  }
}

TEST(Owners, I47_TwoOptimizersMayShareAUnit) {
  auto use = [](nn::Child<Rooted>& model, Sharded& sharded, dist::ProcessGroup& group) {
    std::vector<NamedParameter> weights, others;
    for (const NamedParameter& p : model->named_parameters())
      (p.name.ends_with("weight") ? weights : others).push_back(p);
    optim::AdamW adam(weights, {.lr = 0.02});
    optim::SGD sgd(others, {.lr = 0.02, .momentum = 0.9});
    Weights start = weights_of(sharded);
    for (int step = 0; step < 3; ++step) {
      loss_of(model, step, 4 * group.rank(), 4 * group.rank() + 4).backward();
      adam.step();
      sgd.step();
      adam.zero_grad();
      sgd.zero_grad();
    }
    for (auto& [name, values] : weights_of(sharded)) EXPECT_NE(values, start.at(name)) << name;
  };
  same_weights<Rooted>(use);
}

/// A unit whose two parameters are used apart, each by an optimizer of its own.
struct TwoHeads : nn::Module {
  Tensor actor = param("actor", {5, 7}, nn::init::normal(0, 0.5)), critic = param("critic", {5, 7}, nn::init::ones());
  Tensor forward(const Tensor& x, bool act) { return matmul(x, act ? actor : critic, false, true); }
};

TEST(Owners, AStepOfOneOptimizerLeavesWhatBackwardSavedOfAnothersParameters) {
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      SCOPED_TRACE(name_of(config.strategy));
      auto model = nn::make<TwoHeads>();
      auto sharded = fully_shard(*model, group, config);
      optim::SGD critic({{"critic", model->critic}}, {.lr = 0.1});
      auto input = [] { return ones({2, 7}).set_requires_grad(); };
      Tensor acted = model(input(), true), judged = model(input(), false), again = model(input(), false);
      sum(judged).backward();
      critic.step();
      EXPECT_NO_THROW(sum(acted).backward());
      EXPECT_TRUE(contains(message_of([&] { sum(again).backward(); }), "'critic' was changed in place"));
    });
}

/// What most transformers look like.
struct ListOfLayers : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 6);
  nn::Child<nn::ModuleList<nn::Linear>> blocks = child<nn::ModuleList<nn::Linear>>("blocks");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 6, 5);
  ListOfLayers() {
    for (int i = 0; i < 3; ++i) blocks->add(6, 6);
  }
  Tensor forward(const Tensor& x) {
    Tensor h = in(x);
    for (const auto& block : *blocks) h = tanh(block(h));
    return out(h);
  }
};

TEST(Owners, AModuleWithoutAForwardIsNoUnitWhatItHoldsIs) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto units = [&](const WrapPolicy& wrap) {
      auto model = nn::make<ListOfLayers>();
      auto sharded = fully_shard(*model, group, {.wrap = wrap});
      sum(model(ones({2, 7}))).backward();
      std::vector<std::string> names;
      for (const auto& unit : sharded->units()) names.push_back(unit->name());
      return names;
    };
    EXPECT_EQ(units({}), (std::vector<std::string>{"in", "blocks.0", "blocks.1", "blocks.2", "out"}));
    EXPECT_EQ(units(wrap_by_size(100)), (std::vector<std::string>{"root"})) << "the list is not called";
    std::string what = message_of([&] { units(wrap_by_name({"blocks"})); });
    EXPECT_TRUE(contains(what, "no module fits 'blocks'") && contains(what, "not the list")) << what;
  });
}

TEST(Owners, ParametersWithoutElementsAreShardedLikeOthers) {
  struct Hollow : nn::Module {
    nn::Child<nn::Linear> full = child<nn::Linear>("full", 7, 5), none = child<nn::Linear>("none", 7, 0, false);
    Tensor nothing = param("nothing", {0, 3}, nn::init::zeros());
    Tensor forward(const Tensor& x) { return full(x) + sum(none(x)) + sum(nothing); }
  };
  for (int world : {1, 2, 3})
    for (const Config& config : strategies(world))
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        SCOPED_TRACE(concat(name_of(config.strategy), " W=", world));
        auto plain = nn::make<Hollow>(), model = nn::make<Hollow>();
        auto sharded = fully_shard(*model, group, config);
        optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1});
        sum(model(ones({2, 7}))).backward();
        optimizer.step();
        StateDict state = full_state_dict(*sharded, false);
        EXPECT_EQ(state.at("nothing").shape(), (Shape{0, 3}));
        EXPECT_NO_THROW(plain->load_state_dict(state));
        EXPECT_NO_THROW(load_full_state_dict(*sharded, state));
        StateDict moments = full_optim_state_dict(*sharded, optimizer, false);
        optim::AdamW plain_optimizer(plain->named_parameters(), {.lr = 0.1});
        EXPECT_NO_THROW(plain_optimizer.load_state_dict(moments));
        EXPECT_EQ(plain_optimizer.state_dict().size(), moments.size());
        EXPECT_NO_THROW(load_full_optim_state_dict(*sharded, optimizer, plain_optimizer.state_dict()));
        for (const char* kind : {".exp_avg", ".exp_avg_sq"})
          moments[std::string("nothing") + kind] = zeros({0, 3}, kCpu);
        EXPECT_NO_THROW(plain_optimizer.load_state_dict(moments)) << "as PyTorch saves them";
        EXPECT_NO_THROW(load_full_optim_state_dict(*sharded, optimizer, moments));
      });
}

TEST(Owners, ModelsInOneProcessShareTheirGroups) {
  for (Config config : {Config{}, Config{.strategy = Strategy::hybrid, .shard_ranks = 2}})
    dist::run_ranks(4,
                    [&](dist::ProcessGroup& group) {
                      std::vector<nn::Child<Flat>> models;
                      for (int i = 0; i < dist::Row::kLanes + 1; ++i) {
                        models.push_back(nn::make<Flat>());
                        auto sharded = fully_shard(*models.back(), group, config);
                        optim::SGD optimizer(models.back()->named_parameters(), {.lr = 1});
                        sum(models.back()(ones({1, 7}))).backward();
                        optimizer.step();
                        EXPECT_EQ(sum(full_state_dict(*sharded, false).at("bias")).item(), -20);
                      }
                    },
                    {.device = kAcc, .threads = 1});
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
