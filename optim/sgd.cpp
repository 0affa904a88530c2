#include <shardgrad/optim/sgd.h>

#include <shardgrad/kernels/ops.h>
#include <shardgrad/optim/gathered_updates.h>

namespace shardgrad::optim {

struct SGD::Gathered : GatheredUpdates<kernels::SgdArgs> {};

SGD::SGD(std::vector<NamedParameter> parameters, SgdOptions options, Rules rules)
    : Optimizer("SGD", std::move(parameters), options.lr, options.weight_decay, std::move(rules),
                options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}),
      options_(options),
      gathered_(std::make_shared<Gathered>()) {
  check_option("SGD", "momentum", options.momentum, options.momentum >= 0);
  check_option("SGD", "dampening", options.dampening, true);
  SG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
           "SGD: nesterov needs momentum > 0 and dampening = 0, got ", options.momentum, " and ", options.dampening);
}

void SGD::update(Run& run) {
  gathered_->add(run, {.lr = run.lr,
                       .momentum = options_.momentum,
                       .dampening = options_.dampening,
                       .weight_decay = run.weight_decay,
                       .nesterov = options_.nesterov,
                       .first_step = run.step == 1,
                       .grad_scale = run.grad_scale});
}

size_t SGD::most_gathered() const { return kernels::kUpdatesTogether; }
void SGD::begin_updates() { gathered_->begin(); }
void SGD::end_updates() { gathered_->launch(kernels::sgd); }

}  // namespace shardgrad::optim
