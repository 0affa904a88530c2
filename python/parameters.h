#pragma once
// Parameters as Python gives them.

#include <shardgrad/autograd/parameter.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {

/// Tensors, or pairs of a name and a tensor. A tensor alone has the name its module gave it.
std::vector<NamedParameter> parameters_of(nb::handle given);

/// Throws Error(input) for one that a module had, has another for now, and that has no gradient.
void check_in_place(nb::handle parameters);

}  // namespace shardgrad::python
