// An operation made of two functions: y = x / (1 + |x|), its derivative, and the inputs it is certified on.
//
// The file is compiled once for each kind of device that runs kernels (the simulator, GPUs), so what is not a kernel is
// `inline`: a program has it once. The last line makes a kernel for the device.

#include <cuda_runtime.h>  // on the simulator its own

#include <cmath>

#include <shardgrad/autograd/elementwise.h>
#include <shardgrad/certify/registry_cases.h>
#include <shardgrad/kernels/cuda/add_elementwise.h>

namespace outside {

using namespace shardgrad;

struct Value {
  template <class C> __host__ __device__ C operator()(C x) const { return x / (1 + std::abs(x)); }
};
struct Slope {
  template <class C> __host__ __device__ C operator()(C x) const { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); }
};

inline const auto softsign = elementwise("softsign", Value(), Slope());

inline const OfferCases softsign_cases([](std::vector<OpCase>& all) {
  add_unary_cases(all, "softsign", softsign);
  add_speed_case(all, "softsign", [](Inputs in) { return softsign(in[0]); }, {{{2048, 4096}}});
});

}  // namespace outside

namespace shardgrad::SG_DEVICE {
namespace {
const Registered registered = add_elementwise(outside::softsign);
}
}  // namespace shardgrad::SG_DEVICE
