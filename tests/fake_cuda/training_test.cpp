// Sharded training on the pretended GPU, with the CPU's kernels queued on its streams: memory, order and staging of
// device cuda change nothing of the numbers.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <numeric>
#include <optional>
#include <thread>

#include <shardgrad/kernels/cuda/library.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/step.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/queued_kernels.h"
#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

// Another kernel for f32 until the end of the scope.
template <class... Args> class Replaced {
 public:
  Replaced(Slot<Args...>& slot, typename Slot<Args...>::Kernel kernel)
      : slot_(slot), old_(slot.find(DeviceKind::cuda, DType::f32)) {
    slot.add(DeviceKind::cuda, DType::f32, kernel);
  }
  ~Replaced() { slot_.add(DeviceKind::cuda, DType::f32, old_); }

 private:
  Slot<Args...>& slot_;
  typename Slot<Args...>::Kernel old_;
};

// Products are the CPU's here, which leave no masks.
void no_mask(const Launch&, int64_t* bytes, OutView, View, View, View, kernels::MatmulArgs) { *bytes = 0; }

class OnFakeCuda : public ::testing::TestWithParam<std::tuple<int, Strategy, std::string>> {
 protected:
  void SetUp() override { fake_cuda::reset(); }
  Replaced<int64_t*, OutView, View, View, View, kernels::MatmulArgs> no_masks_{kernels::relu_mask_bytes, no_mask};
};

TEST_P(OnFakeCuda, TrainingGivesTheBitsOfTheCpu) {
  auto [world, strategy, group] = GetParam();
  fsdp::testing::TrainingRun setup{.world = world, .steps = 4, .group = group};
  setup.config.strategy = strategy;
  for (Optim optim : {Optim::sgd, Optim::adamw}) {
    setup.optim = optim;
    setup.device = kCpu;
    Outcome expected = train<Chain>(setup);
    setup.device = kCuda;
    EXPECT_TRUE(train<Chain>(setup) == expected);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// What is kept in host memory is pinned, so that copies run beside compute.
TEST(OnFakeCudaOffload, HostMemoryIsPinnedAndTheBitsAreThoseOfTheCpu) {
  fake_cuda::reset();
  Replaced no_masks(kernels::relu_mask_bytes, no_mask);
  for (int world : {1, 2}) {
    fsdp::testing::TrainingRun setup{.world = world, .steps = 4};
    setup.config.strategy = Strategy::zero3;
    setup.device = kCpu;
    Outcome expected = train<Chain>(setup);
    setup.device = kCuda;
    train<Chain>(setup);
    EXPECT_TRUE(world > 1 || fake_cuda::calls("cudaHostAlloc") == 0) << "one rank stages nothing";
    setup.config.move_params_to_cpu = true;
    EXPECT_TRUE(train<Chain>(setup) == expected);
    EXPECT_GT(fake_cuda::calls("cudaHostAlloc"), 0);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST(OnFakeCudaRanges, AProfilerSeesTheForwardAndBackwardOfEveryUnit) {
  fake_cuda::reset();
  Replaced no_masks(kernels::relu_mask_bytes, no_mask);
  fsdp::testing::TrainingRun setup{.world = 1, .steps = 3};
  setup.device = kCuda;
  train<Chain>(setup);
  auto ranges = fake_cuda::overlapping_ranges();
  std::map<std::string, int> units;  // how often each ran
  for (const auto& [name, times] : ranges) units[name.substr(name.find(' ') + 1)] += times;
  EXPECT_GT(units.size(), 1u);
  for (const auto& [unit, times] : units) {
    EXPECT_EQ(ranges["forward " + unit], 3) << unit;
    EXPECT_EQ(ranges["backward " + unit], 3) << unit;
  }
  EXPECT_EQ(fake_cuda::open_overlapping_ranges(), 0);
  auto operations = fake_cuda::nested_ranges();
  EXPECT_EQ(operations["linear_backward_weight"], 3 * 3) << "a layer of the chain, in a step";
  EXPECT_GT(operations["sgd"], 0);
}

/// About 24 MB of parameters: what the allocator takes of the driver at a time is soon used up.
struct Large : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 1400), a = child<nn::Linear>("a", 1400, 1400),
                        b = child<nn::Linear>("b", 1400, 1400), c = child<nn::Linear>("c", 1400, 1400),
                        out = child<nn::Linear>("out", 1400, 5);
  Tensor forward(const Tensor& x) { return out(relu(c(relu(b(relu(a(relu(in(x))))))))); }
};

TEST(OnFakeCudaMemory, TheDriverIsAskedForNothingAfterTheSecondStep) {
  Replaced no_masks(kernels::relu_mask_bytes, no_mask);
  for (auto [world, strategy] : {std::pair(1, Strategy::ddp), {2, Strategy::zero3}}) {
    std::vector<int64_t> asked;
    for (int steps : {2, 8}) {
      fake_cuda::reset();
      fsdp::testing::TrainingRun setup{.world = world, .optim = Optim::adamw, .device = kCuda, .steps = steps};
      setup.config.strategy = strategy;
      train<Large>(setup);
      asked.push_back(fake_cuda::calls("cudaMalloc"));
    }
    EXPECT_GE(asked[0], 2) << "too small a model";
    EXPECT_EQ(asked[0], asked[1]) << name_of(strategy);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// Work that holds up the GPU while it lives, or for some seconds: whoever waits for the GPU finds that.
class HeldUp {
 public:
  explicit HeldUp(Stream& stream) {
    fake_cuda::launch(static_cast<cudaStream_t>(stream.native()),
                      [released = released_.get_future().share()] { released.wait_for(kLimit); });
  }
  ~HeldUp() { released_.set_value(); }
  bool still() const { return std::chrono::steady_clock::now() - begin_ < kLimit; }

 private:
  static constexpr std::chrono::seconds kLimit{2};
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::promise<void> released_;
};

TEST(OnFakeCudaLoader, ABatchTravelsWhileTheGpuComputesAndTheHostWaitsForNothing) {
  fake_cuda::reset();
  {
    Context context({.device = kCuda});
    std::vector<float> numbers(64 * 4);
    std::iota(numbers.begin(), numbers.end(), 0.f);
    Tensor x = from_vector(numbers, {64, 4}, {DType::f32, kCpu}), y = x.sum(1);
    data::DataLoader loader(std::make_shared<data::TensorDataset>(std::vector{x, y}),
                            {.batch = 8, .shuffle = false, .device = kCuda});
    loader.get(0, 0);  // makes the stream, and asks for memory
    int64_t recorded = fake_cuda::calls("cudaEventRecord"), synchronized = fake_cuda::calls("cudaStreamSynchronize");
    {
      HeldUp gpu(context.backend(kCuda).compute());
      int copied = fake_cuda::copied();
      for (int64_t step : {1, 2, 3}) loader.get(0, step);  // which nobody keeps, as in a loop over an epoch
      while (fake_cuda::copied() < copied + 2 && gpu.still()) std::this_thread::yield();
      EXPECT_TRUE(gpu.still()) << "the next batch has not come";
    }
    EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), recorded + 6)
        << "one for the fields of a batch, and one for the memory of a batch before";
    EXPECT_EQ(fake_cuda::calls("cudaStreamSynchronize"), synchronized);
    EXPECT_GT(fake_cuda::calls("cudaHostAlloc"), 0) << "what copies are fast from";
    for (int64_t step = 0; step < 8; ++step) {
      data::Batch batch = loader.get(0, step);
      EXPECT_EQ(batch.fields[0].device(), kCuda);
      EXPECT_EQ(batch.fields[0].to_vector<float>(), x.rows(8 * step, 8 * step + 8).to_vector<float>());
      EXPECT_EQ(batch.fields[1].to_vector<float>(), y.rows(8 * step, 8 * step + 8).to_vector<float>());
    }
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// The norm is joined where the gradients are, and the update reads the factor there.
TEST(OnFakeCudaClipping, AStepThatClipsWaitsForNothingAndHasTheBitsOfTheCpu) {
  Replaced no_masks(kernels::relu_mask_bytes, no_mask);
  for (Optim kind : {Optim::sgd, Optim::adamw}) {
    std::vector<std::vector<double>> weights;
    for (Device device : {kCpu, kCuda}) {
      fake_cuda::reset();
      auto body = [&](dist::ProcessGroup& world) {
        AnyModel model = any_model<Chain>();
        auto sharded = fully_shard(model.module, world, {});
        auto optimizer = make_optimizer(kind, model.module.named_parameters());
        for (int step = 0; step < 6; ++step) {
          Tensor x = rows_of_batch("x", step, 0, 12, 7, DType::f32), y = rows_of_batch("y", step, 0, 12, 5, DType::f32);
          std::optional<HeldUp> gpu;
          if (step == 3 && device == kCuda) gpu.emplace(context().backend(kCuda).compute());
          mse_loss(model.output(x), y, 60).backward();
          optimizer->step(optim::clip_scale(grad_power(*sharded), 0.05));
          optimizer->zero_grad();
          EXPECT_TRUE(!gpu || gpu->still());
        }
        EXPECT_TRUE(contains(message_of([&] { optimizer->step(zeros({2}, DType::f64)); }), "one number of f64"));
        for (auto& [name, value] : full_state_dict(*sharded, false)) weights.push_back(values_of(value));
      };
      dist::run_ranks(1, body, {.device = device, .seed = 1});
    }
    size_t half = weights.size() / 2;
    ASSERT_GT(half, 0u);
    for (size_t i = 0; i < half; ++i) EXPECT_TRUE(same_bits(weights[i], weights[half + i])) << i;
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// Biases that do not decay cut a shard into many ranges, and a plain model's parameters lie apart.
TEST(OnFakeCudaUpdates, RangesWithRulesOfTheirOwnAreOneLaunchWithTheBitsOfTheCpu) {
  Replaced no_masks(kernels::relu_mask_bytes, no_mask);
  for (bool shard : {false, true})
    for (Optim kind : {Optim::sgd, Optim::adamw}) {
      std::vector<std::vector<double>> weights;
      for (Device device : {kCpu, kCuda}) {
        fake_cuda::reset();
        auto body = [&](dist::ProcessGroup& world) {
          AnyModel model = any_model<Chain>();
          std::shared_ptr<Sharded> sharded;
          if (shard) sharded = fully_shard(model.module, world, {.strategy = Strategy::zero3});
          auto optimizer = make_optimizer(kind, model.module.named_parameters());
          for (size_t i = 0; i < optimizer->parameters().size(); ++i) optimizer->set_lr_of(i, 0.01 * double(i + 1));
          for (int step = 0; step < 3; ++step) {
            Tensor x = rows_of_batch("x", step, 0, 12, 7, DType::f32),
                   y = rows_of_batch("y", step, 0, 12, 5, DType::f32);
            mse_loss(model.output(x), y, 60).backward();
            fake_cuda::reset();
            optimizer->step();
            EXPECT_EQ(fake_cuda::nested_ranges()[kind == Optim::sgd ? "sgd" : "adam"], device == kCuda ? 1 : 0);
            optimizer->zero_grad();
          }
          for (const NamedParameter& parameter : model.module.named_parameters())
            if (!shard) weights.push_back(values_of(parameter.tensor));
          if (!shard) return;
          for (auto& [name, value] : full_state_dict(*sharded, false)) weights.push_back(values_of(value));
        };
        dist::run_ranks(1, body, {.device = device, .seed = 1});
      }
      size_t half = weights.size() / 2;
      ASSERT_GT(half, 3u);
      for (size_t i = 0; i < half; ++i) EXPECT_TRUE(same_bits(weights[i], weights[half + i])) << shard << ' ' << i;
    }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

struct Fit : train::Task {
  nn::Child<Chain> net = nn::make<Chain>();
  nn::Module& module() override { return *net; }
  Tensor loss(const data::Batch& batch) override { return mse_loss(net(batch.fields[0]), batch.fields[1], 60); }
};

// As `train` steps: who wants to know the norm waits for it, once the update is queued, and nobody else.
TEST(OnFakeCudaClipping, AStepOfTheEngineWaitsForANormThatIsWanted) {
  Replaced no_masks(kernels::relu_mask_bytes, no_mask);
  fake_cuda::reset();
  auto body = [&](dist::ProcessGroup& world) {
    train::Config config;
    config.clip_grad_norm = 0.05;
    Fit task;
    auto sharded = fully_shard(task.module(), world, {});
    auto optimizer = make_optimizer(Optim::adamw, task.module().named_parameters());
    optim::GradScaler scaler({.enabled = false});
    data::Batch batch{.global_count = 12, .count = 12};
    batch.fields = {rows_of_batch("x", 0, 0, 12, 7, DType::f32), rows_of_batch("y", 0, 0, 12, 5, DType::f32)};
    int steps = 0;  // the first one makes states and lists
    for (bool wanted : {false, false, true, false}) {
      std::optional<HeldUp> gpu;
      if (!wanted && steps++ > 0) gpu.emplace(context().backend(kCuda).compute());
      auto done = train::train_step({config, task, *sharded, {optimizer.get()}, scaler}, batch, wanted);
      EXPECT_TRUE(!gpu || gpu->still());
      EXPECT_EQ(done.grad_norm.has_value(), wanted);
      EXPECT_TRUE(!wanted || *done.grad_norm > 0.05);
    }
  };
  dist::run_ranks(1, body, {.device = kCuda, .seed = 1});
}

std::string name_of_case(const ::testing::TestParamInfo<OnFakeCuda::ParamType>& info) {
  auto [world, strategy, group] = info.param;
  return concat(group, "_", name_of(strategy), "_", world);
}
INSTANTIATE_TEST_SUITE_P(Training, OnFakeCuda,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(Strategy::ddp, Strategy::zero2, Strategy::zero3),
                                            ::testing::Values("threads", "shared_memory")),
                         name_of_case);

// --- a chain of layers with ReLU is products and nothing else -------------------------------------------------------

void product(const Launch& how, OutView c, OutView pre, View a, View b, View bias, kernels::MatmulArgs args) {
  EXPECT_TRUE(gpu::library_product(how, c, pre, a, b, bias, args));
}
void backward_input(const Launch& how, OutView dx, View dy, View w, View x, View mask) {
  EXPECT_EQ(x.defined(), mask.defined());
  EXPECT_TRUE(gpu::library_backward_input(how, dx, dy, w, x, mask));
}
void backward_weight(const Launch& how, OutView dw, OutView dbias, View dy, View x) {
  EXPECT_TRUE(gpu::library_backward_weight(how, dw, dbias, dy, x));
}
void no_relu(const Launch&, OutView, View) { ADD_FAILURE() << "a kernel for relu"; }
void no_relu_backward(const Launch&, OutView, View, View) { ADD_FAILURE() << "a kernel for relu's backward"; }
void no_sum(const Launch&, OutView, View) { ADD_FAILURE() << "a kernel for the bias gradient"; }

struct Layers {
  Tensor x = test::uniform({12, 24}, "x"), target = test::uniform({12, 8}, "target");
  std::vector<Tensor> w, b;
  Layers() {
    for (auto [in, out] : {std::pair(24, 40), {40, 136}, {136, 8}}) {
      w.push_back(affine(test::uniform({out, in}, concat("w", in)), 0.5, -0.25).detach().set_requires_grad());
      b.push_back(affine(test::uniform({out}, concat("b", in)), 1, -0.5).detach().set_requires_grad());
    }
  }
  Tensor loss() const {
    Tensor h = linear(x, w[0], b[0], Activation::relu);
    return mse_loss(linear(linear(h, w[1], b[1], Activation::relu), w[2], b[2]), target);
  }
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> all;
    for (size_t i = 0; i < 3; ++i)
      for (const Tensor& parameter : {w[i], b[i]}) all.push_back(parameter.grad().to_vector<float>());
    return all;
  }
};

void expect_near(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b, float scale) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < a[i].size(); ++k) ASSERT_NEAR(a[i][k], scale * b[i][k], 1e-5) << i << ' ' << k;
}

TEST(OnFakeCudaLayers, AChainWithReluCostsThreeProductsPerLayerAndNoOtherKernel) {
  fake_cuda::reset();
  std::vector<std::vector<float>> expected;
  {
    Context context;
    Layers layers;
    layers.loss().backward();
    expected = layers.gradients();
  }
  Context context({.device = kCuda});
  Layers layers;
  Replaced a(kernels::matmul, product);
  Replaced b(kernels::linear_backward_input, backward_input);
  Replaced c(kernels::linear_backward_weight, backward_weight);
  {
    Replaced d(kernels::relu, no_relu);
    Replaced e(kernels::relu_backward, no_relu_backward);
    Replaced f(kernels::sum_to, no_sum);
    int before = fake_cuda::products();
    fake_cuda::reset();
    layers.loss().backward();
    EXPECT_EQ(fake_cuda::products(), before + 8) << "three per layer; nobody wants the gradient of x";
    using Ranges = std::map<std::string, int>;
    EXPECT_EQ(fake_cuda::nested_ranges(), (Ranges{{"matmul", 3},
                                                  {"linear_backward_input", 2},
                                                  {"linear_backward_weight", 3},
                                                  {"mse", 1},
                                                  {"mse_backward", 1},
                                                  {"fill", 1}}))
        << "and the loss's own gradient";
  }
  expect_near(layers.gradients(), expected, 1);
  layers.loss().backward();  // adds to gradients: the library's sum of a bias gradient would overwrite it
  expect_near(layers.gradients(), expected, 2);
}

void faulty(const Launch& how, OutView, View) {
  fake_cuda::launch_fault(static_cast<cudaStream_t>(how.native_stream), cudaErrorIllegalAddress);
}

TEST(OnFakeCudaErrors, AFaultOfAnOperationNamesItItsShapesAndTheRank) {
  fake_cuda::reset();
  setenv("SHARDGRAD_CHECK", "1", 1);
  kernels::log.add(DeviceKind::cuda, DType::f32, faulty);
  {
    Context context({.rank = 2, .world_size = 3, .device = kCuda});
    Tensor x = full({2, 3}, 1);
    std::string message;
    try {
      log(x);
    } catch (const DeviceFault& fault) {
      message = fault.what();
    }
    EXPECT_NE(
        message.find("log(f32[2, 3], f32[2, 3]) on rank 2: 'log' on stream cuda/compute: an illegal memory access"),
        std::string::npos)
        << message;
  }
  unsetenv("SHARDGRAD_CHECK");
  fake_cuda::reset();
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
