#pragma once
// Modules made of a list of modules.

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// Runs modules of one tensor to one tensor in turn. They are named "0", "1", … or as given.
///
///     auto model = nn::make<nn::Sequential>();
///     model->add<nn::Linear>(784, 1024).add<nn::ReLU>().add<nn::Linear>(1024, 10);
class Sequential : public Module {
 public:
  template <class M, class... Args> Sequential& add(Args&&... args) {
    return add_named<M>(std::to_string(steps_.size()), std::forward<Args>(args)...);
  }
  template <class M, class... Args> Sequential& add_named(std::string name, Args&&... args) {
    Child<M> module = child<M>(std::move(name), std::forward<Args>(args)...);
    steps_.push_back([module](const Tensor& x) -> Tensor { return module(x); });
    return *this;
  }
  size_t size() const { return steps_.size(); }
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (auto& step : steps_) y = step(y);
    return y;
  }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

/// A list of modules of one type, named "0", "1", …, which its owner calls as it likes.
template <class M> class ModuleList : public Module {
 public:
  template <class... Args> Child<M> add(Args&&... args) {
    items_.push_back(child<M>(std::to_string(items_.size()), std::forward<Args>(args)...));
    return items_.back();
  }
  size_t size() const { return items_.size(); }
  const Child<M>& operator[](size_t i) const { return items_.at(i); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<Child<M>> items_;
};

/// Modules of one type by name, in the order they were added, which their owner calls as it likes.
template <class M> class ModuleDict : public Module {
 public:
  template <class... Args> Child<M> add(const std::string& name, Args&&... args) {
    return items_.emplace_back(name, child<M>(name, std::forward<Args>(args)...)).second;
  }
  size_t size() const { return items_.size(); }
  bool contains(std::string_view name) const { return find(name) != items_.end(); }
  /// Throws Error(input), with the names that there are, for another one.
  const Child<M>& operator[](std::string_view name) const {
    auto found = find(name);
    if (found != items_.end()) return found->second;
    std::string names;
    for (const auto& each : items_) names += concat(names.empty() ? "" : ", ", "'", each.first, "'");
    fail("ModuleDict: there is no module '", name, "'; there are ", names.empty() ? "none" : names);
  }
  /// Pairs of name and module.
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  using Items = std::vector<std::pair<std::string, Child<M>>>;
  typename Items::const_iterator find(std::string_view name) const {
    return std::ranges::find_if(items_, [&](const auto& each) { return each.first == name; });
  }
  Items items_;
};

}  // namespace shardgrad::nn
