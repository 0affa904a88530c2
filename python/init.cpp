// shardgrad.nn.init: how parameters begin, and, under the names with an underscore, new values of tensors that are
// there.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {
namespace {

// A parameter that has no values yet begins so. Others get values now, which no other call gives again.
void fill(nb::handle given, nn::Init init) {
  auto* parameter = nb::isinstance<ParameterTensor>(given) ? nb::cast<ParameterTensor*>(given) : nullptr;
  if (parameter && parameter->entry && !parameter->entry->initialised) {
    init.seed = parameter->entry->init.seed;
    parameter->entry->init = init;
    return;
  }
  const auto& x = nb::cast<const Tensor&>(given);
  Wait wait;
  NoGrad no_grad;
  static_cast<void>(x.in());  // in memory, or the error that says why not
  init.seed = uint64_t(randint(0, int64_t(1) << 53, {}, "nn.init").item());
  init.fill(x.detach().view({x.numel()}), 0, x.shape(), x.name().empty() ? "a tensor" : x.name());
}

// normal(…), which says how a parameter begins, and normal_(tensor, …).
template <class... Args, class... Extra>
void def_both_ways(nb::module_& m, const char* name, nn::Init (*make)(Args...), const char* doc,
                   const Extra&... extra) {
  m.def(name, make, extra..., doc);
  m.def(
      concat(name, "_").c_str(),
      [make](nb::handle tensor, Args... args) {
        fill(tensor, make(args...));
        return nb::borrow(tensor);
      },
      "tensor"_a, extra..., concat(doc, " In place; of a parameter without values: how it begins.").c_str());
}

nn::Init::Fan fan_of(std::string_view mode) {
  SG_CHECK(mode == "fan_in" || mode == "fan_out", "init: mode '", mode, "' is neither fan_in nor fan_out");
  return mode == "fan_in" ? nn::Init::Fan::in : nn::Init::Fan::out;
}
// The slope of the leaky_relu whose gain √(2 / (1 + slope²)) is that of this function.
double slope_of(std::string_view nonlinearity, double a) {
  SG_CHECK(nonlinearity == "leaky_relu" || nonlinearity == "relu" || nonlinearity == "linear", "init: nonlinearity '",
           nonlinearity, "' is none of leaky_relu, relu, linear");
  return nonlinearity == "leaky_relu" ? a : nonlinearity == "relu" ? 0 : 1;
}
nn::Init kaiming_uniform(double a, std::string_view mode, std::string_view nonlinearity) {
  return nn::init::kaiming_uniform(slope_of(nonlinearity, a), fan_of(mode));
}
nn::Init kaiming_normal(double a, std::string_view mode, std::string_view nonlinearity) {
  return nn::init::kaiming_normal(slope_of(nonlinearity, a), fan_of(mode));
}

}  // namespace

void bind_init(nb::module_& m) {
  nb::module_ init = m.def_submodule("init", "How parameters begin.");
  nb::class_<nn::Init>(init, "Init", "Element i of a parameter is a function of (seed, full name, i).");
  def_both_ways(init, "constant", nn::init::constant, "One number.", "value"_a);
  def_both_ways(init, "zeros", nn::init::zeros, "Zeros.");
  def_both_ways(init, "ones", nn::init::ones, "Ones.");
  def_both_ways(init, "uniform", nn::init::uniform, "Uniform in [low, high).", "low"_a = 0., "high"_a = 1.);
  def_both_ways(init, "normal", nn::init::normal, "Normal, with this mean and standard deviation.", "mean"_a = 0.,
                "std"_a = 1.);
  def_both_ways(init, "trunc_normal", nn::init::trunc_normal, "Normal, cut to [low, high].", "mean"_a = 0.,
                "std"_a = 1., "low"_a = -2., "high"_a = 2.);
  def_both_ways(init, "kaiming_uniform", kaiming_uniform, "Uniform in ±√(2 / (1 + a²)) · √(3 / fan).", "a"_a = 0.,
                "mode"_a = "fan_in", "nonlinearity"_a = "leaky_relu");
  def_both_ways(init, "kaiming_normal", kaiming_normal, "Normal, with deviation √(2 / (1 + a²)) / √fan.", "a"_a = 0.,
                "mode"_a = "fan_in", "nonlinearity"_a = "leaky_relu");
  def_both_ways(init, "xavier_uniform", nn::init::xavier_uniform, "Uniform in ±gain · √(6 / (fan_in + fan_out)).",
                "gain"_a = 1.);
  def_both_ways(init, "xavier_normal", nn::init::xavier_normal,
                "Normal, with deviation gain · √(2 / (fan_in + fan_out)).", "gain"_a = 1.);
  def_both_ways(init, "orthogonal", nn::init::orthogonal,
                "Orthonormal rows or columns, whichever are fewer, times gain.", "gain"_a = 1.);
}

}  // namespace shardgrad::python
