// Models and uses that earlier systems got wrong.

#include <gtest/gtest.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

TEST(HardCases, I08_ParametersMayBeFrozenAndThawedBetweenSteps) {
  same_weights<Rooted>([&](nn::Child<Rooted>& model, Sharded& sharded, dist::ProcessGroup& group) {
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.05});
    train_step(model, optimizer, 0, group.rank());
    Weights before = weights_of(sharded);
    model->b1->weight.set_requires_grad(false);
    model->b0->weight.set_requires_grad(false);
    model->b0->bias.set_requires_grad(false);
    train_step(model, optimizer, 1, group.rank());
    Weights after = weights_of(sharded);
    for (const char* name : {"b1.weight", "b0.weight", "b0.bias"}) EXPECT_EQ(after[name], before[name]) << name;
    for (const char* name : {"b1.bias", "b2.weight", "scale"}) EXPECT_NE(after[name], before[name]) << name;
    EXPECT_FALSE(model->b1->weight.grad().defined());
    model->b1->weight.set_requires_grad();
    train_step(model, optimizer, 2, group.rank());
    EXPECT_NE(weights_of(sharded)["b1.weight"], before["b1.weight"]);
  });
}

TEST(HardCases, I08_AParameterFrozenBeforeShardingMayBeTrainedLater) {
  same_weights<Frozen>([&](nn::Child<Frozen>& model, Sharded& sharded, dist::ProcessGroup& group) {
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.05});
    train_step(model, optimizer, 0, group.rank());
    Weights before = weights_of(sharded);
    model->b->weight.set_requires_grad();
    train_step(model, optimizer, 1, group.rank());
    train_step(model, optimizer, 2, group.rank());
    EXPECT_NE(weights_of(sharded)["b.weight"], before["b.weight"]);
    EXPECT_EQ(weights_of(sharded)["b.bias"], before["b.bias"]);
  });
}

TEST(HardCases, I43_B13_B14_EvaluationMayComeFirstAndAnInnerUnitMayBeCalledAlone) {
  same_weights<Rooted>([&](nn::Child<Rooted>& model, Sharded&, dist::ProcessGroup& group) {
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.05});
    {
      NoGrad no_grad;
      Tensor h = model->b1(zeros({2, 9}));
      EXPECT_EQ(h.numel(), 18);
      loss_of(model, 0, 0, 4);
      EXPECT_EQ(context().ledger().current(Category::gathered_parameter), 0) << "evaluation keeps nothing";
    }
    for (int step = 0; step < 3; ++step) {
      train_step(model, optimizer, step, group.rank());
      EXPECT_EQ(context().ledger().current(Category::gathered_parameter), 0) << "an inner unit stayed gathered";
    }
  });
}

struct Shuffled : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 7), b = child<nn::Linear>("b", 7, 7),
                        c = child<nn::Linear>("c", 7, 7), out = child<nn::Linear>("out", 7, 5);
  int turn = 0;
  Tensor forward(const Tensor& x) {
    std::vector<nn::Child<nn::Linear>*> order{&a, &b, &c};
    std::rotate(order.begin(), order.begin() + turn % 3, order.end());
    if (turn % 4 == 3) order.pop_back();  // one is not used at all
    Tensor h = x;
    for (auto* layer : order) h = tanh((*layer)(h));
    return out(h);
  }
};

TEST(HardCases, I09_B10_UnitsMayBeUsedInAnyOrderOrNot) {
  same_weights<Shuffled>([&](nn::Child<Shuffled>& model, Sharded&, dist::ProcessGroup& group) {
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    for (int step = 0; step < 9; ++step) {
      model->turn = step;
      train_step(model, optimizer, step, group.rank());
      EXPECT_EQ(context().ledger().current(Category::gathered_parameter), 0);
    }
  });
}

struct Mixed : nn::Module {
  struct Both : nn::Module {
    Tensor single = param("single", {7, 7}, nn::init::normal(0, 0.3));
    nn::Child<nn::Linear> wide = child<nn::Linear>("wide", 7, 7);
    Both() { wide->to(DType::f64); }
    Tensor forward(const Tensor& x) { return wide(matmul(x, single, false, true).to(DType::f64)).to(DType::f32); }
  };
  nn::Child<Both> both = child<Both>("both");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 5);
  Tensor forward(const Tensor& x) { return out(tanh(both(x))); }
};

TEST(HardCases, SeveralDtypesInOneModuleBecomeSeveralFlatParameters) {
  same_weights<Mixed>([&](nn::Child<Mixed>& model, Sharded& sharded, dist::ProcessGroup& group) {
    EXPECT_EQ(sharded.units()[0]->flat_params().size(), 2u);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    for (int step = 0; step < 4; ++step) train_step(model, optimizer, step, group.rank());
  });
}

TEST(HardCases, ParametersMayBeEditedBetweenSteps) {
  same_weights<Rooted>([&](nn::Child<Rooted>& model, Sharded& sharded, dist::ProcessGroup& group) {
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    for (int step = 0; step < 4; ++step) {
      train_step(model, optimizer, step, group.rank());
      SummonFullParams whole(sharded, true);
      fill_(model->b1->bias, 0.25 * step);
      fill_(model->shift, 0.5);
    }
    EXPECT_EQ(weights_of(sharded)["b1.bias"], std::vector<double>(9, 0.75));
  });
}

TEST(HardCases, WeightDecayFollowsTheParameterNotTheFlatRange) {
  Weights all = same_weights<Rooted>([&](nn::Child<Rooted>& model, Sharded&, dist::ProcessGroup& group) {
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02, .weight_decay = 0.5},
                           {{"*.bias", {.weight_decay = 0}}, {"b1.*", {.lr_scale = 3}}});
    for (int step = 0; step < 3; ++step) train_step(model, optimizer, step, group.rank());
  });
  Context context;
  auto model = nn::make<Rooted>();
  optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02, .weight_decay = 0.5},
                         {{"*.bias", {.weight_decay = 0}}, {"b1.*", {.lr_scale = 3}}});
  for (int step = 0; step < 3; ++step) {
    loss_of(model, step, 0, 8).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  for (auto& [name, tensor] : model->state_dict()) {
    std::vector<double> plain = values_of(tensor.detach());
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(all[name][i], plain[i], 1e-5) << name;
  }
}

struct Empty : nn::Module {
  struct Nothing : nn::Module {
    Tensor forward(const Tensor& x) { return x; }
  };
  nn::Child<Nothing> nothing = child<Nothing>("nothing");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 5);
  Tensor forward(const Tensor& x) { return out(nothing(x)); }
};

TEST(HardCases, I35_ModulesWithoutParametersAreNoUnitsAndDoNoHarm) {
  same_weights<Empty>([&](nn::Child<Empty>& model, Sharded& sharded, dist::ProcessGroup& group) {
    EXPECT_EQ(sharded.units().size(), 1u);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.02});
    for (int step = 0; step < 3; ++step) train_step(model, optimizer, step, group.rank());
  });
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Empty::Nothing>();
    auto sharded = fully_shard(*model, group);
    EXPECT_TRUE(sharded->units().empty());
    EXPECT_EQ(values_of(model(ones({3}))), std::vector<double>(3, 1));
  });
}

TEST(HardCases, I10_PaddingStaysZeroForEver) {
  for (Config config : kAll)
    dist::run_ranks(3, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Tiny>();
      auto sharded = fully_shard(*model, group, config);
      optim::AdamW optimizer(model->named_parameters(), {.lr = 0.1, .weight_decay = 0.1});
      for (int step = 0; step < 3; ++step) {
        loss_of(model, step, 2 * group.rank(), 2 * group.rank() + 2).backward();
        clip_grad_norm(*sharded, 0.1);
        optimizer.step();
        for (const auto& unit : sharded->units())
          for (const auto& flat : unit->flat_params())
            for (const Tensor& buffer : {flat->shard(), flat->grad()}) {
              std::vector<double> values = values_of(buffer);
              for (const Slice& slice : flat->slices())
                for (int64_t i = 0; i < buffer.numel(); ++i) {
                  int64_t element = flat->shard_begin() + i - slice.offset;
                  if (element >= 0 && element < slice.numel()) values[size_t(i)] = 0;
                }
              EXPECT_EQ(values, std::vector<double>(values.size(), 0));
            }
        optimizer.zero_grad();
      }
    });
}

struct Reading : nn::Module {
  nn::Child<TwoOut> two = child<TwoOut>("two");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 5, 5);
  int turn = 0;
  Tensor forward(const Tensor& x) {
    auto [a, b] = two(x);
    return out(turn % 3 == 0 ? a : turn % 3 == 1 ? b : b * a);
  }
};

TEST(HardCases, AStepMayReadAnyOfTheTensorsThatAUnitReturns) {
  same_weights<Reading>([&](nn::Child<Reading>& model, Sharded&, dist::ProcessGroup& group) {
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    for (int step = 0; step < 6; ++step) {
      model->turn = step;
      train_step(model, optimizer, step, group.rank());
      EXPECT_EQ(context().ledger().current(Category::gathered_parameter), 0) << "step " << step;
    }
  });
}

constexpr int64_t kWidth = 64, kLayers = 16;
struct Deep : nn::Module {
  std::vector<nn::Child<nn::Linear>> layers;
  Deep() {
    for (int i = 0; i < kLayers; ++i) layers.push_back(child<nn::Linear>("layer" + std::to_string(i), kWidth, kWidth));
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) x = tanh(layer(x));
    return x;
  }
};

TEST(HardCases, ADeferredModelNeverNeedsMoreThanItsShardAndOneUnit) {
  dist::run_ranks(4, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Deep>();
    EXPECT_EQ(context().ledger().peak(), 0) << "construction makes no values";
    auto sharded = fully_shard(*model, group);
    int64_t whole = 0, unit = 0;
    for (const auto& u : sharded->units()) {
      whole += int64_t(u->full_bytes());
      unit = std::max(unit, int64_t(u->full_bytes()));
    }
    EXPECT_EQ(context().ledger().peak(Category::parameter_shard), whole / 4);
    EXPECT_LE(context().ledger().peak(), whole / 4 + 64) << "and the hashes of the first comparison";
    context().ledger().reset_peaks();
    full_state_dict(*sharded, true);  // to rank 0, which pays for what it asked for
    if (group.rank() != 0) {
      EXPECT_EQ(context().ledger().peak(), whole / 4 + unit);
    }
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
