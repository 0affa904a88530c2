#include <shardgrad/optim/adam.h>

#include <cmath>

#include <shardgrad/kernels/ops.h>
#include <shardgrad/optim/gathered_updates.h>

namespace shardgrad::optim {

struct Adam::Gathered : GatheredUpdates<kernels::AdamArgs> {};

Adam::Adam(const char* name, std::vector<NamedParameter> parameters, AdamOptions options, Rules rules, bool decoupled)
    : Optimizer(name, std::move(parameters), options.lr, options.weight_decay.value_or(decoupled ? 0.01 : 0),
                std::move(rules), {"exp_avg", "exp_avg_sq"}, options.stochastic_rounding),
      options_(options),
      gathered_(std::make_shared<Gathered>()),
      decoupled_(decoupled) {
  check_option(name, "beta1", options.beta1, options.beta1 >= 0 && options.beta1 < 1);
  check_option(name, "beta2", options.beta2, options.beta2 >= 0 && options.beta2 < 1);
  check_option(name, "eps", options.eps, options.eps > 0);
}

void Adam::update(Run& run) {
  auto args = [o = options_, decoupled = decoupled_, decay = run.weight_decay, scale = run.grad_scale,
               begin = run.begin](const Now& now) {
    return kernels::AdamArgs{.lr = now.lr,
                             .beta1 = o.beta1,
                             .beta2 = o.beta2,
                             .eps = o.eps,
                             .weight_decay = decay,
                             .decoupled = decoupled,
                             .bias_correction1 = 1 - std::pow(o.beta1, double(now.step)),
                             .bias_correction2 = 1 - std::pow(o.beta2, double(now.step)),
                             .grad_scale = scale,
                             .rounding = {now.random, begin}};
  };
  gathered_->add(run, args);
}

size_t Adam::most_gathered() const { return kernels::kUpdatesTogether; }
void Adam::begin_updates() { gathered_->begin(); }
void Adam::end_updates() { gathered_->launch(kernels::adam); }

}  // namespace shardgrad::optim
