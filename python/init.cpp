// shardgrad.nn.init: how parameters begin, and, under the names with an underscore, new values of tensors that are
// there.

#include <cmath>
#include <cstring>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {
namespace {

// A parameter that has no values yet begins so. Others get values now, which no other call gives again.
void fill(nb::handle given, nn::Init init) {
  SG_CHECK(nb::isinstance<Tensor>(given), "nn.init: ", nb::repr(given).c_str(), " is no tensor");
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
  check_changeable("nn.init", x);
  init.seed = uint64_t(randint(0, int64_t(1) << 53, {}, "nn.init").item());
  init.fill(x.detach().view({x.numel()}), 0, x.shape(), x.name().empty() ? "a tensor" : x.name());
  x.bump_version();
}

// normal(…), which says how a parameter begins.
template <class... Args, class... Extra>
void def_beginning(nb::module_& m, const char* name, nn::Init (*make)(Args...), const char* doc,
                   const Extra&... extra) {
  m.def(name, make, extra..., doc);
}

// normal_(tensor, …), under PyTorch's names of arguments.
template <class... Args, class... Extra>
void def_in_place(nb::module_& m, const char* name, nn::Init (*make)(Args...), const char* doc, const Extra&... extra) {
  m.def(
      concat(name, "_").c_str(),
      [make](nb::handle tensor, Args... args, const nb::object& generator) {
        SG_CHECK(generator.is_none(), "nn.init: there are no generators; random numbers follow from manual_seed");
        fill(tensor, make(args...));
        return nb::borrow(tensor);
      },
      "tensor"_a.none(), extra..., "generator"_a = nb::none(),
      concat(doc, " In place; of a parameter without values: how it begins.").c_str());
}

template <class Make, class... Extra>
void def_both_ways(nb::module_& m, const char* name, Make make, const char* doc, const Extra&... extra) {
  def_beginning(m, name, make, doc, extra...);
  def_in_place(m, name, make, doc, extra...);
}

nn::Init::Fan fan_of(std::string_view mode) {
  SG_CHECK(mode == "fan_in" || mode == "fan_out", "init: mode '", mode, "' is neither fan_in nor fan_out");
  return mode == "fan_in" ? nn::Init::Fan::in : nn::Init::Fan::out;
}
double calculate_gain(std::string_view nonlinearity, std::optional<double> param) {
  std::string_view name = nonlinearity;
  for (const char* start : {"conv_transpose", "conv"})
    if (name.starts_with(start) && (name.ends_with("1d") || name.ends_with("2d") || name.ends_with("3d")) &&
        name.size() == strlen(start) + 2)
      return 1;
  if (name == "linear" || name == "sigmoid") return 1;
  if (name == "tanh") return 5. / 3;
  if (name == "relu") return std::sqrt(2.);
  if (name == "selu") return 0.75;
  SG_CHECK(name == "leaky_relu", "init: nonlinearity '", nonlinearity,
           "' is none of linear, conv1d to conv_transpose3d, sigmoid, tanh, relu, leaky_relu, selu");
  double slope = param.value_or(0.01);
  return std::sqrt(2 / (1 + slope * slope));
}
// The library's has the gain of a leaky_relu, √(2 / (1 + slope²)): of others it is scaled.
nn::Init kaiming(nn::Init (*make)(double, nn::Init::Fan), double a, std::string_view mode,
                 std::string_view nonlinearity) {
  double gain = calculate_gain(nonlinearity, a);
  bool leaky = nonlinearity == "leaky_relu", alone = nonlinearity == "tanh" || nonlinearity == "selu";
  nn::Init init = make(leaky ? a : gain == 1 ? 1 : 0, fan_of(mode));
  init.a *= alone ? gain / std::sqrt(2.) : 1;
  init.b *= alone ? gain / std::sqrt(2.) : 1;
  return init;
}
nn::Init kaiming_uniform(double a, std::string_view mode, std::string_view nonlinearity) {
  return kaiming(nn::init::kaiming_uniform, a, mode, nonlinearity);
}
nn::Init kaiming_normal(double a, std::string_view mode, std::string_view nonlinearity) {
  return kaiming(nn::init::kaiming_normal, a, mode, nonlinearity);
}

void bind_kaiming(nb::module_& init) {
  def_both_ways(init, "kaiming_uniform", kaiming_uniform, "Uniform in ±gain · √(3 / fan).", "a"_a = 0.,
                "mode"_a = "fan_in", "nonlinearity"_a = "leaky_relu");
  def_both_ways(init, "kaiming_normal", kaiming_normal, "Normal, with deviation gain / √fan.", "a"_a = 0.,
                "mode"_a = "fan_in", "nonlinearity"_a = "leaky_relu");
  init.def("calculate_gain", calculate_gain, "nonlinearity"_a, "param"_a = nb::none(),
           "By what a layer before this function is scaled; param is the slope of leaky_relu, 0.01 unless given.");
}

}  // namespace

void bind_init(nb::module_& m) {
  nb::module_ init = m.def_submodule("init", "How parameters begin.");
  nb::class_<nn::Init>(init, "Init", "Element i of a parameter is a function of (seed, full name, i).");
  def_beginning(init, "constant", nn::init::constant, "One number.", "value"_a);
  def_in_place(init, "constant", nn::init::constant, "One number.", "val"_a);
  def_both_ways(init, "zeros", nn::init::zeros, "Zeros.");
  def_both_ways(init, "ones", nn::init::ones, "Ones.");
  def_beginning(init, "uniform", nn::init::uniform, "Uniform in [low, high).", "low"_a = 0., "high"_a = 1.);
  def_in_place(init, "uniform", nn::init::uniform, "Uniform in [a, b).", "a"_a = 0., "b"_a = 1.);
  def_both_ways(init, "normal", nn::init::normal, "Normal, with this mean and standard deviation.", "mean"_a = 0.,
                "std"_a = 1.);
  def_beginning(init, "trunc_normal", nn::init::trunc_normal, "Normal, cut to [low, high].", "mean"_a = 0.,
                "std"_a = 1., "low"_a = -2., "high"_a = 2.);
  def_in_place(init, "trunc_normal", nn::init::trunc_normal, "Normal, cut to [a, b].", "mean"_a = 0., "std"_a = 1.,
               "a"_a = -2., "b"_a = 2.);
  bind_kaiming(init);
  def_both_ways(init, "xavier_uniform", nn::init::xavier_uniform, "Uniform in ±gain · √(6 / (fan_in + fan_out)).",
                "gain"_a = 1.);
  def_both_ways(init, "xavier_normal", nn::init::xavier_normal,
                "Normal, with deviation gain · √(2 / (fan_in + fan_out)).", "gain"_a = 1.);
  def_both_ways(init, "orthogonal", nn::init::orthogonal,
                "Orthonormal rows or columns, whichever are fewer, times gain.", "gain"_a = 1.);
}

}  // namespace shardgrad::python
