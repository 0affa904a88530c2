#include <shardgrad/optim/sgd.h>

#include <shardgrad/kernels/ops.h>
#include <shardgrad/optim/gathered_updates.h>

namespace shardgrad::optim {

struct SGD::Gathered : GatheredUpdates<kernels::SgdArgs> {};

SGD::SGD(std::vector<NamedParameter> parameters, SgdOptions options, Rules rules)
    : Optimizer("SGD", std::move(parameters), options.lr, options.weight_decay, std::move(rules),
                options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{},
                options.stochastic_rounding),
      options_(options),
      gathered_(std::make_shared<Gathered>()) {
  check_option("SGD", "momentum", options.momentum, options.momentum >= 0);
  check_option("SGD", "dampening", options.dampening, true);
  SG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
           "SGD: nesterov needs momentum > 0 and dampening = 0, got ", options.momentum, " and ", options.dampening);
}

void SGD::update(Run& run) {
  auto args = [o = options_, decay = run.weight_decay, scale = run.grad_scale, begin = run.begin](const Now& now) {
    return kernels::SgdArgs{.lr = now.lr,
                            .momentum = o.momentum,
                            .dampening = o.dampening,
                            .weight_decay = decay,
                            .nesterov = o.nesterov,
                            .first_step = now.step == 1,
                            .grad_scale = scale,
                            .rounding = {now.random, begin}};
  };
  gathered_->add(run, args);
}

size_t SGD::most_gathered() const { return kernels::kUpdatesTogether; }
void SGD::begin_updates() { gathered_->begin(); }
void SGD::end_updates() { gathered_->launch(kernels::sgd); }

}  // namespace shardgrad::optim
