#pragma once
// Results that are named tuples of Python's.

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {

nb::object named(const ValuesAndIndex& found);

}  // namespace shardgrad::python
