// Parts of a model with options of their own: modules that are wrapped with some, models that were sharded before the
// one around them, and parameters that are left out. The numbers are those of the whole, to the bit.

#include <gmock/gmock.h>

#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing::nested {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Outer : nn::Module {
  nn::Child<Rooted> first = child<Rooted>("first");
  nn::Child<nn::Linear> middle = child<nn::Linear>("middle", 5, 7);
  nn::Child<Chain> last = child<Chain>("last");
  Tensor own = param("own", {5}, nn::init::zeros());
  Tensor forward(const Tensor& x) { return last(middle(first(x))) + own; }
};

using Prepare = std::function<void(Outer&, dist::ProcessGroup&)>;

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> weights, state;
  std::vector<std::string> units;
  int64_t most_gathered = 0;
  bool operator==(const Trained& other) const {
    return same_bits(losses, other.losses) && same_bits(norms, other.norms) && weights == other.weights &&
           state == other.state;
  }
};

Trained train_rank(dist::ProcessGroup& world, const Config& config, const Prepare& prepare) {
  auto model = nn::make<Outer>();
  prepare(*model, world);
  auto sharded = fully_shard(*model, world, config);
  Trained trained;
  for (const auto& unit : sharded->units()) trained.units.push_back(unit->name());
  std::vector<NamedParameter> parameters = model->named_parameters();
  for (const auto& [name, tensor] : sharded->left_out())
    std::erase_if(parameters, [&, left_out = name](const NamedParameter& p) { return p.name == left_out; });
  optim::AdamW optimizer(parameters, {.lr = 0.01});
  for (int step = 0; step < 4; ++step) {
    Tensor loss = mse_loss(model(rows_of_batch("x", step, world.rank() * 3, world.rank() * 3 + 3, 7, DType::f32)),
                           rows_of_batch("t", step, world.rank() * 3, world.rank() * 3 + 3, 5, DType::f32),
                           double(world.size() * 15));
    std::optional<NoSync> local;
    if (step == 2) local.emplace(*sharded);
    loss.backward();
    Tensor whole = clone(loss.detach());
    world.all_reduce(whole).host_wait();
    trained.losses.push_back(whole.item());
    if (step == 2) continue;
    trained.norms.push_back(clip_grad_norm(*sharded, 0.5));
    optimizer.step();
    optimizer.zero_grad();
  }
  trained.most_gathered = context().ledger().peak(Category::gathered_parameter);
  for (auto& [name, tensor] : full_state_dict(*sharded, false)) trained.weights[name] = values_of(tensor);
  for (auto& [name, tensor] : full_optim_state_dict(*sharded, optimizer, false))
    trained.state[name] = values_of(tensor.to(DType::f64));
  return trained;
}

Trained train(int ranks, const Config& config, const Prepare& prepare, Device device = kCpu) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  dist::run_ranks(ranks,
                  [&](dist::ProcessGroup& world) { all[size_t(world.rank())] = train_rank(world, config, prepare); },
                  {.device = device, .seed = 3, .threads = 1});
  for (const Trained& one : all) EXPECT_TRUE(one == all[0]) << "ranks differ";
  return all[0];
}

void nothing(Outer&, dist::ProcessGroup&) {}

const std::vector<Config> kInner{{.strategy = Strategy::zero3},
                                 {.strategy = Strategy::zero2},
                                 {.strategy = Strategy::zero3, .move_params_to_cpu = true},
                                 {.strategy = Strategy::zero2, .move_grads_to_cpu = true}};

TEST(Nested, APartThatWasShardedBeforeBelongsToTheModelAroundIt) {
  for (Device device : {kCpu, kAcc}) {
    Trained plain = train(2, {}, nothing, device);
    EXPECT_THAT(plain.units, ElementsAre("root", "first", "middle", "last"));
    for (const Config& inner : kInner) {
      Trained nested = train(
          2, {},
          [&](Outer& model, dist::ProcessGroup& world) {
            fully_shard(*model.first, world, inner);
            fully_shard(*model.last, world, {.wrap = wrap_by_type({"Linear"})});
          },
          device);
      EXPECT_THAT(nested.units, ElementsAre("root", "middle", "first", "first.b0", "first.b1", "first.b2", "last.a",
                                            "last.b", "last.c"));
      EXPECT_TRUE(nested == plain) << name_of(inner.strategy) << " on " << device;
    }
  }
}

TEST(Nested, APartOfAPartToo) {
  Trained plain = train(3, {}, nothing);
  EXPECT_TRUE(plain == train(3, {}, [](Outer& model, dist::ProcessGroup& world) {
                fully_shard(*model.first->b1, world);
                fully_shard(*model.first, world);
              }));
}

TEST(Nested, InnerPartsAreReleasedAfterForwardAsUnitsAre) {
  auto wrapped = [](bool nested) {
    return train(
        2, {.prefetch = 0, .wrap = nested ? WrapPolicy() : wrap_by_name({"first", "middle", "last"})},
        [&](Outer& model, dist::ProcessGroup& world) {
          if (!nested) return;
          for (nn::Module* part : {static_cast<nn::Module*>(&*model.first), static_cast<nn::Module*>(&*model.last)})
            fully_shard(*part, world, {.wrap = [](const auto&, const auto&, int64_t) { return false; }});
        },
        kAcc);
  };
  Trained nested = wrapped(true), one = wrapped(false);
  EXPECT_THAT(nested.units, ElementsAre("root", "middle", "first", "last"));
  EXPECT_EQ(nested.most_gathered, one.most_gathered);
}

std::string refusal(const std::function<void(Outer&, dist::ProcessGroup&)>& body) {
  return message_of(
      [&] { dist::run_ranks(2, [&](dist::ProcessGroup& world) { body(*nn::make<Outer>(), world); }, {.threads = 1}); });
}

TEST(Nested, WhatCannotBeNestedIsRefusedByName) {
  EXPECT_THAT(refusal([](Outer& model, dist::ProcessGroup& world) {
                auto kept = fully_shard(*model.first, world);
                model.first->b0(zeros({2, 7}));
                fully_shard(model, world);
              }),
              HasSubstr("'first' has been called since it was sharded; shard the model around it before"));
  EXPECT_THAT(refusal([](Outer& model, dist::ProcessGroup& world) {
                auto kept = fully_shard(*model.first, world, {.strategy = Strategy::ddp});
                fully_shard(model, world);
              }),
              HasSubstr("'first' is split over 1 ranks, and the model around it over 2"));
  EXPECT_THAT(refusal([](Outer& model, dist::ProcessGroup& world) {
                auto kept = fully_shard(model, world);
                fully_shard(*model.first, world);
              }),
              HasSubstr("is sharded already; shard a model once"));
  EXPECT_THAT(refusal([](Outer& model, dist::ProcessGroup& world) {
                auto kept = fully_shard(*model.first, world);
                auto group = world.split(0, world.rank());
                fully_shard(model, *group);
              }),
              HasSubstr("'first' was sharded over another group"));
  EXPECT_THAT(refusal([](Outer& model, dist::ProcessGroup& world) {
                auto inner = fully_shard(*model.first, world);
                auto kept = fully_shard(model, world);
                NoSync local(*inner);
              }),
              HasSubstr("is a part of one that was sharded after it"));
  struct Tying : nn::Module {
    nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 7), b = child<nn::Linear>("b", 7, 7);
    Tying() { tie(a->weight, b->weight); }
    Tensor forward(const Tensor& x) { return b(a(x)); }
  };
  EXPECT_THAT(refusal([](Outer&, dist::ProcessGroup& world) {
                auto model = nn::make<Tying>();
                auto kept = fully_shard(*model->a, world);
                fully_shard(*model, world);
              }),
              HasSubstr("'b.weight' is a parameter of 'a', too, which was sharded before"));
}

TEST(OwnOptions, AUnitMayBeKeptAfterForwardAndLieInHostMemory) {
  for (Device device : {kCpu, kAcc})
    for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
      Config whole{.strategy = strategy};
      Trained plain = train(2, whole, nothing, device);
      for (const Config& own : kInner)
        EXPECT_TRUE(plain == train(
                                 2, whole,
                                 [&](Outer& model, dist::ProcessGroup&) {
                                   EnableWrap scope;
                                   wrap(model.first, own), wrap(model.middle), wrap(model.last);
                                 },
                                 device))
            << name_of(strategy) << " with " << name_of(own.strategy) << " on " << device;
    }
}

TEST(OwnOptions, TheyAreThatUnitsAndNoOthers) {
  dist::run_ranks(2,
                  [](dist::ProcessGroup& world) {
                    EnableWrap scope;
                    auto model = nn::make<Chain>();
                    wrap(model->a, {.strategy = Strategy::zero2}), wrap(model->b, {.move_params_to_cpu = true}),
                        wrap(model->c);
                    auto sharded = fully_shard(*model, world);
                    auto unit = [&](size_t i) -> Unit& { return *sharded->units()[i]; };
                    Tensor loss = sum(model(ones({2, 7})));
                    EXPECT_EQ(unit(0).state(), UnitState::unsharded) << "zero2 keeps it until backward";
                    EXPECT_EQ(unit(1).state(), UnitState::sharded);
                    EXPECT_EQ(unit(0).flat_params()[0]->shard().device(), kAcc);
                    EXPECT_EQ(unit(1).flat_params()[0]->shard().device(), kCpu);
                    loss.backward();
                    EXPECT_EQ(unit(0).state(), UnitState::sharded);
                  },
                  {.device = kAcc, .threads = 1});
}

TEST(OwnOptions, AUnitWithoutParamDtypeComputesInItsOwn) {
  dist::run_ranks(2,
                  [](dist::ProcessGroup& world) {
                    EnableWrap scope;
                    auto model = nn::make<Chain>();
                    wrap(model->a), wrap(model->b, {}), wrap(model->c);
                    auto sharded = fully_shard(*model, world, {.param_dtype = DType::bf16});
                    std::vector<DType> inputs;
                    for (nn::Linear* layer : {&*model->a, &*model->b, &*model->c})
                      layer->add_forward_pre_hook(
                          [&](nn::Module&, std::span<Tensor> given) { inputs.push_back(given[0].dtype()); });
                    sum(model(ones({2, 7}))).backward();
                    EXPECT_THAT(inputs, ElementsAre(DType::bf16, DType::f32, DType::bf16));
                    EXPECT_EQ(model->b->weight.dtype(), DType::f32);
                    EXPECT_EQ(model->c->weight.dtype(), DType::bf16);
                  },
                  {.threads = 1});
}

TEST(LeftOut, AFrozenParameterThatIsLeftOutChangesNoBitAndIsInTheState) {
  auto freeze = [](Outer& model, dist::ProcessGroup&) { model.middle->weight.set_requires_grad(false); };
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    Trained plain = train(2, {.strategy = strategy}, freeze);
    Trained left_out = train(2, {.strategy = strategy, .leave_out = {"middle.weight"}}, freeze);
    EXPECT_TRUE(same_bits(plain.losses, left_out.losses) && plain.weights == left_out.weights) << name_of(strategy);
  }
}

TEST(LeftOut, ItIsWholeOnEachRankAndItsGradientIsItsOwn) {
  dist::run_ranks(2,
                  [](dist::ProcessGroup& world) {
                    auto model = nn::make<Chain>();
                    auto sharded = fully_shard(*model, world, {.leave_out = {"b.*"}});
                    EXPECT_EQ(sharded->left_out().size(), 2U);
                    sum(model(full({1, 7}, double(world.rank())))).backward();
                    EXPECT_EQ(model->b->weight.grad().shape(), Shape({3, 13}));
                    StateDict state = full_state_dict(*sharded, false);
                    EXPECT_TRUE(state.contains("b.weight"));
                    state["b.bias"] = ones({3});
                    load_full_state_dict(*sharded, state);
                    EXPECT_EQ(values_of(model->b->bias), std::vector<double>(3, 1));
                    state.erase("b.weight");
                    EXPECT_THAT(message_of([&] { load_full_state_dict(*sharded, state); }), HasSubstr("b.weight"));
                  },
                  {.threads = 1});
}

TEST(LeftOut, OfAPartOrOfWhatIsShardedIsRefused) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    auto model = nn::make<Outer>();
    auto part = fully_shard(*model->first, world, {.leave_out = {"*bias"}});
    EXPECT_THAT(message_of([&] { fully_shard(*model, world, {}); }), HasSubstr("was sharded with leave_out"));
    auto other = nn::make<Outer>();
    auto inner = fully_shard(*other->first, world, {});
    EXPECT_THAT(message_of([&] { fully_shard(*other, world, {.leave_out = {"first.*"}}); }),
                HasSubstr("which is sharded already"));
  });
}

// Gradients of a part go to the schedule of the model around it, also when nothing else of the model is left …
TEST(Nested, APartsGradientsMayOutliveTheModel) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      auto model = nn::make<Outer>();
      auto part = fully_shard(*model->last, world, {.strategy = strategy});
      auto sharded = fully_shard(*model, world, {.strategy = strategy});
      Tensor x = ones({2, 7}).set_requires_grad(), loss = sum(model(x));
      model = {};
      part.reset(), sharded.reset();
      loss.backward();
      EXPECT_TRUE(x.grad().defined());
    });
}

// … and in a pass that fails when only a penalty on the part's weight has written its gradient.
TEST(Nested, APartsGradientOfAFailedPassIsTold) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    auto model = nn::make<Outer>();
    auto part = fully_shard(*model->last, world, {.strategy = Strategy::ddp});
    auto sharded = fully_shard(*model, world, {.strategy = Strategy::ddp});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    Tensor factor = ones({2, 5}).set_requires_grad(), weight = model->last->a->weight;
    leaf_of(factor).add_ready_hook([] { fail("no more"); });
    Tensor fit = sum(model(ones({2, 7})) * factor), loss = fit + sum(weight * weight);
    EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("no more"));
    EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("a backward pass failed halfway"));
  });
}

TEST(LeftOut, RankZerosValuesAreTaken) {
  dist::run_ranks(2,
                  [](dist::ProcessGroup& world) {
                    auto model = nn::make<Chain>();
                    model->materialize();
                    NoGrad no_grad;
                    fill_(model->b->bias, double(7 + world.rank()));
                    auto sharded = fully_shard(*model, world, {.sync_module_states = true, .leave_out = {"b.bias"}});
                    EXPECT_EQ(values_of(model->b->bias), std::vector<double>(3, 7));
                  },
                  {.threads = 1});
}

}  // namespace
}  // namespace shardgrad::fsdp::testing::nested
