#pragma once
// Whether tensors by name fit where they are to be loaded.

#include <map>
#include <set>
#include <string>

#include <shardgrad/autograd/parameter.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// What a tensor is, without its values.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::f32;
};
using StateSpecs = std::map<std::string, TensorSpec>;

/// A state has whole tensors under their names. Throws Error(input) for `name`, of this shape, if it is a part of one.
void check_whole(const std::string& name, const Shape& shape, const Part& part);

/// Compares a given state with what is expected of it and collects every fault, so that one error names them all:
///
///     StateCheck check(given);
///     check.expect("weight", {3, 5}, DType::f32);
///     SG_CHECK(check.faults().empty(), "…; nothing was loaded:", check.faults());
class StateCheck {
 public:
  explicit StateCheck(StateSpecs given) : given_(std::move(given)) {}
  explicit StateCheck(const std::map<std::string, Tensor>& given);
  /// There must be a `name` of this shape and dtype.
  void expect(const std::string& name, const Shape& shape, DType dtype);
  /// A line, begun by a line break, for each missing, ill-fitting and unknown name; empty when all fits. A
  /// num_batches_tracked beside a running_var is no fault.
  std::string faults() const;

 private:
  bool is_to_spare(const std::string& name) const;
  StateSpecs given_;
  std::set<std::string> known_;
  std::string faults_;
};

/// Whether two tensors, alike in shape and dtype, hold different values. One on device meta has none to differ.
bool values_differ(const Tensor& a, const Tensor& b);

}  // namespace shardgrad
