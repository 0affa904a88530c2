// shardgrad.optim: clipping, loss scaling, averages and schedules; optimizers are in optimizers.cpp.

#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/ema.h>
#include <shardgrad/optim/schedule.h>

#include <shardgrad/python/group.h>
#include <shardgrad/python/parameters.h>

namespace shardgrad::python {
namespace {

void bind_scaler(nb::module_& m) {
  using optim::GradScaler;
  nb::class_<GradScaler>(m, "GradScaler", "Dynamic loss scaling for float16.")
      .def(
          "__init__",
          [](GradScaler* self, double init_scale, double growth, double backoff, int64_t interval, bool enabled,
             std::optional<std::variant<std::shared_ptr<fsdp::Sharded>, Group>> ranks) {
            optim::GradScalerOptions options{init_scale, growth, backoff, interval, enabled};
            if (!ranks)
              new (self) GradScaler(options);
            else if (auto* sharded = std::get_if<std::shared_ptr<fsdp::Sharded>>(&*ranks))
              new (self) GradScaler(fsdp::sharded_grad_scaler(**sharded, options));
            else
              new (self) GradScaler(fsdp::sharded_grad_scaler(*std::get<Group>(*ranks), options));
          },
          "init_scale"_a = 65536., "growth_factor"_a = 2., "backoff_factor"_a = 0.5, "growth_interval"_a = 2000,
          "enabled"_a = true, "ranks"_a = nb::none(),
          "`ranks`: the sharded model, or the group, whose ranks decide together.")
      .def("scale", &GradScaler::scale, "loss"_a, Waits(), "The loss times the factor.")
      .def("finite", &GradScaler::finite, "optimizer"_a, Waits(), "Whether all gradients are finite, on all ranks.")
      .def("step", nb::overload_cast<optim::Optimizer&, double>(&GradScaler::step), "optimizer"_a, "grad_scale"_a = 1.,
           Waits(), "Whether it made the step.")
      .def("unscale_", &GradScaler::unscale, "optimizer"_a, Waits(),
           "Divides the gradients by the factor, so that they can be clipped; once, before step. Those that overflowed "
           "become zeros: step leaves them out.")
      .def("update", &GradScaler::update, "After a step: a smaller factor if it was left out, in time a larger one.")
      .def("get_scale", &GradScaler::factor, "What losses are multiplied by.")
      .def_prop_ro("factor", &GradScaler::factor, "What losses are multiplied by.");
}

void bind_schedules(nb::module_& m) {
  nb::module_ s = m.def_submodule("schedule", "Factors of the learning rate by step: optimizer.lr = base * f(step).");
  nb::class_<optim::Schedule>(s, "Schedule", "A factor by step, of which 0 is the first.")
      .def(
          "__call__", [](const optim::Schedule& f, int64_t step) { return f(step); }, "step"_a);
  s.def("constant", optim::constant, "Always 1.");
  s.def("linear", optim::linear, "steps"_a, "final"_a = 0., "From 1 straight down to `final`.");
  s.def("cosine", optim::cosine, "steps"_a, "final"_a = 0., "From 1 down to `final` along half a cosine.");
  s.def("staircase", optim::staircase, "every"_a, "factor"_a, "Times `factor` after every `every` steps.");
  s.def(
      "one_cycle",
      [](int64_t steps, double pct_start, double div_factor, double final_div_factor) {
        return optim::one_cycle(steps, {pct_start, div_factor, final_div_factor});
      },
      "steps"_a, "pct_start"_a = 0.3, "div_factor"_a = 25., "final_div_factor"_a = 1e4,
      "Up along half a cosine, and down along another one, as PyTorch's OneCycleLR.");
  s.def("warmup", optim::warmup, "steps"_a, "after"_a, "1/steps, 2/steps, …, 1, and then `after` from its step 0.");
}

Tensor tensor_of(nb::handle given) {
  Tensor tensor;
  SG_CHECK(nb::try_cast(given, tensor), "parameters: '", nb::repr(given).c_str(), "' is no tensor");
  return tensor;
}

}  // namespace

std::vector<NamedParameter> parameters_of(nb::handle given) {
  std::vector<NamedParameter> parameters;
  std::map<std::string, int> times;
  SG_CHECK(!nb::isinstance<Tensor>(given), "parameters: one tensor is given; give a list, such as model.parameters()");
  for (nb::handle each : given) {
    NamedParameter parameter;
    if (nb::isinstance<nb::tuple>(each) && nb::len(each) == 2 && nb::isinstance<nb::str>(each[0])) {
      parameter.name = nb::cast<std::string>(each[0]);
      parameter.tensor = tensor_of(each[1]);
    } else {
      parameter.tensor = tensor_of(each);
      parameter.name = parameter.tensor.name().empty() ? "parameter" : parameter.tensor.name();
    }
    // Of two models, one name may come twice.
    if (int before = times[parameter.name]++) parameter.name += concat("@", before);
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

void bind_optim(nb::module_& m) {
  nb::module_ o = m.def_submodule("_optim");
  bind_optimizers(o);
  bind_scaler(o);
  bind_schedules(o);
  nb::class_<optim::EMA>(o, "EMA", "Averages of a model's parameters over its training.")
      .def(
          "__init__",
          [](optim::EMA* self, nb::handle parameters, double decay) {
            enter_context();
            new (self) optim::EMA(parameters_of(parameters), decay);
          },
          "params"_a, "decay"_a = 0.999)
      .def("update", &optim::EMA::update, Waits(), "After a step.")
      .def("swap", &optim::EMA::swap, Waits(), "Parameters and averages change places; on all ranks.")
      .def_prop_ro("swapped", &optim::EMA::swapped, "Whether the averages are in the model.");
  o.def(
      "grad_norm",
      [](nb::handle parameters, double p) {
        std::vector<NamedParameter> named = parameters_of(parameters);
        Wait wait;
        return optim::grad_norm(named, p);
      },
      "params"_a, "p"_a = 2., "The norm of all gradients. Of a sharded model: sharded.grad_norm.");
  o.def(
      "clip_grad_norm_",
      [](nb::handle parameters, double max_norm, double norm_type) {
        std::vector<NamedParameter> named = parameters_of(parameters);
        Wait wait;
        return optim::clip_grad_norm(named, max_norm, norm_type);
      },
      "params"_a, "max_norm"_a, "norm_type"_a = 2.,
      "Multiplies the gradients so that their norm is at most max_norm; the norm they had. Of a sharded model: "
      "``sharded.clip_grad_norm_``.");
}

}  // namespace shardgrad::python
