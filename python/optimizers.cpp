// Optimizers, and what they are made of: parameters, rules and options.

#include <set>

#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/muon.h>
#include <shardgrad/optim/sgd.h>

#include <shardgrad/python/group.h>
#include <shardgrad/python/parameters.h>

namespace shardgrad::python {
namespace {

using optim::Optimizer;
using optim::Rules;

// What an optimizer is made of.
struct Given {
  std::vector<NamedParameter> parameters;
  Rules rules;
  double lr;
  nb::list groups;  // the tensors of each
  nb::dict empty;   // the learning rates of those without any, by number
};

double number_of(const std::string& of, const std::string& option, nb::handle given) {
  double number = 0;
  SG_CHECK(nb::try_cast(given, number), "options of ", of, ": ", option, "=", nb::repr(given).c_str(),
           " is not possible");
  return number;
}

optim::Overrides overrides_of(const std::string& of, nb::dict options, double lr) {
  optim::Overrides overrides;
  for (auto [key, value] : options) {
    std::string option = nb::cast<std::string>(key);
    if (option == "weight_decay")
      overrides.weight_decay = number_of(of, option, value);
    else if (option == "lr_scale")
      overrides.lr_scale = number_of(of, option, value);
    else if (option == "lr")
      overrides.lr_scale = number_of(of, option, value) / lr;
    else
      SG_CHECK(option == "params", "options of ", of, ": '", option, "' is none of lr, lr_scale, weight_decay");
  }
  return overrides;
}

// Parameters, pairs of name and parameter, or groups of them as PyTorch has them: [{"params": …, "weight_decay": 0}].
class Listed {
 public:
  explicit Listed(nb::handle parameters) {
    for (nb::handle each : parameters) {
      bool is_group = nb::isinstance<nb::dict>(each);
      SG_CHECK(all_.size() == 0 || is_group == !options_.empty(),
               "groups of parameters and parameters alone are mixed; ", "put all in groups");
      is_group ? add_group(nb::borrow<nb::dict>(each)) : all_.append(each);
    }
    if (options_.empty()) ends_.push_back(nb::len(all_));
  }
  // A group that is alone has the optimizer's learning rate.
  double lr(double otherwise) const {
    if (options_.size() != 1 || !options_[0].contains("lr")) return otherwise;
    return number_of("a group of parameters", "lr", options_[0]["lr"]);
  }
  Given parameters_and_rules(const std::optional<nb::dict>& rules, double lr) const {
    Given given{parameters_of(all_), {}, lr, tensors_of_groups(), {}};
    if (rules)
      for (auto [pattern, options] : *rules) {
        std::string text = nb::cast<std::string>(pattern);
        given.rules.push_back({text, overrides_of("'" + text + "'", nb::cast<nb::dict>(options), lr)});
      }
    for (size_t g = 0, i = 0; g < options_.size(); ++g) {
      SG_CHECK(lr != 0 || !options_[g].contains("lr"), "groups with an lr of their own need one beside them that is ",
               "not 0");
      optim::Overrides overrides = overrides_of("a group of parameters", options_[g], lr);
      if (i == ends_[g]) given.empty[nb::int_(g)] = lr * overrides.lr_scale;
      for (; i < ends_[g]; ++i) given.rules.push_back({given.parameters[i].name, overrides});
    }
    return given;
  }

 private:
  void add_group(const nb::dict& group) {
    SG_CHECK(group.contains("params"), "a group of parameters has no 'params'");
    nb::object listed = group["params"];
    if (nb::isinstance<Tensor>(listed)) listed = nb::make_tuple(listed);
    for (nb::handle one : listed) all_.append(one);
    ends_.push_back(nb::len(all_));
    options_.push_back(group);
  }
  nb::list tensors_of_groups() const {
    nb::list groups;
    for (size_t g = 0, i = 0; g < ends_.size(); ++g) {
      nb::list tensors;
      for (; i < ends_[g]; ++i) tensors.append(nb::isinstance<Tensor>(all_[i]) ? nb::object(all_[i]) : all_[i][1]);
      groups.append(tensors);
    }
    return groups;
  }

  nb::list all_;
  std::vector<size_t> ends_;  // of the groups in all_
  std::vector<nb::dict> options_;
};

template <class O, class Options>
void bind_optimizer(nb::module_& m, const char* name, Options (*options)(double, const nb::kwargs&), double lr,
                    const char* doc) {
  nb::class_<O, Optimizer>(m, name, doc)
      .def(
          "__init__",
          [options](nb::pointer_and_handle<O> self, nb::handle parameters, double lr, std::optional<nb::dict> rules,
                    const nb::kwargs& others) {
            enter_context();
            Listed listed(parameters);
            Given given = listed.parameters_and_rules(rules, listed.lr(lr));
            new (self.p) O(std::move(given.parameters), options(given.lr, others), std::move(given.rules));
            nb::setattr(self.h, "_groups", given.groups);
            nb::setattr(self.h, "_empty_lrs", given.empty);
          },
          "params"_a, "lr"_a = lr, "rules"_a = nb::none(), "options"_a);
}

// Views of the groups, made anew each time: an optimizer that held them would hold itself.
nb::list param_groups(nb::handle self) {
  nb::object group = nb::module_::import_("shardgrad._groups").attr("ParamGroup");
  nb::list given = nb::borrow<nb::list>(self.attr("_groups")), groups;
  size_t first = 0;
  for (nb::handle params : given) {
    groups.append(group(self, params, nb::len(groups), first, nb::len(given) == 1));
    first += nb::len(params);
  }
  return groups;
}

void check_groups(nb::handle optimizer) {
  for (nb::handle params : optimizer.attr("_groups")) check_in_place(params);
}

// Takes an option out of those that are left.
class Options {
 public:
  Options(const char* optimizer, const nb::kwargs& given) : optimizer_(optimizer), given_(given) {}
  ~Options() noexcept(false) {
    if (std::uncaught_exceptions()) return;
    for (auto [key, value] : given_) {
      std::string name = nb::cast<std::string>(key);
      SG_CHECK(known_.contains(name), optimizer_, ": there is no option '", name, "'; there are ", list());
    }
  }
  template <class T> void take(const char* name, T& value) {
    known_.insert(name);
    if (!given_.contains(name)) return;
    if (!nb::try_cast(nb::handle(given_[name]), value))
      fail(optimizer_, ": ", name, "=", nb::repr(given_[name]).c_str(), " is not possible");
  }
  void take_betas(double& beta1, double& beta2) {
    std::pair<double, double> betas(beta1, beta2);
    take("betas", betas);
    std::tie(beta1, beta2) = betas;
  }

 private:
  std::string list() const {
    std::string all = "lr, rules";
    for (const std::string& name : known_) all += ", " + name;
    return all;
  }
  const char* optimizer_;
  nb::kwargs given_;
  std::set<std::string> known_;
};

template <class O> optim::AdamOptions adam_options(double lr, const nb::kwargs& given) {
  optim::AdamOptions o{.lr = lr};
  Options options(std::is_same_v<O, optim::AdamW> ? "AdamW" : "Adam", given);
  options.take_betas(o.beta1, o.beta2);
  options.take("eps", o.eps);
  options.take("weight_decay", o.weight_decay);
  options.take("stochastic_rounding", o.stochastic_rounding);
  return o;
}
optim::SgdOptions sgd_options(double lr, const nb::kwargs& given) {
  optim::SgdOptions o{.lr = lr};
  Options options("SGD", given);
  options.take("momentum", o.momentum);
  options.take("dampening", o.dampening);
  options.take("weight_decay", o.weight_decay);
  options.take("nesterov", o.nesterov);
  options.take("stochastic_rounding", o.stochastic_rounding);
  return o;
}
optim::RmspropOptions rmsprop_options(double lr, const nb::kwargs& given) {
  optim::RmspropOptions o{.lr = lr};
  Options options("RMSprop", given);
  options.take("alpha", o.alpha);
  options.take("eps", o.eps);
  options.take("weight_decay", o.weight_decay);
  options.take("momentum", o.momentum);
  return o;
}
optim::AdagradOptions adagrad_options(double lr, const nb::kwargs& given) {
  optim::AdagradOptions o{.lr = lr};
  Options options("Adagrad", given);
  options.take("lr_decay", o.lr_decay);
  options.take("eps", o.eps);
  options.take("weight_decay", o.weight_decay);
  options.take("initial_accumulator_value", o.initial_accumulator_value);
  return o;
}
optim::LionOptions lion_options(double lr, const nb::kwargs& given) {
  optim::LionOptions o{.lr = lr};
  Options options("Lion", given);
  options.take_betas(o.beta1, o.beta2);
  options.take("weight_decay", o.weight_decay);
  return o;
}
optim::MuonOptions muon_options(double lr, const nb::kwargs& given) {
  optim::MuonOptions o{.lr = lr};
  Options options("Muon", given);
  options.take("weight_decay", o.weight_decay);
  options.take("momentum", o.momentum);
  options.take("nesterov", o.nesterov);
  auto coefficients = std::tuple_cat(o.ns_coefficients);  // as PyTorch takes them
  options.take("ns_coefficients", coefficients);
  o.ns_coefficients = {std::get<0>(coefficients), std::get<1>(coefficients), std::get<2>(coefficients)};
  options.take("eps", o.eps);
  options.take("ns_steps", o.ns_steps);
  std::optional<std::string> scale;
  options.take("adjust_lr_fn", scale);
  if (scale) o.adjust_lr = optim::parse_muon_scale(*scale);
  return o;
}

}  // namespace

void bind_optimizers(nb::module_& m) {
  nb::class_<Optimizer>(m, "Optimizer", nb::dynamic_attr(), nb::is_weak_referenceable(),
                        "Updates parameters by their gradients; of a sharded model this rank's part.")
      .def(
          "step",
          [](nb::handle self, double grad_scale) {
            auto& optimizer = nb::cast<Optimizer&>(self);
            check_groups(self);
            Wait wait;
            optimizer.step(grad_scale);
          },
          "grad_scale"_a = 1., "Updates every parameter that has a gradient, times grad_scale.")
      .def(
          "zero_grad", [](Optimizer& o, bool) { o.zero_grad(); }, "set_to_none"_a = true, Waits(),
          "Forgets the gradients, and frees their memory.")
      .def_prop_rw("lr", &Optimizer::lr, &Optimizer::set_lr,
                   "The learning rate. Set, the groups' rates keep their ratios to it.")
      .def_prop_ro("param_groups", param_groups, nb::for_getter(nb::sig("def param_groups(self) -> list[ParamGroup]")),
                   "The groups of parameters as they were given, whose 'lr' can be set.")
      .def("_lr_of", &Optimizer::lr_of)
      .def("_set_lr_of", &Optimizer::set_lr_of)
      .def("_weight_decay_of", &Optimizer::weight_decay_of)
      .def("state_dict", &Optimizer::state_dict, Waits(), "Of a model that is not sharded; see full_optim_state_dict.")
      .def(
          "load_state_dict", [](Optimizer& o, const std::map<std::string, Tensor>& state) { o.load_state_dict(state); },
          "state_dict"_a, Waits(), "Takes such a state, and the learning rates in it.")
      .def("steps", &Optimizer::steps, "How many steps each parameter has been through.");
  const char* from = "PyTorch's formulas; `rules` are options for names: ``{'*.bias': {'weight_decay': 0}}``.";
  bind_optimizer<optim::SGD, optim::SgdOptions>(m, "SGD", sgd_options, 1e-3, from);
  bind_optimizer<optim::Adam, optim::AdamOptions>(m, "Adam", adam_options<optim::Adam>, 1e-3, from);
  bind_optimizer<optim::AdamW, optim::AdamOptions>(m, "AdamW", adam_options<optim::AdamW>, 1e-3, from);
  bind_optimizer<optim::RMSprop, optim::RmspropOptions>(m, "RMSprop", rmsprop_options, 0.01, from);
  bind_optimizer<optim::Adagrad, optim::AdagradOptions>(m, "Adagrad", adagrad_options, 0.01, from);
  bind_optimizer<optim::Lion, optim::LionOptions>(m, "Lion", lion_options, 1e-4, "arXiv 2302.06675");
  bind_optimizer<optim::Muon, optim::MuonOptions>(
      m, "Muon", muon_options, 1e-3, "For matrices; everything else has an optimizer of its own. Sharded too.");
}

}  // namespace shardgrad::python
