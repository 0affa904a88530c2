// An operation that the library has not, from its kernels to a sharded training run: certified, and then a layer of a
// model under ZeRO-3.

#include <cstdio>

#include <shardgrad/autograd/node.h>
#include <shardgrad/certify/certify.h>
#include <shardgrad/certify/registry_cases.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/sim/launch.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/tutorials/k6_your_own_kernel/kernels.h>
#include <shardgrad/tutorials/rung.h>

using sg::Tensor, sg::DType, sg::View, sg::OutView;

constinit sg::Slot<OutView, View> squared_relu_slot{"squared_relu"};
constinit sg::Slot<OutView, View, View> squared_relu_backward_slot{"squared_relu_backward"};

// For the CPU; and what the kernels of other devices are compared with.
template <class T> void forward_on_cpu(const sg::Launch&, OutView y, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    auto in = sg::cpu::convert<sg::cpu::Compute<T>>(x.as<T>()[i]);
    sg::cpu::put_sum(y.as<T>()[i], in < 0 ? 0 : in * in, y.beta != 0);
  }
}
template <class T> void backward_on_cpu(const sg::Launch&, OutView dx, View dy, View x) {
  using C = sg::cpu::Compute<T>;
  for (int64_t i = 0; i < x.numel(); ++i) {
    C in = sg::cpu::convert<C>(x.as<T>()[i]), slope = in < 0 ? 0 : 2 * in;
    sg::cpu::put_sum(dx.as<T>()[i], sg::cpu::convert<C>(dy.as<T>()[i]) * slope, dx.beta != 0);
  }
}
template <class T> bool add_for_cpu(DType dtype) {
  squared_relu_slot.add(sg::DeviceKind::cpu, dtype, forward_on_cpu<T>);
  squared_relu_backward_slot.add(sg::DeviceKind::cpu, dtype, backward_on_cpu<T>);
  return true;
}
const bool added = add_for_cpu<float>(DType::f32) && add_for_cpu<double>(DType::f64) &&
                   add_for_cpu<sg::bf16>(DType::bf16) && add_for_cpu<sg::f16>(DType::f16);

// The operation: forward launches and records, backward writes the gradient where it is wanted.
struct SquaredRelu final : sg::Node {
  const char* name() const override { return "squared_relu"; }
  void backward(std::span<const Tensor> dy, std::span<sg::GradSlot> dx) override {
    sg::launch(squared_relu_backward_slot, dy[0], dx[0].write(), dy[0], saved(0));
  }
};
Tensor squared_relu(const Tensor& x) {
  Tensor y = sg::empty_like(x);
  sg::launch(squared_relu_slot, x, sg::out(y), x);
  if (auto* node = sg::record<SquaredRelu>(y, x)) node->save(x);
  return y;
}

// What it is certified on.
const sg::OfferCases cases([](std::vector<sg::OpCase>& all) {
  auto call = [](sg::Inputs in) { return squared_relu(in[0]); };
  sg::add_case(all, "squared_relu", "", call, {{{3, 5}}});
  sg::add_case(all, "squared_relu", "nothing", call, {{{0, 4}}});
  sg::add_size_case(all, "squared_relu", call, {{{1025}}});
});

void certify(learn::Rung& rung) {
  sg::Certificate certificate = sg::certify("squared_relu", sg::kSim);
  std::printf("squared_relu on sim:");
  for (const auto& property : certificate.properties) {
    rung.require(property.failure.empty(), sg::concat(property.name, ": ", property.failure));
    std::printf(" %s,", property.name.c_str());
  }
  std::printf(" all hold\n");
}

constexpr int kRanks = 2, kSteps = 30, kLayers = 2;
constexpr int64_t kWidth = 16, kBatch = 8;  // samples of a rank

struct Model : sg::nn::Module {
  sg::nn::Child<sg::nn::Linear> first = child<sg::nn::Linear>("first", kWidth, kWidth);
  sg::nn::Child<sg::nn::Linear> second = child<sg::nn::Linear>("second", kWidth, kWidth);
  sg::nn::Child<sg::nn::Linear> last = child<sg::nn::Linear>("last", kWidth, 1);
  Tensor forward(const Tensor& x) { return last(squared_relu(second(squared_relu(first(x))))); }
};

// First and last loss of a rank.
std::pair<double, double> train(sg::dist::ProcessGroup& world) {
  auto model = sg::nn::make<Model>();
  auto sharded = sg::fsdp::fully_shard(model.module(), world, {.strategy = sg::fsdp::Strategy::zero3});
  sg::optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-2});
  Tensor x = sg::randn({kBatch, kWidth}, sg::concat("x of rank ", world.rank())), target = sg::ones({kBatch, 1});
  std::pair<double, double> losses;
  for (int step = 0; step < kSteps; ++step) {
    Tensor loss = sg::mse_loss(model(x), target, double(kRanks * kBatch));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    (step == 0 ? losses.first : losses.second) = loss.item();
  }
  return losses;
}

// How often the simulator ran a kernel in f32.
double launches_of(const std::string& kernel) {
  for (const auto* each = sg::sim::KernelRecord::first(); each; each = each->next())
    if (each->name() == kernel + "<float>") return double(each->launches());
  return 0;
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    {
      sg::Context context({.device = sg::kSim});
      certify(rung);
    }
    double forward = launches_of("squared_relu_kernel"), backward = launches_of("squared_relu_backward_kernel");
    std::pair<double, double> losses;
    auto body = [&](sg::dist::ProcessGroup& world) {
      auto mine = train(world);
      if (world.rank() == 0) losses = mine;
    };
    sg::dist::run_ranks(kRanks, body, {.device = sg::kSim, .threads = 1});
    bool learns = losses.second < 0.1 * losses.first;
    std::printf("%d steps under zero3 with %d ranks: the loss is less than a tenth of the first: %s\n", kSteps, kRanks,
                learns ? "yes" : "no");
    rung.require(learns, "the model does not learn");
    rung.term("S", kSteps), rung.term("W", kRanks), rung.term("L", kLayers);
    rung.count("forward_launches", launches_of("squared_relu_kernel") - forward);
    rung.count("backward_launches", launches_of("squared_relu_backward_kernel") - backward);
  });
}
