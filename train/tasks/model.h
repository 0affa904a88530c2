#pragma once
// A module that makes one tensor of one tensor, of whatever type: what the tasks of this folder train.

#include <functional>
#include <utility>

#include <shardgrad/nn/module.h>

namespace shardgrad::train {

class Model {
 public:
  template <class M>
  Model(const nn::Child<M>& module)
      : module_(module.shared()), call_([module](const Tensor& x) -> Tensor { return module(x); }) {}
  nn::Module& module() const { return *module_; }
  Tensor operator()(const Tensor& x) const { return call_(x); }

 private:
  std::shared_ptr<nn::Module> module_;
  std::function<Tensor(const Tensor&)> call_;
};

}  // namespace shardgrad::train
