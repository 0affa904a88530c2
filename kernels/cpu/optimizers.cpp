// sgd and adam over flat ranges, in one pass.

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

void sgd(const Launch& launch, OutView p, OutView momentum, View g, kernels::SgdArgs args) {
  SgdStep step{args.lr,         args.momentum, args.dampening, args.weight_decay,
               args.grad_scale, args.nesterov, args.first_step};
  auto loop = loops().optimizers.sgd[int(p.dtype)];
  size_t size = size_of(p.dtype);
  parallel_elements(launch.threads, p.numel(), [&](int64_t begin, int64_t end) {
    char* buffer = momentum.defined() ? momentum.as<char>() + begin * size : nullptr;
    loop(p.as<char>() + begin * size, buffer, g.as<char>() + begin * size, end - begin, step);
  });
}

void adam(const Launch& launch, OutView p, OutView exp_avg, OutView exp_avg_sq, View g, kernels::AdamArgs args) {
  AdamStep step{args.lr,
                args.beta1,
                args.beta2,
                args.eps,
                args.weight_decay,
                args.bias_correction1,
                args.bias_correction2,
                args.grad_scale,
                args.decoupled};
  auto loop = loops().optimizers.adam[int(p.dtype)];
  size_t size = size_of(p.dtype);
  parallel_elements(launch.threads, p.numel(), [&](int64_t begin, int64_t end) {
    loop(p.as<char>() + begin * size, exp_avg.as<char>() + begin * size, exp_avg_sq.as<char>() + begin * size,
         g.as<char>() + begin * size, end - begin, step);
  });
}

const Each registered_sgd(kernels::sgd, kWideFloats, sgd);
const Each registered_adam(kernels::adam, kWideFloats, adam);

}  // namespace
}  // namespace shardgrad::cpu
