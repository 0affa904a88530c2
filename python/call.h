#pragma once
// A call of Python's that backward makes again (autograd/recompute.h).

#include <shardgrad/autograd/region.h>

#include <shardgrad/python/containers.h>

namespace shardgrad::python {

/// A call's arguments as one object, for tensors_in_object and Replacement.
inline nb::tuple packed(const nb::args& args, const nb::kwargs& kwargs) { return nb::make_tuple(args, kwargs); }
inline nb::object call_packed(nb::handle function, nb::handle arguments) {
  return function(*nb::borrow<nb::tuple>(arguments[0]), **nb::borrow<nb::dict>(arguments[1]));
}
/// function(arguments), run again in backward, after `check`; a plain call while nothing is recorded.
nb::object checkpointed(const RecomputeOptions& options, nb::object function, nb::object arguments,
                        std::function<void()> check = {});

}  // namespace shardgrad::python
