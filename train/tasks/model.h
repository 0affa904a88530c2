#pragma once
// A module that makes one tensor of one tensor, of whatever type: what the tasks of this folder train. A language model
// is one that makes logits of tokens, and can be asked for its loss beside.

#include <functional>
#include <type_traits>
#include <utility>

#include <shardgrad/nn/language_model.h>

namespace shardgrad::train {

class Model {
 public:
  template <class M>
  Model(const nn::Child<M>& module)
      : module_(module.shared()), call_([module](const Tensor& x) -> Tensor { return module(x); }) {
    if constexpr (std::is_convertible_v<M*, nn::LanguageModel*>) language_ = module;
  }
  nn::Module& module() const { return *module_; }
  Tensor operator()(const Tensor& x) const { return call_(x); }
  /// The same module where it is a language model, else an empty handle.
  const nn::Child<nn::LanguageModel>& language() const { return language_; }

 private:
  std::shared_ptr<nn::Module> module_;
  std::function<Tensor(const Tensor&)> call_;
  nn::Child<nn::LanguageModel> language_;
};

}  // namespace shardgrad::train
