// The values of a module's parameters and buffers: when they are filled, where they move, and states that carry them.

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <map>
#include <thread>
#include <tuple>

#include <shardgrad/core/context.h>
#include <tests/nn/module_examples.h>

namespace shardgrad {
namespace {

// --- first values and moves ----------------------------------------------------------------------------------------

TEST(Module, IsBuiltWithoutMemoryAndFilledByTheFirstCall) {
  Context context;
  auto model = nn::make<Stack>();
  EXPECT_EQ(context.ledger().peak(), 0);
  EXPECT_EQ(
      error_of([&] { model->head->weight.to_vector<float>(); }),
      "'head.weight' is not in memory: it has no values yet; call the model once, call materialize(), or shard it");
  model(ones({2, 4}));
  int64_t numel = 0;
  for (const NamedParameter& each : model->named_parameters()) numel += each.tensor.numel();
  EXPECT_EQ(context.ledger().current(Category::parameter_shard), numel * 4);
}

// So many that threads which fill them at once meet.
struct ManyParts : nn::Module {
  ManyParts() {
    for (int i = 0; i < 1000; ++i) param(std::to_string(i), {4}, nn::init::ones());
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const Tensor& each : parameters()) y = y + each;
    return y;
  }
};

TEST(Module, IsFilledOnceWhereTwoThreadsMakeTheFirstCallAtOnce) {
  Context context({.threads = 1});
  for (int round = 0; round < 20; ++round) {
    auto model = nn::make<ManyParts>();
    std::barrier start(2);
    std::string errors[2];
    std::vector<float> results[2];
    auto call = [&](int number) {
      ContextScope scope(context);
      Tensor x = zeros({4});
      start.arrive_and_wait();
      errors[number] = error_of([&] { results[number] = model(x).to_vector<float>(); });
    };
    std::thread other(call, 1);
    call(0);
    other.join();
    for (const std::string& error : errors) ASSERT_EQ(error, "no error");
    for (const std::vector<float>& result : results) ASSERT_EQ(result, std::vector<float>(4, 1000));
  }
}

TEST(Module, DeferredValuesEqualThoseFilledInPieces) {
  Context context;
  auto model = nn::make<Stack>(), pieces = nn::make<Stack>();
  model->materialize();
  nn::Module& block = *pieces->layers->children()[1].object->children()[0].object;
  const nn::Parameter& weight = *block.own_parameters()[0].object;
  EXPECT_EQ(weight.full_name, "layers.1.up.weight");
  std::vector<float> whole = (*model->layers)[1]->up->weight.to_vector<float>(), joined;
  for (int64_t begin = 0, end; begin < 32; begin = end) {
    end = std::min<int64_t>(begin + 5, 32);
    Tensor part = empty({end - begin});
    weight.fill_range(begin, part);
    for (float value : part.to_vector<float>()) joined.push_back(value);
  }
  EXPECT_EQ(whole, joined);
}

TEST(Module, ASubmoduleFilledByItselfHasTheValuesOfTheWholeModel) {
  Context context;
  auto model = nn::make<Stack>(), part = nn::make<Stack>();
  model->materialize();
  (*part->layers)[1]->up->materialize();
  EXPECT_EQ((*model->layers)[1]->up->weight.to_vector<float>(), (*part->layers)[1]->up->weight.to_vector<float>());
}

TEST(Module, ValuesDependOnSeedAndNameOnly) {
  auto weights = [](uint64_t seed) {
    Context context({.seed = seed});
    auto model = nn::make<Stack>();
    model->materialize();
    return (*model->layers)[0]->up->weight.to_vector<float>();
  };
  EXPECT_EQ(weights(1), weights(1));
  EXPECT_NE(weights(1), weights(2));
  Context context;
  auto model = nn::make<Stack>();
  model->materialize();
  EXPECT_NE((*model->layers)[0]->up->weight.to_vector<float>(), (*model->layers)[1]->up->weight.to_vector<float>());
}

TEST(Module, MovesToADtypeAndADeviceWithItsValuesAndGradients) {
  Context context;
  auto model = nn::make<Stack>();
  model->to(DType::f64);
  Tensor y = model(ones({2, 4}, DType::f64));
  EXPECT_EQ(y.dtype(), DType::f64);
  sum(y).backward();
  std::map<std::string, std::vector<double>> values, gradients;
  for (auto& [name, tensor] : model->named_parameters()) {
    values[name] = tensor.detach().to_vector<double>();
    gradients[name] = tensor.grad().to_vector<double>();
  }
  auto wide = [](const Tensor& t) { return t.detach().to(DType::f64).to(kCpu).to_vector<double>(); };
  for (auto [device, dtype, error] :
       {std::tuple(kAcc, DType::f64, 0.0), {kAcc, DType::f32, 1e-6}, {kCpu, DType::f32, 1e-6}}) {
    model->to(device);
    model->to(dtype);
    for (auto& [name, tensor] : model->named_parameters()) {
      EXPECT_EQ(tensor.device(), device);
      EXPECT_EQ(tensor.dtype(), dtype);
      EXPECT_EQ(tensor.grad().dtype(), dtype);
      for (size_t i = 0; i < values[name].size(); ++i) {
        EXPECT_NEAR(wide(tensor)[i], values[name][i], error) << name;
        EXPECT_NEAR(wide(tensor.grad())[i], gradients[name][i], 10 * error) << name;
      }
    }
    Tensor again = model(ones({2, 4}, {dtype, device}));
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(wide(again)[i], wide(y)[i], 10 * error);
    sum(again).backward();  // into the new storage
    for (auto& [name, tensor] : model->named_parameters()) gradients[name] = wide(tensor.grad());
  }
}

TEST(Module, AGraphOfBeforeAMoveIsRefused) {
  Context context;
  for (DType dtype : {DType::bf16, DType::f64}) {
    auto model = nn::make<nn::Linear>(64, 64);
    Tensor y = model(randn({2, 64}, "x").set_requires_grad());
    model->to(dtype);
    EXPECT_NE(error_of([&] { sum(y).backward(); }).find("changed in place"), std::string::npos) << dtype;
  }
}

TEST(Module, BuffersMoveWithTheirValuesAndStatisticsOfA16BitModelStayInF32) {
  Context context;
  auto norm = nn::make<nn::BatchNorm1d>(3);
  norm(randn({8, 3}, "x"));
  std::vector<float> mean = norm->running_mean.to_vector<float>();
  norm->to(DType::bf16);
  norm->to(kAcc);
  EXPECT_EQ(norm->weight.dtype(), DType::bf16);
  EXPECT_EQ(norm->running_mean.dtype(), DType::f32);
  EXPECT_EQ(norm->running_mean.device(), kAcc);
  EXPECT_EQ(norm->running_mean.to(kCpu).to_vector<float>(), mean);
}

TEST(Module, OtherBuffersAreConvertedUnlessTheyAreOfIntegers) {
  struct Scaled : nn::Module {
    nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 3);
    Tensor scale = buffer("scale", {3}, DType::f32, 0.75), seen = buffer("seen", {1}, DType::i64, 5);
    Tensor forward(const Tensor& x) { return norm(x) * scale; }
  };
  Context context;
  auto model = nn::make<Scaled>();
  model->materialize();
  model->to(DType::f16);
  EXPECT_EQ(model->scale.dtype(), DType::f16);
  EXPECT_EQ(model->scale.to(DType::f32).to_vector<float>(), std::vector<float>(3, 0.75f));
  EXPECT_EQ(model->seen.dtype(), DType::i64);
  EXPECT_EQ(model->norm->running_mean.dtype(), DType::f32);
  EXPECT_EQ(model(randn({4, 3}, "x", DType::f16)).dtype(), DType::f16);
  model->to(DType::f64);
  EXPECT_EQ(model->norm->running_var.dtype(), DType::f64);
}

TEST(Module, AModelWithoutValuesOnMetaCannotGetThemFromThere) {
  Context context;
  auto model = nn::make<Stack>();
  model->to(kMeta);
  model(ones({2, 4}, kMeta));
  EXPECT_NE(error_of([&] { model->to(kCpu); }).find("has no values to copy"), std::string::npos);
}

TEST(Module, MovesToADevice) {
  Context context;
  auto model = nn::make<Stack>();
  model->to(kMeta);
  EXPECT_EQ(model(ones({2, 4}, kMeta)).shape(), Shape({2, 3}));
}

TEST(Module, TrainAndEvalReachEveryModule) {
  Context context;
  auto model = nn::make<Stack>();
  model->eval();
  for (auto& [name, module] : model->named_modules()) EXPECT_FALSE(module->training()) << name;
  model->train();
  for (auto& [name, module] : model->named_modules()) EXPECT_TRUE(module->training()) << name;
}

// --- states --------------------------------------------------------------------------------------------------------

TEST(Module, StateDictCarriesAModelToAnotherOne) {
  Context context({.seed = 1});
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(3, 4).add<nn::BatchNorm1d>(4).add<nn::ReLU>().add_named<nn::Linear>("head", 4, 2);
  Tensor x = randn({6, 3}, "x");
  model(x);
  model->eval();
  Context other_context({.seed = 2});
  auto other = nn::make<nn::Sequential>();
  other->add<nn::Linear>(3, 4).add<nn::BatchNorm1d>(4).add<nn::ReLU>().add_named<nn::Linear>("head", 4, 2);
  other->eval();
  nn::StateDict state = model->state_dict();
  EXPECT_EQ(state.size(), 8u);
  EXPECT_TRUE(state.contains("1.running_var"));
  EXPECT_NE(model(x).to_vector<float>(), other(x).to_vector<float>());
  other->load_state_dict(state);
  EXPECT_EQ(model(x).to_vector<float>(), other(x).to_vector<float>());
}

TEST(Module, AWrongStateDictIsRefusedWithEveryFaultAndChangesNothing) {
  Context context;
  auto model = nn::make<TwoOut>();
  std::vector<float> before = model->state_dict().at("fc.bias").to_vector<float>();
  nn::StateDict wrong{{"fc.bias", zeros({5})}, {"extra", zeros({1})}};
  EXPECT_EQ(error_of([&] { model->load_state_dict(wrong); }),
            "load_state_dict: this is not a state of TwoOut; nothing was loaded:"
            "\n  'fc.bias' is f32[4] here, but f32[5] was given"
            "\n  missing: 'fc.weight', f32[4, 4]"
            "\n  unknown: 'extra', f32[1]");
  EXPECT_EQ(model->fc->bias.to_vector<float>(), before);
}

// The one that cannot be loaded is the last in order.
TEST(Module, AStateWithATensorThatHasNoValuesIsRefusedBeforeAnythingChanges) {
  Context context;
  auto model = nn::make<TwoOut>();
  std::vector<float> before = model->state_dict().at("fc.bias").to_vector<float>();
  nn::StateDict state{{"fc.bias", ones({4})}, {"fc.weight", ones({4, 4}, kMeta)}};
  EXPECT_EQ(error_of([&] { model->load_state_dict(state); }),
            "load_state_dict: this is not a state of TwoOut; nothing was loaded:"
            "\n  'fc.weight' was given on device meta, where it has no values");
  EXPECT_EQ(model->fc->bias.to_vector<float>(), before);
}

TEST(Module, WhatAStateAndAModelShareIsLoadedAndTheOtherNamesAreGiven) {
  Context context;
  auto model = nn::make<TwoOut>();
  std::vector<float> before = model->state_dict().at("fc.weight").to_vector<float>();
  nn::OtherNames others = model->load_known({{"fc.bias", ones({4})}, {"extra", zeros({1})}});
  EXPECT_EQ(others.missing, Names{"fc.weight"});
  EXPECT_EQ(others.unexpected, Names{"extra"});
  EXPECT_EQ(model->fc->bias.to_vector<float>(), std::vector<float>(4, 1));
  EXPECT_EQ(model->fc->weight.to_vector<float>(), before);
  EXPECT_EQ(error_of([&] {
              model->load_known({{"fc.bias", zeros({5})}});
            }),
            "load_state_dict: this is not a state of TwoOut; nothing was loaded:"
            "\n  'fc.bias' is f32[4] here, but f32[5] was given");
  auto tied = nn::make<TiedModel>();
  EXPECT_EQ(tied->load_known({{"head.weight", ones({7, 4})}}).missing, Names{});
  EXPECT_EQ(tied->embed->weight.to_vector<float>(), std::vector<float>(28, 1)) << "by its second name";
}

TEST(Module, ABufferThatIsNotPersistentIsInNoState) {
  Context context;
  auto model = nn::make<nn::BatchNorm1d>(4);
  model->own_buffers()[0].object->persistent = false;
  EXPECT_EQ(model->named_buffers().size(), 2u);
  EXPECT_EQ(names_of(model->saved_buffers()), Names{"running_var"});
  nn::StateDict state = model->state_dict();
  EXPECT_FALSE(state.contains("running_mean"));
  model->load_state_dict(state);
}

TEST(Module, AStateDictMayListTiedParametersUnderBothNames) {
  Context context;
  auto model = nn::make<TiedModel>();
  nn::StateDict state{{"embed.weight", ones({7, 4})}, {"head.weight", ones({7, 4})}};
  model->load_state_dict(state);
  EXPECT_EQ(model->head->weight.to_vector<float>(), std::vector<float>(28, 1));
  state["head.weight"] = state["embed.weight"];
  model->load_state_dict(state);
}

// The state of a model that does not tie them: one of the two would be lost.
TEST(Module, TiedParametersOfDifferentValuesAreRefused) {
  Context context;
  auto model = nn::make<TiedModel>();
  model->materialize();
  std::vector<float> before = model->embed->weight.to_vector<float>();
  nn::StateDict state{{"embed.weight", ones({7, 4})}, {"head.weight", zeros({7, 4})}};
  EXPECT_EQ(error_of([&] { model->load_state_dict(state); }),
            "load_state_dict: this is not a state of TiedModel; nothing was loaded:"
            "\n  'head.weight' was given other values than 'embed.weight', to which it is tied");
  state["head.weight"] = ones({7, 5});
  EXPECT_EQ(error_of([&] { model->load_state_dict(state); }),
            "load_state_dict: this is not a state of TiedModel; nothing was loaded:"
            "\n  'head.weight' is f32[7, 4] here, but f32[7, 5] was given");
  EXPECT_EQ(model->embed->weight.to_vector<float>(), before);
}

TEST(Module, LoadingCountsAsAWriteForBackward) {
  Context context;
  auto model = nn::make<TwoOut>();
  Tensor loss = sum(model(ones({1, 4}).set_requires_grad()).first);
  nn::StateDict state = model->state_dict();
  for (auto& [name, tensor] : state) tensor = clone(tensor.detach());
  model->load_state_dict(state);
  EXPECT_NE(error_of([&] { loss.backward(); }).find("'fc.weight' was changed in place"), std::string::npos);
}

}  // namespace
}  // namespace shardgrad
