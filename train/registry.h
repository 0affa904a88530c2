#pragma once
// What a configuration chooses by name: data sets, models and tasks, each with options of its own that become keys. A
// program registers its own beside the built-in ones:
//
//     struct NetOptions {
//       int64_t width = 64;
//       void list(train::OptionList& options) { options.add("width", width, "units of a layer", {.low = 1}); }
//     };
//     train::Registry registry;
//     registry.add_model<NetOptions>("net", "two layers", [](const NetOptions& o) { return nn::make<Net>(o.width); });
//     return train::program(argc, argv, registry);       // --set model.name=net --set model.width=32

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/options.h>
#include <shardgrad/train/task.h>
#include <shardgrad/train/tasks/model.h>

namespace shardgrad::train {

/// For what has none.
struct NoOptions {};

/// Options with their values; `list` is of what `values` points to.
struct OptionSet {
  std::shared_ptr<void> values;
  OptionList list;
};

/// The names of one kind and what each stands for.
template <class Made, class... Given> class Kind {
 public:
  struct Entry {
    std::string meaning;
    std::function<OptionSet()> options;  ///< with the defaults
    std::function<Made(const void* options, const Given&...)> make;
  };
  /// `make` takes the options, what is given, both or nothing.
  template <class Options, class Make> void add(const std::string& name, std::string meaning, Make make) {
    auto options = [] {
      auto values = std::make_shared<Options>();
      OptionSet set{values, {}};
      if constexpr (!std::is_same_v<Options, NoOptions>) values->list(set.list);
      return set;
    };
    auto make_it = [make](const void* values, const Given&... given) -> Made {
      if constexpr (std::is_invocable_v<Make, const Options&, const Given&...>)
        return make(*static_cast<const Options*>(values), given...);
      else if constexpr (std::is_invocable_v<Make, const Given&...>)
        return make(given...);
      else if constexpr (std::is_invocable_v<Make, const Options&>)
        return make(*static_cast<const Options*>(values));
      else
        return make();
    };
    SG_CHECK(entries_.emplace(name, Entry{std::move(meaning), options, make_it}).second, "'", name,
             "' is registered twice");
  }
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::map<std::string, Entry> entries_;
};

struct Config;

/// What a task with a module of its own brings beside that.
struct WholeTask {
  bool own_optimizer = false;  ///< the keys `optimizer.…` and `schedule.…` mean nothing beside it
};

class Registry {
 public:
  /// With what is built in.
  Registry();

  /// `make(options)` or make(): the nn::Child of a module that makes one tensor of one tensor.
  template <class Options = NoOptions, class Make>
  Registry& add_model(std::string name, std::string meaning, Make make) {
    models_.add<Options>(name, std::move(meaning), std::move(make));
    return *this;
  }
  /// `open(options, seed)`, with one of the two or none: data::Splits. A function of its arguments: every rank calls
  /// it. `outline`, where it is known without the data: a plan then needs none.
  template <class Options = NoOptions, class Open>
  Registry& add_data(std::string name, std::string meaning, Open open, data::Outline outline = {}) {
    data_.add<Options>(name, std::move(meaning), std::move(open));
    outlines_[name] = std::move(outline);
    return *this;
  }
  /// `make(options, model)` or make(model), of the model that is chosen: std::unique_ptr<Task>.
  template <class Options = NoOptions, class Make>
  Registry& add_task(std::string name, std::string meaning, Make make) {
    tasks_.add<Options>(name, std::move(meaning), [make](const Options& options, const std::optional<Model>& model) {
      if constexpr (std::is_invocable_v<Make, const Options&, const Model&>)
        return std::unique_ptr<Task>(make(options, *model));
      else
        return std::unique_ptr<Task>(make(*model));
    });
    return *this;
  }
  /// A task that has its own module: `make(options)` or make(). The keys `model.…` mean nothing beside it.
  template <class Options = NoOptions, class Make>
  Registry& add_whole_task(std::string name, std::string meaning, Make make, WholeTask brings = {}) {
    whole_tasks_[name] = brings;
    tasks_.add<Options>(name, std::move(meaning), [make](const Options& options, const std::optional<Model>&) {
      if constexpr (std::is_invocable_v<Make, const Options&>)
        return std::unique_ptr<Task>(make(options));
      else
        return std::unique_ptr<Task>(make());
    });
    return *this;
  }
  /// `make(config, world)`: std::unique_ptr<Callback>, on every rank.
  using MakeCallback = std::function<std::unique_ptr<Callback>(const Config&, dist::ProcessGroup&)>;
  Registry& add_callback(MakeCallback make) {
    callbacks_.push_back(std::move(make));
    return *this;
  }
  /// Adds what a shared library registers, if it has the function
  ///     extern "C" void shardgrad_register(shardgrad::train::Registry& registry);
  /// and offers its kernels (kernels/alternatives.h). Throws Error(missing) with the loader's reason.
  void load(const std::string& library);

  /// Throw Error(input) for a name that is not registered and options that are not expected.
  Model make_model(const Component& model) const;
  data::Splits open_data(const Component& data, uint64_t seed) const;
  /// Of the samples that open_data would give.
  data::Outline outline_of(const Component& data, uint64_t seed) const;
  std::unique_ptr<Task> make_task(const Component& task, const Component& model) const;

  /// "data", "model" and "task": the names of a kind.
  std::vector<std::string> names(const std::string& kind) const;
  /// The options of a name that is registered, with the component's values; throws like the above.
  OptionSet options(const std::string& kind, const Component& component) const;
  /// The names with their meanings.
  std::string description(const std::string& kind) const;
  const std::vector<MakeCallback>& callbacks() const { return callbacks_; }
  bool has_own_model(const std::string& task) const { return whole_tasks_.contains(task); }
  bool has_own_optimizer(const std::string& task) const {
    return has_own_model(task) && whole_tasks_.at(task).own_optimizer;
  }

 private:
  template <class Call> auto of_kind(const std::string& kind, const Call& call) const;
  Kind<Model> models_;
  Kind<data::Splits, uint64_t> data_;
  std::map<std::string, data::Outline> outlines_;
  Kind<std::unique_ptr<Task>, std::optional<Model>> tasks_;
  std::map<std::string, WholeTask> whole_tasks_;
  std::vector<MakeCallback> callbacks_;
};

}  // namespace shardgrad::train
