#include <shardgrad/optim/sgd.h>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::optim {

SGD::SGD(std::vector<NamedParameter> parameters, SgdOptions options, Rules rules)
    : Optimizer("SGD", std::move(parameters), options.lr, options.weight_decay, std::move(rules),
                options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}),
      options_(options) {
  check_option("SGD", "momentum", options.momentum, options.momentum >= 0);
  check_option("SGD", "dampening", options.dampening, true);
  SG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
           "SGD: nesterov needs momentum > 0 and dampening = 0, got ", options.momentum, " and ", options.dampening);
}

void SGD::update(Run& run) {
  kernels::SgdArgs args{.lr = run.lr,
                        .momentum = options_.momentum,
                        .dampening = options_.dampening,
                        .weight_decay = run.weight_decay,
                        .nesterov = options_.nesterov,
                        .first_step = run.step == 1,
                        .grad_scale = run.grad_scale};
  launch(kernels::sgd, run.values, out(run.values), out(run.states[0]), out(run.take_copy()), run.grad,
         run.take_scale(), args);
}

}  // namespace shardgrad::optim
