#include <shardgrad/certify/gradcheck.h>

#include <cmath>

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/rng.h>

namespace shardgrad {
namespace {

bool checked(const Tensor& input) { return is_floating(input.dtype()); }

// Numbers in [-1, 1), never all alike: the upstream gradient of output `which`.
std::vector<double> upstream(uint64_t seed, size_t which, int64_t count) {
  std::vector<double> weights(static_cast<size_t>(count));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 2.0 * unit_float(philox(seed, which, i)[0]) - 1.0;
  return weights;
}

// fn seen as one number: the weighted sum of the results that have a gradient.
class Objective {
 public:
  Objective(const TensorsFunction& fn, const std::vector<Tensor>& inputs, uint64_t seed) : fn_(fn), seed_(seed) {
    for (const Tensor& input : inputs) {
      SG_CHECK(!checked(input) || input.dtype() == DType::f64, "gradcheck: an input is ", input,
               "; differences need f64, convert it with .to(DType::f64)");
      inputs_.push_back(input.detach());
      values_.push_back(checked(input) ? input.to_vector<double>() : std::vector<double>());
    }
  }

  // What backward writes for every checked input.
  std::vector<std::vector<double>> analytic() {
    std::vector<Tensor> leaves;
    for (const Tensor& input : inputs_) {
      leaves.push_back(input.detach());
      if (checked(input)) leaves.back().set_requires_grad();
    }
    std::vector<Tensor> roots, grads;
    std::vector<Tensor> results = fn_(leaves);
    for (size_t k = 0; k < results.size(); ++k) {
      used_.push_back(results[k].requires_grad());
      if (!used_.back()) continue;
      SG_CHECK(results[k].dtype() == DType::f64, "gradcheck: result ", k, " is ", results[k], ", not f64");
      roots.push_back(results[k]);
      grads.push_back(
          from_vector(upstream(seed_, k, results[k].numel()), results[k].shape(), {DType::f64, results[k].device()}));
    }
    SG_CHECK(!roots.empty(), "gradcheck: no result depends on a floating input");
    backward(roots, grads);
    std::vector<std::vector<double>> gradients;
    for (const Tensor& leaf : leaves) {
      gradients.emplace_back(checked(leaf) ? size_t(leaf.numel()) : 0);
      if (leaf.grad().defined()) gradients.back() = leaf.grad().to_vector<double>();
    }
    return gradients;
  }

  // The objective with element `index` of input `i` moved by `step`.
  double value(size_t i, size_t index, double step) const {
    NoGrad no_grad;
    std::vector<Tensor> moved = inputs_;
    std::vector<double> changed = values_[i];
    changed[index] += step;
    moved[i] = from_vector(changed, inputs_[i].shape(), {DType::f64, inputs_[i].device()});
    std::vector<Tensor> results = fn_(moved);
    double total = 0;
    for (size_t k = 0; k < results.size(); ++k) {
      if (!used_[k]) continue;
      std::vector<double> weights = upstream(seed_, k, results[k].numel()), values = results[k].to_vector<double>();
      for (size_t e = 0; e < values.size(); ++e) total += weights[e] * values[e];
    }
    return total;
  }

 private:
  const TensorsFunction& fn_;
  uint64_t seed_;
  std::vector<Tensor> inputs_;
  std::vector<std::vector<double>> values_;
  std::vector<bool> used_;
};

void check_worst(const GradcheckResult& worst, const std::vector<Tensor>& inputs) {
  if (worst.error <= 1) return;
  const Tensor& input = inputs[size_t(worst.input)];
  std::string label = input.name().empty() ? "" : " '" + input.name() + "'";
  fail("gradcheck: input ", worst.input, label, " (", input, "), element ", worst.index, ": backward gives ",
       worst.analytic, ", central differences give ", worst.numeric, "; the difference is ", worst.error,
       " times what is allowed");
}

}  // namespace

GradcheckResult gradcheck_all(const TensorsFunction& fn, std::vector<Tensor> inputs, GradcheckOptions options) {
  Objective objective(fn, inputs, options.seed);
  std::vector<std::vector<double>> gradients = objective.analytic();
  GradcheckResult worst;
  for (size_t i = 0; i < gradients.size(); ++i)
    for (size_t e = 0; e < gradients[i].size(); ++e) {
      double above = objective.value(i, e, options.step), below = objective.value(i, e, -options.step);
      double numeric = (above - below) / (2 * options.step), analytic = gradients[i][e];
      double error = std::abs(analytic - numeric) / (options.absolute + options.relative * std::abs(numeric));
      if (std::isnan(error)) error = INFINITY;
      if (worst.input < 0 || error > worst.error) worst = {int(i), int64_t(e), analytic, numeric, error};
    }
  check_worst(worst, inputs);
  return worst;
}

GradcheckResult gradcheck(const TensorFunction& fn, std::vector<Tensor> inputs, GradcheckOptions options) {
  return gradcheck_all([&](std::span<const Tensor> in) { return std::vector<Tensor>{fn(in)}; }, std::move(inputs),
                       options);
}

}  // namespace shardgrad
