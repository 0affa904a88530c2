#include <shardgrad/optim/composed.h>

#include <shardgrad/autograd/ops.h>

namespace shardgrad::optim {
namespace {

std::vector<std::string> rmsprop_states(const RmspropOptions& options) {
  if (options.momentum != 0) return {"square_avg", "momentum_buffer"};
  return {"square_avg"};
}

// Scaled, and with the decay that is added to it.
Tensor gradient_of(const Tensor& values, const Tensor& grad, double scale, double weight_decay) {
  Tensor g = scale == 1 ? grad : grad * scale;
  return weight_decay == 0 ? g : g + values * weight_decay;
}

}  // namespace

RMSprop::RMSprop(std::vector<NamedParameter> parameters, RmspropOptions options, Rules rules)
    : Optimizer("RMSprop", std::move(parameters), options.lr, options.weight_decay, std::move(rules),
                rmsprop_states(options)),
      options_(options) {
  check_option("RMSprop", "alpha", options.alpha, options.alpha >= 0 && options.alpha < 1);
  check_option("RMSprop", "eps", options.eps, options.eps > 0);
  check_option("RMSprop", "momentum", options.momentum, options.momentum >= 0);
}

void RMSprop::update(Run& run) {
  NoGrad no_grad;
  Tensor g = gradient_of(run.values, run.grad, run.grad_scale, run.weight_decay), &square = run.states[0];
  copy_into(square, square * options_.alpha + g * g * (1 - options_.alpha));
  Tensor step = g / (sqrt(square) + options_.eps);
  if (options_.momentum != 0) {
    copy_into(run.states[1], run.states[1] * options_.momentum + step);
    step = run.states[1];
  }
  copy_into(run.values, run.values - step * run.lr);
}

Adagrad::Adagrad(std::vector<NamedParameter> parameters, AdagradOptions options, Rules rules)
    : Optimizer("Adagrad", std::move(parameters), options.lr, options.weight_decay, std::move(rules), {"sum"}),
      options_(options) {
  check_option("Adagrad", "lr_decay", options.lr_decay, options.lr_decay >= 0);
  check_option("Adagrad", "eps", options.eps, options.eps > 0);
  check_option("Adagrad", "initial_accumulator_value", options.initial_accumulator_value,
               options.initial_accumulator_value >= 0);
}

void Adagrad::update(Run& run) {
  NoGrad no_grad;
  Tensor g = gradient_of(run.values, run.grad, run.grad_scale, run.weight_decay);
  copy_into(run.states[0], run.states[0] + g * g);
  Tensor size = sqrt(run.states[0] + options_.initial_accumulator_value) + options_.eps;
  double lr = run.lr / (1 + double(run.step - 1) * options_.lr_decay);
  copy_into(run.values, run.values - g / size * lr);
}

Lion::Lion(std::vector<NamedParameter> parameters, LionOptions options, Rules rules)
    : Optimizer("Lion", std::move(parameters), options.lr, options.weight_decay, std::move(rules), {"exp_avg"}),
      options_(options) {
  check_option("Lion", "beta1", options.beta1, options.beta1 >= 0 && options.beta1 < 1);
  check_option("Lion", "beta2", options.beta2, options.beta2 >= 0 && options.beta2 < 1);
}

void Lion::update(Run& run) {
  NoGrad no_grad;
  Tensor& average = run.states[0];
  // Scaled or not, the same tensors are made: a plan does not know whether a step will clip.
  auto with = [&](double beta) { return average * beta + run.grad * (run.grad_scale * (1 - beta)); };
  Tensor step = sign(with(options_.beta1));
  copy_into(run.values, run.values * (1 - run.lr * run.weight_decay) - step * run.lr);
  copy_into(average, with(options_.beta2));
}

}  // namespace shardgrad::optim
