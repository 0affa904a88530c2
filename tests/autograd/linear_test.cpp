// A layer's backward does the backward of the ReLU below it, where nobody else has a part in that gradient.

#include <shardgrad/autograd/recompute.h>
#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

struct FusableLayers {
  bool fused;
  Tensor x, w1, w2, w3, b;
  FusableLayers(bool fused, Device device) : fused(fused) {
    auto numbers = [&](Shape shape, uint64_t stream) {
      return upstream_like(empty(shape, {DType::f32, device}), stream).set_requires_grad();
    };
    x = numbers({5, 7}, 1), w1 = numbers({6, 7}, 2), w2 = numbers({6, 6}, 3), w3 = numbers({6, 6}, 4);
    b = numbers({6}, 5);
  }
  // With ReLU as part of the layer, or as an operation of its own.
  Tensor layer(const Tensor& x, const Tensor& w) const {
    return fused ? linear(x, w, b, Activation::relu) : relu(linear(x, w, b));
  }
  std::vector<std::vector<uint8_t>> gradients() const {
    std::vector<std::vector<uint8_t>> all;
    for (const Tensor& t : {x, w1, w2, w3, b}) all.push_back(bits(t.grad()));
    return all;
  }
};

using Program = void (*)(const FusableLayers&);
const std::pair<const char*, Program> kPrograms[] = {
    {"a chain", [](const FusableLayers& l) { sum(l.layer(l.layer(l.layer(l.x, l.w1), l.w2), l.w3)).backward(); }},
    {"a residual",
     [](const FusableLayers& l) {
       Tensor h = l.layer(l.x, l.w1);
       sum(l.layer(l.layer(h, l.w2) + h, l.w3)).backward();
     }},
    {"two users",
     [](const FusableLayers& l) {
       Tensor h = l.layer(l.x, l.w1);
       sum(l.layer(h, l.w2) + l.layer(h, l.w3)).backward();
     }},
    {"a root in the middle",
     [](const FusableLayers& l) {
       Tensor h = l.layer(l.x, l.w1), y = l.layer(l.layer(h, l.w2), l.w3);
       backward(std::vector<Tensor>{y, h}, std::vector<Tensor>{upstream_like(y, 8), upstream_like(h, 9)});
     }},
    {"again from a root further down",
     [](const FusableLayers& l) {
       Tensor h = l.layer(l.x, l.w1), y = l.layer(l.layer(h, l.w2), l.w3);
       y.backward(upstream_like(y, 8), true);
       h.backward(upstream_like(h, 9));
     }},
    {"a view between",
     [](const FusableLayers& l) {
       Tensor h = reshape(l.layer(l.x, l.w1), {1, 5, 6});
       sum(l.layer(l.layer(h, l.w2), l.w3)).backward();
     }},
    {"recomputed",
     [](const FusableLayers& l) {
       auto block = [&l](const Tensor& h) { return l.layer(l.layer(h, l.w1), l.w2); };
       sum(l.layer(checkpoint(block, l.x), l.w3)).backward();
     }},
};

TEST(Linear, ReluAsPartOfTheLayerGivesTheBitsOfReluByItself) {
  Context context;
  std::vector<Device> devices = kernel_devices();
  devices.insert(devices.begin(), {kCpu, kAcc});
  for (Device device : devices)
    for (auto [name, program] : kPrograms) {
      FusableLayers fused(true, device), apart(false, device);
      program(fused);
      program(apart);
      EXPECT_EQ(fused.gradients(), apart.gradients()) << name << " on " << device;
    }
}

}  // namespace
}  // namespace shardgrad::test
