// shardgrad.fsdp: fully_shard and what a sharded model can do.

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/fsdp/setup/options.h>
#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/fsdp/sync_batchnorm.h>

#include <shardgrad/python/group.h>
#include <shardgrad/python/parameters.h>
#include <shardgrad/python/process.h>

// It has a vector of what cannot be copied, which is seen too late.
template <> struct nanobind::detail::is_copy_constructible<shardgrad::fsdp::Sharded> : std::false_type {};

namespace shardgrad::python {
namespace {

using fsdp::Sharded;
using Handle = std::shared_ptr<Sharded>;

struct Policy {
  fsdp::WrapPolicy policy;
};

// A policy made here, or a function of Python's: wrap(module, name, numel) -> bool.
// Such a function is asked while the model is sharded; kept by the model for longer, it could keep the model alive.
fsdp::WrapPolicy policy_of(const nb::object& given) {
  if (nb::isinstance<Policy>(given)) return nb::cast<Policy&>(given).policy;
  return [function = given.ptr()](const nn::Module& module, const std::string& name, int64_t numel) {
    nb::gil_scoped_acquire gil;
    nb::object chosen = nb::handle(function)(nb::cast(&module, nb::rv_policy::reference), name, numel);
    return given_by<bool>("wrap", chosen, "True or False");
  };
}

Handle shard(nn::Module& module, const std::optional<Group>& group, std::string_view strategy, bool keep_params,
             int shard_ranks, int reshard_after_forward, int prefetch, int64_t prefetch_bytes,
             std::optional<int64_t> bucket_bytes, bool move_params_to_cpu, std::optional<bool> move_grads_to_cpu,
             std::optional<DType> param_dtype, std::optional<DType> reduce_dtype, std::optional<DType> buffer_dtype,
             std::optional<DType> output_dtype, bool sync_module_states, std::optional<nb::object> wrap,
             std::vector<std::string> leave_out) {
  fsdp::Config config{.strategy = fsdp::parse_strategy(strategy),
                      .keep_params = keep_params,
                      .shard_ranks = shard_ranks,
                      .reshard_after_forward = reshard_after_forward,
                      .prefetch = prefetch,
                      .prefetch_bytes = prefetch_bytes,
                      .bucket_bytes = bucket_bytes,
                      .move_params_to_cpu = move_params_to_cpu,
                      .move_grads_to_cpu = move_grads_to_cpu,
                      .param_dtype = param_dtype,
                      .reduce_dtype = reduce_dtype,
                      .buffer_dtype = buffer_dtype,
                      .output_dtype = output_dtype,
                      .sync_module_states = sync_module_states,
                      .leave_out = std::move(leave_out)};
  if (wrap) config.wrap = policy_of(*wrap);
  Wait wait;
  return fsdp::fully_shard(module, group ? **group : world(), std::move(config));
}

// By name, for the tests: those that fully_shard takes from Python are all that there are.
nb::dict options_by_name(const fsdp::Config& config) {
  nb::dict all;
  all["strategy"] = fsdp::name_of(config.strategy);
  fsdp::visit_options(config, [&](const char* name, const auto& value, const char*) { all[name] = value; });
  all["leave_out"] = config.leave_out;
  return all;
}

// --- scopes ----------------------------------------------------------------------------------------------------------

struct NoSyncScope {
  std::unique_ptr<fsdp::NoSync> scope;
};

// Its end is a collective, which may throw.
struct SummonScope {
  fsdp::SummonFullParams* scope = nullptr;
  ~SummonScope() {
    if (scope) leave(true);
  }
  void leave(bool failed) {
    fsdp::SummonFullParams* ended = std::exchange(scope, nullptr);
    if (!failed) {
      delete ended;
      return;
    }
    struct Unwinds {
      fsdp::SummonFullParams* ended;
      ~Unwinds() { delete ended; }  // sees that an exception is on its way, and drops the edits
    };
    try {
      Unwinds unwinds{ended};
      throw 0;
    } catch (int) {
    }
  }
};

void bind_fsdp_scopes(nb::module_& m) {
  nb::class_<NoSyncScope>(m, "_NoSync").def("close", [](NoSyncScope& s) { s.scope.reset(); });
  m.def(
      "_no_sync", [](Handle sharded) { return NoSyncScope{std::make_unique<fsdp::NoSync>(*sharded)}; }, Waits());
  nb::class_<SummonScope>(m, "_Summon").def("close", &SummonScope::leave, "failed"_a, Waits());
  m.def(
      "_summon",
      [](Handle sharded, bool write_back) {
        auto made = std::make_unique<SummonScope>();
        made->scope = new fsdp::SummonFullParams(*sharded, write_back);
        return made;
      },
      Waits());
  nb::class_<fsdp::PairwiseSum>(m, "PairwiseSum", "Adds up passes by neighbours: the same bits on 1, 2, 4, … ranks.")
      .def(nb::init<Sharded&>(), "sharded"_a, nb::keep_alive<1, 2>())
      .def("begin_pass", &fsdp::PairwiseSum::begin_pass, "Before each pass.")
      .def("finish", &fsdp::PairwiseSum::finish, Waits(), "After the last one: the sum is the gradient.");
}

// --- state -----------------------------------------------------------------------------------------------------------

void bind_state(nb::class_<Sharded>& sharded) {
  sharded
      .def(
          "full_state_dict", [](Handle s, bool rank0_only) { return fsdp::full_state_dict(*s, rank0_only); },
          "rank0_only"_a = true, Waits(), "All parameters, whole, as copies. A collective.")
      .def(
          "load_full_state_dict", [](Handle s, const fsdp::StateDict& state) { fsdp::load_full_state_dict(*s, state); },
          "state"_a, Waits(), "Each rank takes its part of whole parameters.")
      .def(
          "full_optim_state_dict",
          [](Handle s, optim::Optimizer& optimizer, bool rank0_only) {
            return fsdp::full_optim_state_dict(*s, optimizer, rank0_only);
          },
          "optimizer"_a, "rank0_only"_a = true, Waits(), "The optimizer's whole state, as copies. A collective.")
      .def(
          "load_full_optim_state_dict",
          [](Handle s, optim::Optimizer& optimizer, const fsdp::StateDict& state) {
            fsdp::load_full_optim_state_dict(*s, optimizer, state);
          },
          "optimizer"_a, "state"_a, Waits(), "Each rank takes its part of an optimizer's whole state.")
      .def(
          "check_replicas", [](Handle s) { fsdp::check_replicas(*s, "check_replicas"); }, Waits(),
          "Throws where copies of the model are not the same any more. A collective.");
}

void bind_sharded(nb::module_& m) {
  nb::class_<Sharded> sharded(m, "Sharded", "A sharded model's units and schedule.");
  sharded
      .def_prop_ro(
          "group",
          [](Handle s) {
            s->check_alive("Sharded.group");
            return Group(s->group());
          },
          "The ranks that it is sharded over.")
      .def_prop_ro(
          "strategy", [](Handle s) { return std::string(fsdp::name_of(s->config().strategy)); },
          "ddp, zero1, zero2, zero3 or hybrid.")
      .def_prop_ro("_options", [](Handle s) { return options_by_name(s->config()); })
      .def_prop_ro(
          "units",
          [](Handle s) {
            std::vector<std::string> names;
            for (const auto& unit : s->units()) names.push_back(unit->name());
            return names;
          },
          "The names of what is gathered at a time; the root's is 'root'.")
      .def(
          "grad_norm", [](Handle s, double p) { return fsdp::grad_norm(*s, p); }, "p"_a = 2., Waits(),
          "The norm of all gradients. A collective.")
      .def(
          "clip_grad_norm_", [](Handle s, double max_norm, double p) { return fsdp::clip_grad_norm(*s, max_norm, p); },
          "max_norm"_a, "norm_type"_a = 2., Waits(),
          "Multiplies the gradients so that their norm is at most max_norm; the norm they had. A collective.")
      .def(
          "unshard", [](Handle s, const std::string& unit) { fsdp::unshard(*s, unit).wait(); }, "unit"_a, Waits(),
          "Gathers a unit's parameters, which stay until reshard.")
      .def(
          "reshard", [](Handle s, const std::string& unit) { fsdp::reshard(*s, unit); }, "unit"_a, Waits(),
          "Releases a unit's gathered parameters.");
  bind_state(sharded);
}

void bind_policies(nb::module_& m) {
  nb::class_<Policy>(m, "WrapPolicy", "Which modules become units.");
  m.def(
      "wrap_by_size",
      [](int64_t min_numel, std::vector<std::string> whole, std::vector<std::string> never) {
        return Policy{fsdp::wrap_by_size(min_numel, std::move(whole), std::move(never))};
      },
      "min_numel"_a, "whole"_a = std::vector<std::string>(), "never"_a = std::vector<std::string>(),
      "Units of at least so many parameters, built from the leaves up. The inside of classes named in `whole` is not "
      "divided; those in `never` are no units themselves.");
  m.def(
      "wrap_by_type",
      [](nb::handle types) {
        std::vector<std::string> names;
        for (nb::handle type : types)
          names.push_back(
              nb::cast<std::string>(nb::isinstance<nb::str>(type) ? nb::borrow(type) : type.attr("__name__")));
        return Policy{fsdp::wrap_by_type(std::move(names))};
      },
      "types"_a, "One unit for every module of one of these classes, or of one of these names.");
  m.def(
      "wrap_by_name", [](std::vector<std::string> patterns) { return Policy{fsdp::wrap_by_name(std::move(patterns))}; },
      "patterns"_a, "One unit for every module whose name matches: 'blocks.*'.");
}

// --- plan ------------------------------------------------------------------------------------------------------------

fsdp::Plan plan(int world_size, nb::object build) {
  fsdp::Plan result;
  nb::gil_scoped_release release;
  dist::run_one_of(world_size, [&](dist::ProcessGroup& group) {
    nb::gil_scoped_acquire gil;
    PretendedWorld pretended(group);
    nb::object made = build(Group(group));
    using Made = std::pair<Handle, nb::object>;
    auto [sharded, step] = given_by<Made>("plan: build", made, "a pair, the sharded model and a step,");
    nb::gil_scoped_release computing;
    result = fsdp::make_plan(*sharded, [&step = step] {
      nb::gil_scoped_acquire again;
      step();
    });
  });
  return result;
}

void bind_plan(nb::module_& m) {
  nb::class_<fsdp::Plan>(m, "Plan", "What a training step costs each rank.")
      .def("table", &fsdp::Plan::table, "What each unit costs, as a table.")
      .def("__str__", &fsdp::Plan::table)
      .def_ro("peak", &fsdp::Plan::peak, "Bytes, without workspaces of kernels.")
      .def_prop_ro(
          "peaks",
          [](const fsdp::Plan& p) {
            std::map<std::string, int64_t> peaks;
            for (auto [category, bytes] : p.peaks) peaks[category.name()] = bytes;
            return peaks;
          },
          "Bytes by category.")
      .def_ro("bytes_sent", &fsdp::Plan::bytes_sent, "Bytes that a rank sends.")
      .def_ro("collectives", &fsdp::Plan::collectives, "How many collectives there are.")
      .def_ro("flops", &fsdp::Plan::flops, "Floating-point operations of a rank.");
  m.def("plan", plan, "world_size"_a, "build"_a,
        "build(group) makes a model of shapes alone, shards it over the group, and gives (sharded, step); what a step "
        "of rank 0 would cost is told without computing or sending anything.");
}

}  // namespace

void bind_fsdp(nb::module_& m) {
  nb::module_ f = m.def_submodule("_fsdp");
  bind_policies(f);
  bind_sharded(f);
  bind_fsdp_scopes(f);
  bind_plan(f);
  const fsdp::Config defaults;
  f.def("fully_shard", shard, "module"_a, "group"_a = nb::none(), nb::kw_only(),
        "strategy"_a = fsdp::name_of(defaults.strategy), "keep_params"_a = defaults.keep_params,
        "shard_ranks"_a = defaults.shard_ranks, "reshard_after_forward"_a = defaults.reshard_after_forward,
        "prefetch"_a = defaults.prefetch, "prefetch_bytes"_a = defaults.prefetch_bytes,
        "bucket_bytes"_a = defaults.bucket_bytes, "move_params_to_cpu"_a = defaults.move_params_to_cpu,
        "move_grads_to_cpu"_a = defaults.move_grads_to_cpu, "param_dtype"_a = defaults.param_dtype,
        "reduce_dtype"_a = defaults.reduce_dtype, "buffer_dtype"_a = defaults.buffer_dtype,
        "output_dtype"_a = defaults.output_dtype, "sync_module_states"_a = defaults.sync_module_states,
        "wrap"_a = nb::none(), "leave_out"_a = defaults.leave_out,
        "Shards a model over the ranks of a group (all of the job) in place. Names, and the code that calls the model, "
        "stay as they are; make the optimizer afterwards. Strategies: ddp, zero1, zero2, zero3, hybrid.");
  f.def(
      "strategies",
      [] {
        std::vector<std::string> names;
        for (fsdp::Strategy each : fsdp::kStrategies) names.emplace_back(fsdp::name_of(each));
        return names;
      },
      "Names that fully_shard takes.");
  f.def("_default_options", [] { return options_by_name({}); });
  f.def(
      "mean_buffers",
      [](nn::Module& module, const std::optional<Group>& group) {
        return fsdp::mean_buffers(module, group ? **group : world());
      },
      "module"_a, "group"_a = nb::none(), Waits(), "Buffers as a checkpoint has them: their means over the ranks.");
  f.def(
      "convert_sync_batchnorm",
      [](nn::Module& module, const std::optional<Group>& group) {
        fsdp::convert_sync_batchnorm(module, group ? **group : world());
      },
      "module"_a, "group"_a = nb::none(), Waits(), "BatchNorm takes its statistics from the samples of all ranks.");
}

}  // namespace shardgrad::python
