#pragma once
// gradcheck for a module and its parameters.

#include <shardgrad/autograd/node.h>
#include <shardgrad/certify/gradcheck.h>
#include <shardgrad/nn/module.h>

namespace shardgrad {

/// Makes a module's parameter stand for another leaf: its values and its gradient.
inline void impersonate(const Tensor& parameter, const Tensor& leaf) {
  if (leaf.requires_grad()) leaf_of(leaf);
  Tensor::Impl &to = parameter.impl(), &from = leaf.impl();
  to.storage = from.storage;
  to.offset = from.offset;
  to.requires_grad = from.requires_grad;
  to.grad_fn = from.grad_fn;
  to.leaf = from.leaf;
}

/// Checks the gradient of a module's output with respect to its input and every parameter; returns how many were
/// checked.
template <class M> size_t gradcheck_module(const nn::Child<M>& module, const Shape& input) {
  std::vector<NamedParameter> parameters = module->named_parameters();
  std::vector<Tensor> inputs{randn(input, "x", DType::f64)};
  for (size_t i = 0; i < parameters.size(); ++i)
    inputs.push_back(randn(parameters[i].tensor.shape(), parameters[i].name, DType::f64));
  module->to(DType::f64);
  module->materialize();
  gradcheck(
      [&](std::span<const Tensor> in) {
        for (size_t i = 0; i < parameters.size(); ++i) impersonate(parameters[i].tensor, in[i + 1]);
        return module(in[0]);
      },
      inputs);
  return inputs.size();
}

}  // namespace shardgrad
