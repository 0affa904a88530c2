// What a call of a module passes through: hooks before and after, of every signature, and arguments that are moved.

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <span>

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/context.h>
#include <tests/nn/module_examples.h>

namespace shardgrad {
namespace {

struct TwoIn : nn::Module {
  nn::Child<nn::Linear> left = child<nn::Linear>("left", 4, 2);
  nn::Child<nn::Linear> right = child<nn::Linear>("right", 3, 2);
  std::map<std::string, Tensor> forward(const Tensor& a, const Tensor& b, bool add) {
    Tensor l = left(a), r = right(b);
    return {{"left", l}, {"mixed", add ? l + r : l - r}};
  }
};

TEST(Module, HooksSeeEveryTensorOfArgumentsAndResults) {
  Context context;
  auto model = nn::make<TwoIn>();
  std::vector<Shape> in;
  std::vector<std::string> nodes;
  model->add_forward_pre_hook([&](nn::Module& module, std::span<Tensor> inputs) {
    EXPECT_EQ(&module, &model.module());
    for (const Tensor& each : inputs) in.push_back(each.shape());
  });
  model->add_forward_hook([&](nn::Module&, std::span<const Tensor> outputs) {
    for (const Tensor& each : outputs) nodes.push_back(node_of(each)->name());
  });
  auto result = model(ones({5, 4}), ones({5, 3}), true);
  EXPECT_EQ(in, (std::vector<Shape>{{5, 4}, {5, 3}}));
  EXPECT_EQ(nodes, (Names{"linear", "add"}));
  EXPECT_EQ(result.at("mixed").shape(), Shape({5, 2}));
}

TEST(Module, HooksMayAddHooksWhichRunFromTheNextCallOn) {
  Context context;
  auto model = nn::make<TwoOut>();
  int late = 0;
  bool added = false;
  model->fc->add_forward_hook([&](nn::Module& module, std::span<const Tensor>) {
    if (std::exchange(added, true)) return;
    for (int i = 0; i < 100; ++i) module.add_forward_hook([&](nn::Module&, std::span<const Tensor>) { ++late; });
    EXPECT_FALSE(std::string(module.full_name()).empty()) << "this hook is still where it was";
  });
  model(ones({1, 4}));
  EXPECT_EQ(late, 0);
  model(ones({1, 4}));
  EXPECT_EQ(late, 100);
}

TEST(Module, HooksOnASubmoduleRunForEveryCallOfItsHandle) {
  Context context;
  auto model = nn::make<TwoOut>();
  int before = 0, after = 0;
  model->fc->add_forward_pre_hook([&](nn::Module&, std::span<Tensor>) { ++before; });
  model->fc->add_forward_hook([&](nn::Module&, std::span<const Tensor> outputs) { after += int(outputs.size()); });
  auto [y, twice] = model(ones({1, 4}));
  model(y);
  EXPECT_EQ(before, 2);
  EXPECT_EQ(after, 2);
  EXPECT_EQ(twice.to_vector<float>()[0], 2);
}

TEST(Module, APreHookMayReplaceTensorsWithoutTouchingTheCallers) {
  Context context;
  auto model = nn::make<TwoOut>();
  model->add_forward_pre_hook([](nn::Module&, std::span<Tensor> inputs) { inputs[0] = inputs[0] * 10.0; });
  Tensor x = ones({1, 4});
  EXPECT_EQ(model(x).second.to_vector<float>()[0], 20);
  EXPECT_EQ(x.to_vector<float>()[0], 1);
}

struct Passing : nn::Module {
  Tensor forward(const Tensor& x) { return x * 1.0; }
};

TEST(Module, HooksMayReplaceWhatGoesThroughAModuleOfOneTensor) {
  Context context;
  auto model = nn::make<Passing>();
  model->add_forward_pre_hook([](nn::Module&, std::span<Tensor> inputs) { inputs[0] = inputs[0] * 10.0; });
  model->add_forward_hook([](nn::Module&, std::span<Tensor> outputs) { outputs[0] = outputs[0] + 1.0; });
  Tensor x = ones({1, 4});
  for (bool again : {false, true}) {
    model->set_recompute(again ? std::optional(RecomputeOptions()) : std::nullopt);
    EXPECT_EQ(model(x).to_vector<float>()[0], 11);
    EXPECT_EQ(x.to_vector<float>()[0], 1);
    EXPECT_EQ(model(x * 2.0).to_vector<float>()[0], 21) << "an argument that is moved";
  }
}

// Frees what it was given before it returns.
struct Forgetful : nn::Module {
  int64_t bytes_left = 0;
  Tensor forward(Tensor x) {
    x = sum(x);
    bytes_left = context().ledger().current();
    return x;
  }
};

TEST(Module, AnArgumentThatIsMovedIntoACallIsForwardsToFree) {
  Context context;
  auto model = nn::make<Forgetful>();
  NoGrad no_grad;
  Tensor kept = ones({1000});
  model(kept);
  EXPECT_EQ(model->bytes_left, 4004);
  model(std::move(kept));
  EXPECT_EQ(model->bytes_left, 4);
}

TEST(Module, AHookOnAnOutputsNodeRunsBeforeTheModulesBackward) {
  Context context;
  auto model = nn::make<TwoOut>();
  Names order;
  model->fc->add_forward_hook([&](nn::Module&, std::span<const Tensor> outputs) {
    node_of(outputs[0])->add_pre_hook([&] { order.push_back("before backward"); });
  });
  auto [y, twice] = model(ones({1, 4}));
  leaf_of(model->fc->weight).add_ready_hook([&] { order.push_back("gradient ready"); });
  sum(y).backward();
  EXPECT_EQ(order, (Names{"before backward", "gradient ready"}));
}

TEST(Module, HooksOfAParameterStayWhenItsDTypeChanges) {
  Context context;
  auto model = nn::make<nn::Linear>(2, 2);
  model->materialize();
  std::vector<DType> seen;
  int ready = 0;
  model->weight.register_hook([&](const Tensor& gradient) {
    seen.push_back(gradient.dtype());
    return gradient * 0;
  });
  leaf_of(model->weight).add_ready_hook([&] { ++ready; });
  sum(model(ones({1, 2}))).backward();
  model->to(DType::f64);
  sum(model(ones({1, 2}, DType::f64))).backward();
  EXPECT_EQ(seen, (std::vector{DType::f32, DType::f64}));
  EXPECT_EQ(ready, 2);
  EXPECT_EQ(model->weight.grad().to_vector<double>(), std::vector<double>(4, 0));
}

TEST(Module, AnEmptyHandleSaysSo) {
  nn::Child<nn::ReLU> empty;
  EXPECT_EQ(error_of([&] { empty->eval(); }),
            "use of an empty module handle; make one with child<M>(…) or nn::make<M>(…)");
}

TEST(Module, ACallThatEndsByAnExceptionTellsItsHooks) {
  struct Picky : nn::Module {
    Tensor forward(const Tensor& x) {
      SG_CHECK(x.numel() > 0, "empty");
      return x;
    }
  };
  Context context;
  auto model = nn::make<Picky>();
  int failed = 0, returned = 0;
  model->add_forward_failed_hook([&](nn::Module& module) { failed += &module == &*model; });
  model->add_forward_hook([&](nn::Module&, std::span<const Tensor>) { ++returned; });
  model(ones({1}));
  EXPECT_EQ(std::pair(failed, returned), std::pair(0, 1));
  EXPECT_EQ(error_of([&] { model(ones({0})); }), "empty");
  EXPECT_EQ(std::pair(failed, returned), std::pair(1, 1));
}

}  // namespace
}  // namespace shardgrad
