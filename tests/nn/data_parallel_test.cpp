// DataParallel: one process, several devices, with PyTorch's rules.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/sgd.h>

#include "tests/numbers.h"

namespace shardgrad::data_parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr Device kAcc1{DeviceKind::acc, 1};

struct Net : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 3, 8), down = child<nn::Linear>("down", 8, 2);
  Tensor forward(const Tensor& x) { return down(tanh(up(x))); }
};

std::string refused(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Seen : nn::Module {
  Tensor weight = param("weight", {1}, nn::init::ones()), calls = buffer("calls", {1});
  std::vector<int64_t>* rows = nullptr;
  std::pair<Tensor, std::vector<Tensor>> forward(const std::tuple<Tensor, Tensor>& both, int times) {
    const auto& [x, y] = both;
    if (rows) rows->push_back(x.size(0));
    NoGrad no_grad;
    fill_(calls, calls.item() + 1);
    return {x * double(times), {y, sum(x)}};
  }
};

std::vector<int64_t> rows_seen(int64_t batch, size_t devices) {
  std::vector<int64_t> rows;
  auto make = [&] {
    auto module = nn::make<Seen>();
    module->rows = &rows;
    return module;
  };
  nn::DataParallel<Seen> parallel(make(), std::vector<Device>(devices, kCpu), make);
  auto [x, rest] = parallel(std::tuple(ones({batch, 2}), ones({batch, 3})), 5);
  EXPECT_EQ(x.shape(), Shape({batch, 2}));
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(size_t(batch) * 2, 5)) << "integers go to all";
  EXPECT_EQ(rest.at(0).shape(), Shape({batch, 3}));
  Shape numbers = devices > 1 ? Shape({std::ssize(rows)}) : Shape();
  EXPECT_EQ(rest.at(1).shape(), numbers) << "one of each replica";
  return rows;
}

TEST(DataParallel, I49_ABatchIsCutAlongDimensionZero) {
  Context context;
  EXPECT_THAT(rows_seen(7, 3), ElementsAre(3, 3, 1));
  EXPECT_THAT(rows_seen(9, 4), ElementsAre(3, 3, 3)) << "three replicas";
  EXPECT_THAT(rows_seen(2, 3), ElementsAre(1, 1)) << "two replicas";
  EXPECT_THAT(rows_seen(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(rows_seen(5, 1), ElementsAre(5)) << "the model's own call";
}

TEST(DataParallel, I49_NumbersOfReplicasBecomeAVector) {
  Context context;
  auto make = [] { return nn::make<Seen>(); };
  nn::DataParallel<Seen> parallel(make(), {kCpu, kCpu}, make);
  Tensor x = from_vector<float>({1, 2, 3, 4, 5}, {5, 1});
  EXPECT_EQ(parallel(std::tuple(x, x), 1).second.at(1).to_vector<float>(), (std::vector<float>{6, 9}));
}

std::vector<std::vector<double>> gradients(std::vector<Device> devices, int64_t batch, int passes) {
  Context context({.seed = 4, .threads = 1});
  auto model = nn::make<Net>();
  model->to(DType::f64);
  nn::DataParallel parallel(model, std::move(devices));
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<std::vector<double>> found;
  for (int step = 0; step < 3; ++step) {
    std::vector<Tensor> losses;  // all forwards before the first backward
    for (int pass = 0; pass < passes; ++pass) {
      Tensor x = test::normal({batch, 3}, concat("x", step, pass), {DType::f64, kCpu}),
             y = test::normal({batch, 2}, concat("y", step, pass), {DType::f64, kCpu});
      losses.push_back(mse_loss(parallel(x), y));
    }
    for (const Tensor& loss : losses) loss.backward();
    for (const NamedParameter& parameter : model->named_parameters())
      found.push_back(parameter.tensor.grad().to_vector<double>());
    optimizer.step();
    optimizer.zero_grad();
  }
  return found;
}

TEST(DataParallel, I49_GradientsAreSummedIntoTheModelAndAreOneDevices) {
  for (int64_t batch : {1, 2, 7, 9})
    for (int passes : {1, 2})
      for (const std::vector<Device>& devices :
           {std::vector<Device>{kCpu, kCpu, kCpu}, {kCpu, kAcc, kAcc1}, {kCpu, kAcc, kCpu, kAcc}}) {
        auto expected = gradients({kCpu}, batch, passes), found = gradients(devices, batch, passes);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t p = 0; p < found.size(); ++p)
          for (size_t i = 0; i < found[p].size(); ++i)
            ASSERT_NEAR(found[p][i], expected[p][i], 1e-12) << batch << " rows, " << devices.size() << " devices";
      }
}

TEST(DataParallel, I49_GradientsAreAddedUpAndNotAveraged) {
  Context context({.threads = 1});
  auto model = nn::make<nn::Linear>(1, 1);
  nn::DataParallel<nn::Linear> parallel(model, {kCpu, kCpu, kCpu}, [] { return nn::make<nn::Linear>(1, 1); });
  sum(parallel(from_vector<float>({1, 2, 3, 4, 5, 6, 7}, {7, 1}))).backward();
  EXPECT_EQ(model->weight.grad().item(), 28) << "and not 28 / 3";
  EXPECT_EQ(model->bias.grad().item(), 7);
}

TEST(DataParallel, I49_WhatReplicasChangeInBuffersIsLost) {
  Context context;
  auto make = [] { return nn::make<Seen>(); };
  auto model = make();
  nn::DataParallel<Seen> parallel(model, {kCpu, kCpu, kCpu}, make);
  for (int i = 1; i <= 3; ++i) {
    parallel(std::tuple(ones({6, 1}), ones({6, 1})), 1);
    EXPECT_EQ(model->calls.item(), i) << "by the first replica";
  }
}

TEST(DataParallel, ReplicasFollowTheModelsValuesModeAndWhatIsTrained) {
  Context context({.threads = 1});
  auto model = nn::make<Net>();
  nn::DataParallel parallel(model, {kCpu, kCpu});
  model->up->weight.set_requires_grad(false);
  sum(parallel(ones({4, 3}))).backward();
  EXPECT_FALSE(model->up->weight.grad().defined());
  EXPECT_TRUE(model->up->bias.grad().defined());
  {
    NoGrad no_grad;
    fill_(model->down->bias, 100);
    fill_(model->down->weight, 0);
    EXPECT_EQ(parallel(ones({4, 3})).to_vector<float>(), std::vector<float>(8, 100));
  }
}

struct HalfAsleep : nn::Module {
  nn::Child<nn::Dropout> first = child<nn::Dropout>("first", 0.5), second = child<nn::Dropout>("second", 0.5);
  Tensor forward(const Tensor& x) { return first(x) + second(x) * 0; }
};

TEST(DataParallel, AModuleThatIsInEvalIsSoInEveryReplica) {
  Context context({.threads = 1});
  auto model = nn::make<HalfAsleep>();
  nn::DataParallel parallel(model, {kCpu, kCpu});
  model->train();
  model->first->eval();
  EXPECT_EQ(parallel(ones({8, 4})).to_vector<float>(), std::vector<float>(32, 1));
}

// Two that are called, each on a device of its own, each wait there until the other has come.
struct Meets : nn::Module {
  std::atomic<int>* here = nullptr;
  Tensor forward(const Tensor& x) {
    context().backend(x.device()).compute().run("meet", [here = here] {
      ++*here;
      for (int i = 0; *here < 2 && i < 5000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (*here < 2) fail("the other replica has not come");
    });
    return x + 1;
  }
};

TEST(DataParallel, ReplicasComputeBesideEachOther) {
  Context context({.threads = 1, .device = kAcc});
  std::atomic<int> here{0};
  auto make = [&] {
    auto module = nn::make<Meets>();
    module->here = &here;
    return module;
  };
  nn::DataParallel<Meets> parallel(make(), {kAcc, kAcc1}, make);
  EXPECT_EQ(parallel(ones({3, 1})).to_vector<float>(), std::vector<float>(3, 2));
}

struct Fails : nn::Module {
  Tensor weight = param("weight", {1}, nn::init::ones());
  Tensor forward(const Tensor& x) { return x * weight; }
};

TEST(DataParallel, AFailedBackwardLeavesNoPartInTheReplicas) {
  Context context({.threads = 1});
  auto model = nn::make<Fails>();
  nn::DataParallel parallel(model, {kCpu, kCpu});
  Tensor x = ones({4, 1}).set_requires_grad();
  Tensor y = parallel(x);
  leaf_of(x).add_ready_hook([] { fail("no more"); });
  EXPECT_THROW(sum(y).backward(), Error);
  model->zero_grad();
  sum(parallel(ones({4, 1}))).backward();
  EXPECT_EQ(model->weight.grad().item(), 4);
}

TEST(DataParallel, GradGivesThatOfInputsAndRefusesAParameterWhosePartsItWouldLeaveOut) {
  Context context({.threads = 1});
  auto model = nn::make<Fails>();
  nn::DataParallel parallel(model, {kCpu, kCpu});
  Tensor x = ones({4, 1}).set_requires_grad();
  EXPECT_THAT(refused([&] { grad(sum(parallel(x)), {model->weight}); }),
              HasSubstr("'weight' is a parameter of DataParallel, whose gradient is the sum over its replicas; call"));
  EXPECT_FALSE(model->weight.grad().defined());
  EXPECT_EQ(grad(sum(parallel(x)), {x})[0].to_vector<float>(), std::vector<float>(4, 1));
  sum(parallel(x)).backward();
  EXPECT_EQ(model->weight.grad().item(), 4);
}

TEST(DataParallel, WhatCannotBeIsRefusedByName) {
  Context context;
  auto model = nn::make<Net>();
  EXPECT_THAT(refused([&] { nn::DataParallel parallel(model, {}); }), HasSubstr("no device is given"));
  EXPECT_THAT(refused([&] {
                nn::DataParallel parallel(model, {kAcc, kCpu});
              }),
              HasSubstr("'up.weight' is on cpu, but the first device is acc; move the model there with to()"));
  nn::DataParallel parallel(model, {kCpu, kCpu});
  EXPECT_THAT(refused([&] { parallel(full({}, 3)); }), HasSubstr("has no rows to divide; give it as a double"));
  auto make = [] { return nn::make<Seen>(); };
  nn::DataParallel<Seen> two(make(), {kCpu, kCpu}, make);
  EXPECT_THAT(refused([&] { two(std::tuple(ones({3, 1}), ones({2, 1})), 1); }), HasSubstr("have 3 and 2 rows"));
  EXPECT_THAT(refused([&] {
                nn::DataParallel<nn::Linear>(nn::make<nn::Linear>(3, 2), {kCpu, kCpu},
                                             [] { return nn::make<nn::Linear>(3, 4); });
              }),
              HasSubstr("a replica differs from the model in 'weight'; give a function that makes the same module"));
}

}  // namespace
}  // namespace shardgrad::data_parallel
