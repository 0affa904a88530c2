// What fully_shard takes, and what it refuses before anything has changed.

#include <gtest/gtest.h>

#include "tests/fsdp/rare_programs.h"
#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

/// A model as a part of what is saved and logged around it.
struct Wrapper : nn::Module {
  nn::Child<Chain> model = child<Chain>("model"), other = child<Chain>("other");
  Tensor forward(const Tensor& x) { return model(x); }
};

TEST(Setup, PatternsAreOfNamesBelowTheShardedModule) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto units = [&](const WrapPolicy& wrap) {
      auto whole = nn::make<Wrapper>();
      std::vector<std::string> names;
      for (const auto& unit : fully_shard(*whole->model, group, {.wrap = wrap})->units()) names.push_back(unit->name());
      return names;
    };
    EXPECT_EQ(units(wrap_by_name({"a", "c"})), (std::vector<std::string>{"model", "model.a", "model.c"}));
    EXPECT_EQ(units(wrap_by_type({"Linear"})), (std::vector<std::string>{"model.a", "model.b", "model.c"}));
    EXPECT_TRUE(contains(message_of([&] { units(wrap_by_name({"a", "model.b"})); }), "no module fits 'model.b'"));
    EXPECT_TRUE(contains(message_of([&] { units(wrap_by_type({"Linaer"})); }), "no module fits 'Linaer'"));
  });
}

// Whichever way leads there. What two units use belongs to the one around both.
TEST(Setup, AModuleUnderTwoNamesIsOneUnit) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto units = [&]<class Model>(const nn::Child<Model>& model, const WrapPolicy& wrap = {}) {
      std::vector<std::string> names;
      for (const auto& unit : fully_shard(*model, group, {.wrap = wrap})->units()) names.push_back(unit->name());
      return names;
    };
    using programs::Translator;
    EXPECT_EQ(units(nn::make<Siamese>()), (std::vector<std::string>{"encoder", "out"}));
    EXPECT_EQ(units(nn::make<Translator>()), (std::vector<std::string>{"root", "encoder", "decoder"}));
    EXPECT_EQ(units(nn::make<Translator>(), wrap_by_type({"Linear"})),
              (std::vector<std::string>{"encoder.embed", "encoder.out", "decoder.out"}));
  });
}

TEST(Setup, AModelThatIsRefusedIsAsItWas) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Chain>();
    model->c->to(DType::bf16);
    model->materialize();
    std::vector<double> before = values_of(model->a->weight.detach());
    std::string what = message_of([&] { fully_shard(*model, group, {.param_dtype = DType::f32}); });
    EXPECT_TRUE(contains(what, "'c.weight' is bf16")) << what;
    EXPECT_EQ(values_of(model->a->weight.detach()), before);
    auto sharded = fully_shard(*model, group);
    EXPECT_EQ(values_of(full_state_dict(*sharded, false).at("a.weight")), before);
  });
}

/// Gradients reach its parameters without an operation that converts them.
struct Affine : nn::Module {
  struct Shift : nn::Module {
    Tensor by = param("by", {4, 7}, nn::init::zeros());
    Tensor forward(const Tensor& x) { return x + by; }
  };
  struct Scale : nn::Module {
    Tensor by = param("by", {7}, nn::init::normal(1, 0.1));
    Tensor forward(const Tensor& x) { return x * by; }
  };
  nn::Child<Shift> shift = child<Shift>("shift");
  nn::Child<Scale> scale = child<Scale>("scale");
  Tensor forward(const Tensor& x) { return scale(shift(x)); }
};

TEST(Setup, AModelThatWasUsedTrainsLikeAFreshOne) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32);
      std::map<std::string, std::vector<double>> weights[2];
      for (bool used : {false, true}) {
        auto model = nn::make<Affine>();
        model->materialize();
        if (used) {
          sum(model(x)).backward();
          std::string what = message_of([&] { fully_shard(*model, group, {.strategy = strategy}); });
          EXPECT_TRUE(contains(what, "'shift.by' has a gradient") && contains(what, "zero_grad()")) << what;
          model->zero_grad();
        }
        Tensor of_before = used ? sum(model(x)) : Tensor();
        auto sharded = fully_shard(*model, group, {.strategy = strategy, .param_dtype = DType::bf16});
        optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
        if (used) {
          EXPECT_TRUE(contains(message_of([&] { of_before.backward(); }), "was changed in place"));
        }
        sum(model(x).to(DType::f32)).backward();
        optimizer.step();
        for (auto& [name, tensor] : full_state_dict(*sharded, false)) weights[used][name] = values_of(tensor);
      }
      EXPECT_EQ(weights[0], weights[1]);
    });
}

TEST(Setup, WhatIsOnAnotherDeviceThanTheRanksIsRefusedByName) {
  struct Counted : Chain {
    struct Count : nn::Module {
      Tensor seen = buffer("seen", {1});
      Tensor forward(const Tensor& x) { return x; }
    };
    nn::Child<Count> count = child<Count>("count");
  };
  for (auto [ours, theirs] : {std::pair{kCpu, kAcc}, std::pair{kAcc, kCpu}})
    dist::run_ranks(2,
                    [&, theirs = theirs](dist::ProcessGroup& group) {
                      auto model = nn::make<Counted>();
                      auto refusal = [&] { return message_of([&] { fully_shard(*model, group); }); };
                      Device home = model->a->weight.device();
                      model->b->to(theirs);
                      EXPECT_TRUE(contains(refusal(), concat("'b.weight' is on ", theirs))) << refusal();
                      model->b->to(home);
                      model->count->to(theirs);
                      EXPECT_TRUE(contains(refusal(), concat("'count.seen' is on ", theirs))) << refusal();
                      model->count->to(home);
                      fully_shard(*model, group);
                    },
                    {.device = ours});
}

TEST(Setup, AParameterThatComesLaterIsRefused) {
  struct Growing : nn::Module {
    nn::Child<nn::ModuleList<nn::Linear>> layers = child<nn::ModuleList<nn::Linear>>("layers");
    Growing() { layers->add(7, 7); }
    void widen() { param("more", {7}, nn::init::ones()); }
    void lengthen() { child<nn::Linear>("last", 7, 7); }
    Tensor forward(const Tensor& x) { return (*layers)[0](x); }
  };
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Growing>();
    fully_shard(*model, group);
    for (const auto& [late, grow] :
         std::map<std::string, std::function<void()>>{{"'1.weight'", [&] { model->layers->add(7, 7); }},
                                                      {"'last.weight'", [&] { model->lengthen(); }},
                                                      {"'more'", [&] { model->widen(); }}}) {
      std::string what = message_of(grow);
      EXPECT_TRUE(contains(what, late + " comes after fully_shard")) << what;
    }
    EXPECT_EQ(model->named_parameters().size(), 2u);
    sum(model(ones({4, 7}))).backward();
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
